"""Tables of samples that keep what a source repeats once, and the rest in narrow rows.

Expand: the version before goes on with its own tables.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

KIND = "expand"

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
KINDS = ("throughput", "save", "host", "loss")


def upgrade() -> None:
    place = _whole("replica", "local_rank", "rank", "epoch", "generation")
    _tables(
        "throughput",
        [
            *place,
            sa.Column("phase", sa.String(), nullable=False),
            *_whole("nodes", "replicas", "processes"),
            sa.Column("accelerator", sa.String(), nullable=False),
            *_whole("local_batch", nullable=True),
            *_whole("accumulation"),
            sa.Column("gns_unavailable", sa.String()),
            sa.Column("met", sa.Boolean()),
        ],
        [
            sa.Column("steps", sa.Integer(), nullable=False),
            *_whole("step"),
            *_real("step_seconds", "step_seconds_mean", "data_wait_seconds"),
            *_real("examples_per_second", "exchange_wait_seconds", nullable=True),
            *_whole("gns_steps", "gns_small_batch", "gns_big_batch", nullable=True),
            *_real("gns_small_square", "gns_big_square", nullable=True),
        ],
    )
    _tables(
        "save",
        _whole("replica", "local_rank", "rank", "epoch", "generation"),
        [
            sa.Column("path", sa.String(), nullable=False),
            *_whole("step"),
            *_real("save_seconds"),
            *_whole("size_bytes"),
        ],
    )
    _tables(
        "host",
        [
            sa.Column("node", NAME, nullable=False),
            *_whole("cpu_capacity_millis", "memory_capacity_bytes"),
            sa.Column("devices", JSON, nullable=False),
            sa.Column("unavailable", JSON, nullable=False),
        ],
        [
            *_whole("cpu_millis", "memory_bytes", "job_cpu_millis", "job_memory_bytes"),
            *_real("network_receive_bytes_per_second", "network_send_bytes_per_second"),
            *_real("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
            sa.Column("gpus", sa.LargeBinary(), nullable=False),
            *_real("gpu_share", "gpu_memory_share", nullable=True),
            sa.Column("storage", sa.LargeBinary()),
            sa.Column("replica_readings", sa.LargeBinary()),
            *_whole("replica_memory_bytes", nullable=True),
            *_real("throttled_share", nullable=True),
        ],
    )
    _tables("loss", [sa.Column("where", sa.String(), nullable=False)], _whole("dropped"))


def downgrade() -> None:
    for kind in KINDS:
        op.drop_table(f"{kind}_rows")
        op.drop_table(f"{kind}_contexts")


def _whole(*names: str, nullable: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=nullable) for name in names]


def _real(*names: str, nullable: bool = False) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=nullable) for name in names]


def _tables(kind: str, context: list[sa.Column], row: list[sa.Column]) -> None:  # type: ignore[type-arg]
    op.create_table(
        f"{kind}_contexts",
        sa.Column("id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("source", NAME, nullable=False),
        *_whole("skew"),
        *context,
        sa.PrimaryKeyConstraint("id", name=f"pk_{kind}_contexts"),
    )
    op.create_index(f"ix_{kind}_contexts_job_source", f"{kind}_contexts", ["job", "source"])
    sqlite = op.get_bind().dialect.name == "sqlite"
    # On PostgreSQL the lock of a source keeps rows apart, for less than an index of each costs.
    key = sa.PrimaryKeyConstraint("context", "slot", "within", name=f"pk_{kind}_rows")
    op.create_table(
        f"{kind}_rows",
        sa.Column("context", sa.BigInteger(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("within", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        *row,
        *([key] if sqlite else []),
        sqlite_with_rowid=False,
    )
    if not sqlite:
        op.create_index(f"ix_{kind}_rows_context_slot", f"{kind}_rows", ["context", "slot"])
        op.create_index(f"ix_{kind}_rows_slot", f"{kind}_rows", ["slot"], postgresql_using="brin")
