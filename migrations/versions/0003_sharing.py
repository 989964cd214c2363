"""How pools are divided among projects, and what the latest round of each came to.

Expand: the version before knows neither table.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KIND = "expand"

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "policies",
        sa.Column("pool", NAME, nullable=False),
        sa.Column("policy", JSON, nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_policies"),
    )
    op.create_table(
        "rounds",
        sa.Column("pool", NAME, nullable=False),
        sa.Column("round", JSON, nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_rounds"),
    )


def downgrade() -> None:
    op.drop_table("rounds")
    op.drop_table("policies")
