"""Gradient norms and the wait for gradients, of workers whose probe samples them.

Expand: the columns are empty for senders and services of before.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

#: ``expand`` may run while the version before serves; ``contract`` only after it is gone.
KIND = "expand"

COLUMNS = {
    "exchange_wait_seconds": sa.Double,
    "gns_steps": sa.BigInteger,
    "gns_small_batch": sa.BigInteger,
    "gns_small_square": sa.Double,
    "gns_big_batch": sa.BigInteger,
    "gns_big_square": sa.Double,
    "gns_unavailable": sa.String,
}


def upgrade() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("throughput_samples", sa.Column(name, kind()))


def downgrade() -> None:
    for name in reversed(COLUMNS):
        op.drop_column("throughput_samples", name)
