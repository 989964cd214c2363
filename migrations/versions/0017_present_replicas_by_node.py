"""An index of present replicas by their node, for the list of nodes.

Expand: the version before ignores it.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

KIND = "expand"

PRESENT = sa.text("(state <> 'exited' OR unfit <> '')")


def upgrade() -> None:
    op.create_index(
        "ix_replicas_present",
        "replicas",
        ["node"],
        sqlite_where=PRESENT,
        postgresql_where=PRESENT,
    )


def downgrade() -> None:
    op.drop_index("ix_replicas_present", "replicas")
