"""What each replica of a job uses, beside its share of the machine.

Expand: the version before leaves the column empty.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KIND = "expand"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column(
        "host_samples", sa.Column("replica_readings", JSON, nullable=False, server_default="[]")
    )


def downgrade() -> None:
    op.drop_column("host_samples", "replica_readings")
