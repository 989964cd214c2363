"""The last step of each world, kept when its samples are deleted.

Expand: the version before leaves the table empty.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

KIND = "expand"

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "retired_steps",
        sa.Column("job", NAME, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", "epoch", name="pk_retired_steps"),
    )


def downgrade() -> None:
    op.drop_table("retired_steps")
