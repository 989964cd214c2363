"""Bytes of the state that a worker holds a part of.

Expand: the version before leaves the column empty.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.add_column("throughput_contexts", sa.Column("sharded_bytes", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("throughput_contexts", "sharded_bytes")
