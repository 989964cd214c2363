"""Whether the workers of a world go over into another one without being ended.

Expand: the version before leaves the column as it begins.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.add_column(
        "worlds", sa.Column("elastic", sa.Boolean(), nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    op.drop_column("worlds", "elastic")
