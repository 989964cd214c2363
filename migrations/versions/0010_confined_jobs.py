"""Jobs of people who are no administrators.

Expand: the version before leaves the column false, and starts such jobs as the service's user.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    column = sa.Column("confined", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("jobs", column)


def downgrade() -> None:
    op.drop_column("jobs", "confined")
