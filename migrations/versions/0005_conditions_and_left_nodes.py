"""What a cluster says of a job's object, and why a replica's node was left.

Expand: the version before leaves both columns as they begin.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

KIND = "expand"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("conditions", JSON, nullable=False, server_default="[]"))
    op.add_column("replicas", sa.Column("unfit", sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("replicas", "unfit")
    op.drop_column("jobs", "conditions")
