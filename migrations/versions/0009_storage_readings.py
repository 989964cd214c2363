"""Shared memory and storage as a job's processes find them.

Expand: the version before leaves the column empty.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KIND = "expand"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("host_samples", sa.Column("storage", JSON))


def downgrade() -> None:
    op.drop_column("host_samples", "storage")
