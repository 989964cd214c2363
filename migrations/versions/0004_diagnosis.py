"""Why each world was lost.

Expand: the version before leaves the column empty.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KIND = "expand"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("worlds", sa.Column("diagnosis", JSON))


def downgrade() -> None:
    op.drop_column("worlds", "diagnosis")
