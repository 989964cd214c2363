"""Whether a worker met another one.

Expand: the version before leaves the column empty.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.add_column("throughput_samples", sa.Column("met", sa.Boolean()))


def downgrade() -> None:
    op.drop_column("throughput_samples", "met")
