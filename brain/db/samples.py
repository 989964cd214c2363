"""Tables of samples, two tables for each kind of sample, and the queries that read both tables.

Fields that a source repeats in every sample are stored once, in a row of ``…_contexts``; a row of
``…_rows`` holds the fields that change. A context's id is a digest of its fields, so that no writer
has to query it. The time of a row (service time) is stored as a slot of 5 minutes and the
microseconds within this slot. PostgreSQL stores many rows of one context and slot in one index
entry, and SQLite stores the rows in that order.
"""

from typing import Any

import sqlalchemy as sa

from brain.db.columns import Micros, Name, Value, Word
from brain.db.tables import metadata
from brain.types.telemetry import Phase

#: Microseconds of a slot.
SLOT = 300_000_000
_slot = sa.literal_column(str(SLOT), sa.BigInteger)
#: Options of an index that only PostgreSQL has, as the migrations create and compare it.
_POSTGRESQL = {"only": "postgresql"}
_PLACE = ("replica", "local_rank", "rank", "epoch", "generation")


def _whole(*names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=nullable) for name in names]


def _real(*names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Double, nullable=nullable) for name in names]


def _kind(
    kind: str, context: list[sa.Column[Any]], row: list[sa.Column[Any]]
) -> tuple[sa.Table, sa.Table]:
    contexts = sa.Table(
        f"{kind}_contexts",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("job", Name, nullable=False),
        sa.Column("source", Name, nullable=False),
        # Microseconds by which service time is ahead of the sender's clock.
        *_whole("skew"),
        *context,
        # Finds the samples of a job, and the known samples of a source.
        sa.Index(f"ix_{kind}_contexts_job_source", "job", "source"),
    )
    rows = sa.Table(
        f"{kind}_rows",
        metadata,
        *(
            sa.Column(name, of, primary_key=True, autoincrement=False)
            for name, of in (
                ("context", sa.BigInteger),
                ("slot", sa.Integer),
                ("within", sa.Integer),
            )
        ),
        sa.Column("sequence", sa.Integer, nullable=False),
        *row,
        # Keys only on SQLite: on PostgreSQL the locks of their sources keep rows unique.
        sa.Index(f"ix_{kind}_rows_context_slot", "context", "slot", info=_POSTGRESQL),
        # Rows that are old enough to retire.
        sa.Index(f"ix_{kind}_rows_slot", "slot", postgresql_using="brin", info=_POSTGRESQL),
        sqlite_with_rowid=False,
    )
    return contexts, rows


throughput_contexts, throughput_rows = _kind(
    "throughput",
    [
        *_whole(*_PLACE),
        sa.Column("phase", Word(Phase), nullable=False),
        *_whole("nodes", "replicas", "processes"),
        sa.Column("accelerator", sa.String, nullable=False),
        *_whole("local_batch", nullable=True),
        *_whole("accumulation"),
        sa.Column("gns_unavailable", sa.String),
        sa.Column("met", sa.Boolean),
        *_whole("sharded_bytes", nullable=True),
    ],
    [
        sa.Column("steps", sa.Integer, nullable=False),
        *_whole("step"),
        *_real("step_seconds", "step_seconds_mean", "data_wait_seconds"),
        *_real("examples_per_second", "exchange_wait_seconds", nullable=True),
        *_whole("gns_steps", "gns_small_batch", "gns_big_batch", nullable=True),
        *_real("gns_small_square", "gns_big_square", nullable=True),
    ],
)

save_contexts, save_rows = _kind(
    "save",
    _whole(*_PLACE),
    [
        sa.Column("path", sa.String, nullable=False),
        *_whole("step"),
        *_real("save_seconds"),
        *_whole("size_bytes"),
    ],
)

host_contexts, host_rows = _kind(
    "host",
    [
        sa.Column("node", Name, nullable=False),
        *_whole("cpu_capacity_millis", "memory_capacity_bytes"),
        # Index, name and bytes of each accelerator.
        sa.Column("devices", Value[object](tuple[tuple[int, str, int], ...]), nullable=False),
        sa.Column("unavailable", Value[object](tuple[str, ...]), nullable=False),
    ],
    [
        *_whole("cpu_millis", "memory_bytes", "job_cpu_millis", "job_memory_bytes"),
        *_real("network_receive_bytes_per_second", "network_send_bytes_per_second"),
        *_real("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
        # In the form of ``brain.db.packing``.
        sa.Column("gpus", sa.LargeBinary, nullable=False),
        # Aggregates of ``gpus``, so that a series need not unpack them.
        *_real("gpu_share", "gpu_memory_share", nullable=True),
        sa.Column("storage", sa.LargeBinary),
        sa.Column("replica_readings", sa.LargeBinary),
        *_whole("replica_memory_bytes", nullable=True),
        *_real("throttled_share", nullable=True),
    ],
)

loss_contexts, loss_rows = _kind(
    "loss", [sa.Column("where", sa.String, nullable=False)], _whole("dropped")
)


def instant_of(rows: sa.Table) -> sa.ColumnElement[Any]:
    """Return the time of a row, in microseconds since 1970."""
    whole = sa.cast(rows.c.slot, sa.BigInteger) * _slot + rows.c.within
    return sa.type_coerce(whole, Micros())


def _whole_samples(contexts: sa.Table, rows: sa.Table) -> sa.Subquery:
    of_context = [column for column in contexts.c if column.name not in ("id", "skew")]
    of_row = [column for column in rows.c if column.name != "within"]
    both = sa.join(contexts, rows, rows.c.context == contexts.c.id)
    instant = instant_of(rows).label("corrected_at")
    return sa.select(*of_context, *of_row, instant).select_from(both).subquery()


#: Samples with all their columns, and ``corrected_at``, their service time.
throughput_samples = _whole_samples(throughput_contexts, throughput_rows)
save_samples = _whole_samples(save_contexts, save_rows)
host_samples = _whole_samples(host_contexts, host_rows)


def since(of: sa.FromClause, at: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return a condition for samples at or after a time in microseconds.

    The condition uses the index if possible.
    """
    return (of.c.slot >= slot_of(at)) & (of.c.corrected_at >= at)


def until(of: sa.FromClause, at: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return a condition for samples up to and including a time in microseconds."""
    return (of.c.slot <= slot_of(at)) & (of.c.corrected_at <= at)


def slot_of(at: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """Return the 5-minute slot of a time in microseconds; the time is never before 1970."""
    return at.op("/", return_type=sa.BigInteger())(_slot)
