"""1-minute means become 1-hour means instead of going.

Expand: the version before deletes old minutes as it always did.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

KIND = "expand"

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "hour_means",
        sa.Column("job", NAME, nullable=False),
        sa.Column("metric", NAME, nullable=False),
        sa.Column("hour", INSTANT, nullable=False),
        *(
            sa.Column(name, sa.Double(), nullable=False)
            for name in ("mean", "low", "high", "weight")
        ),
        sa.PrimaryKeyConstraint("job", "metric", "hour", name="pk_hour_means"),
    )
    op.create_index("ix_hour_means_hour", "hour_means", ["hour"], postgresql_using="brin")


def downgrade() -> None:
    op.drop_table("hour_means")
