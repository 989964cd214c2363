"""What each replica reserves since a plan changed it, and what a replica is held to.

Expand: the version before leaves the columns empty.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KIND = "expand"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("amounts", JSON))
    op.add_column("replicas", sa.Column("resources", JSON))
    op.add_column(
        "replicas", sa.Column("unenforced", sa.String(), nullable=False, server_default="")
    )
    op.add_column("host_samples", sa.Column("replica_memory_bytes", sa.BigInteger()))
    op.add_column("host_samples", sa.Column("throttled_share", sa.Double()))


def downgrade() -> None:
    for column in ("throttled_share", "replica_memory_bytes"):
        op.drop_column("host_samples", column)
    for column in ("unenforced", "resources"):
        op.drop_column("replicas", column)
    op.drop_column("jobs", "amounts")
