"""Samples of the version before move into the packed tables; its own go.

Contract: the version before writes the tables that are dropped here.

Revision ID: 0012
Revises: 0011
"""

import json
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

KIND = "contract"

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

PLACE = ("replica", "local_rank", "rank", "epoch", "generation")
#: What a context holds beside id, job, source and skew, and what a row holds behind its instant.
COLUMNS = {
    "throughput": (
        (
            *PLACE,
            *("phase", "nodes", "replicas", "processes", "accelerator", "local_batch"),
            *("accumulation", "gns_unavailable", "met"),
        ),
        (
            *("sequence", "steps", "step", "step_seconds", "step_seconds_mean"),
            *("data_wait_seconds", "examples_per_second", "exchange_wait_seconds", "gns_steps"),
            *("gns_small_batch", "gns_big_batch", "gns_small_square", "gns_big_square"),
        ),
    ),
    "save": (PLACE, ("sequence", "path", "step", "save_seconds", "size_bytes")),
    "loss": (("where",), ("sequence", "dropped")),
}
HOST = (
    *("sequence", "cpu_millis", "memory_bytes", "job_cpu_millis", "job_memory_bytes"),
    *("network_receive_bytes_per_second", "network_send_bytes_per_second"),
    *("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
    *("gpu_share", "gpu_memory_share", "replica_memory_bytes", "throttled_share"),
)
NODE = ("job", "source", "node", "cpu_capacity_millis", "memory_capacity_bytes")
STORAGE = (
    *("shm_used_bytes", "shm_capacity_bytes", "scratch_used_bytes", "scratch_capacity_bytes"),
    "io_stalled_share",
)
SMALL, LARGEST = ("sequence", "steps"), 2**31 - 1
SCALED = (("utilization", 100), ("power_watts", 1000), ("temperature_celsius", 10))


def upgrade() -> None:
    for kind, (context, row) in COLUMNS.items():
        _move(kind, context, row)
    _move_hosts()
    for kind in (*COLUMNS, "host"):
        op.drop_table(f"{kind}_samples")


def downgrade() -> None:
    """Only the tables come back: who wants the samples puts back the copy from before."""
    whole = lambda *names: [sa.Column(n, sa.BigInteger(), nullable=False) for n in names]  # noqa: E731
    real = lambda *names: [sa.Column(n, sa.Double(), nullable=False) for n in names]  # noqa: E731
    some = lambda kind, *names: [sa.Column(n, kind) for n in names]  # noqa: E731
    _empty(
        "throughput",
        *whole(*PLACE),
        sa.Column("phase", sa.String(), nullable=False),
        *whole("nodes", "replicas", "processes"),
        sa.Column("accelerator", sa.String(), nullable=False),
        *some(sa.BigInteger(), "local_batch"),
        *whole("accumulation", "steps", "step"),
        *real("step_seconds", "step_seconds_mean", "data_wait_seconds"),
        *some(sa.Double(), "examples_per_second", "exchange_wait_seconds"),
        *some(sa.BigInteger(), "gns_steps", "gns_small_batch", "gns_big_batch"),
        *some(sa.Double(), "gns_small_square", "gns_big_square"),
        *some(sa.String(), "gns_unavailable"),
        *some(sa.Boolean(), "met"),
    )
    _empty(
        "save",
        *whole(*PLACE),
        sa.Column("path", sa.String(), nullable=False),
        *whole("step", "size_bytes"),
        *real("save_seconds"),
    )
    _empty(
        "host",
        sa.Column("node", NAME, nullable=False),
        *whole("cpu_millis", "cpu_capacity_millis", "memory_bytes", "memory_capacity_bytes"),
        *whole("job_cpu_millis", "job_memory_bytes"),
        *real("network_receive_bytes_per_second", "network_send_bytes_per_second"),
        *real("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
        sa.Column("gpus", JSON, nullable=False),
        *some(sa.Double(), "gpu_share", "gpu_memory_share", "throttled_share"),
        *some(JSON, "storage"),
        sa.Column("unavailable", JSON, nullable=False),
        *some(sa.BigInteger(), "replica_memory_bytes"),
    )
    _empty("loss", sa.Column("where", sa.String(), nullable=False), *whole("dropped"))


def _empty(kind: str, *columns: sa.Column[Any]) -> None:
    table = f"{kind}_samples"
    op.create_table(
        table,
        sa.Column("source", NAME, nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("job", NAME, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("source", "measured_at", name=f"pk_{table}"),
    )
    op.create_index(f"ix_{table}_job_corrected_at", table, ["job", "corrected_at"])
    op.create_index(f"ix_{table}_corrected_at", table, ["corrected_at"], postgresql_using="brin")


def _microseconds(column: str) -> str:
    if op.get_bind().dialect.name == "sqlite":
        return column
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def _move(kind: str, context: tuple[str, ...], row: tuple[str, ...]) -> None:
    """Ids below zero: those of the running code are digests, none of which is."""
    sent, instant = _microseconds("s.measured_at"), _microseconds("s.corrected_at")
    same = "IS" if op.get_bind().dialect.name == "sqlite" else "IS NOT DISTINCT FROM"
    of, names = f"{kind}_contexts", ", ".join(f'"{name}"' for name in context)
    op.execute(
        f"INSERT INTO {of} (id, job, source, skew, {names}) "
        f"SELECT -row_number() OVER (), d.* FROM (SELECT DISTINCT job, source, "
        f"{instant} - {sent} AS skew, {names} FROM {kind}_samples AS s) AS d"
    )
    mine = " AND ".join(f'c."{name}" {same} s."{name}"' for name in context)
    kept = ", ".join(f'"{name}"' for name in row)
    theirs = ", ".join(_small(name) if name in SMALL else f's."{name}"' for name in row)
    op.execute(
        f"INSERT INTO {kind}_rows (context, slot, within, {kept}) "
        f"SELECT c.id, {instant} / 300000000, {instant} % 300000000, {theirs} "
        f"FROM {kind}_samples AS s JOIN {of} AS c ON c.id < 0 AND c.job = s.job "
        f"AND c.source = s.source AND c.skew = {instant} - {sent} AND {mine}"
    )


def _small(name: str) -> str:
    """A count that has 32 bits now; nothing ever counted further."""
    return f'CASE WHEN s."{name}" > {LARGEST} THEN {LARGEST} ELSE s."{name}" END'


def _move_hosts() -> None:
    """One at a time, because no SQL packs bytes."""
    connection = op.get_bind()
    contexts = sa.table(
        "host_contexts",
        *(sa.column(name) for name in ("id", "skew", *NODE)),
        *(sa.column(name, JSON) for name in ("devices", "unavailable")),
    )
    row = ("context", "slot", "within", "gpus", "storage", *HOST)
    rows = sa.table("host_rows", *(sa.column(name) for name in row))
    sent, instant = _microseconds("measured_at"), _microseconds("corrected_at")
    asked = ", ".join((*NODE, *HOST, "gpus", "storage", "unavailable"))
    found = connection.exec_driver_sql(
        f"SELECT {asked}, {instant} AS at, {instant} - {sent} AS skew FROM host_samples",
        execution_options={"yield_per": 1000},
    )
    ids: dict[str, int] = {}
    for part in found.mappings().partitions(1000):
        new, packed = [], []
        for host in part:
            gpus, unavailable = _read(host["gpus"]), _read(host["unavailable"])
            devices = [[gpu["index"], gpu["name"], gpu["memory_total_bytes"]] for gpu in gpus]
            told = {name: host[name] for name in (*NODE, "skew")}
            told |= {"devices": devices, "unavailable": unavailable}
            key = json.dumps(told)
            if key not in ids:
                ids[key] = -len(ids) - 1
                new.append({"id": ids[key], **told})
            slot, within = divmod(host["at"], 300_000_000)
            storage = _read(host["storage"])
            packed.append(
                {
                    **{name: host[name] for name in HOST},
                    "sequence": min(host["sequence"], LARGEST),
                    **{"context": ids[key], "slot": slot, "within": within},
                    "gpus": _packed(gpus),
                    "storage": storage and _encode([storage.get(name) for name in STORAGE]),
                }
            )
        if new:
            connection.execute(sa.insert(contexts), new)
        connection.execute(sa.insert(rows), packed)


_encode = msgspec.msgpack.encode


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str | bytes) else value


def _packed(gpus: list[dict[str, Any]]) -> bytes:
    if not gpus:
        return b""
    columns = [[_scaled(gpu.get(name), scale) for gpu in gpus] for name, scale in SCALED]
    return _encode([[gpu["memory_used_bytes"] for gpu in gpus], *columns])


def _scaled(value: float | None, scale: int) -> float | int | None:
    if value is None or not abs(value) < 1e9:
        return value
    whole = round(value * scale)
    return whole if whole / scale == value else float(value)
