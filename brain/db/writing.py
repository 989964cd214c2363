"""Samples into SQLite and PostgreSQL: many batches in one transaction, many rows in one statement.

Batches of which every sample is newer than all that its source had sent are written together: none
of them can be known already, and nothing has to be asked for row by row. The others, which are
repeated or late, go through ``SqlTelemetry.add`` one at a time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import psycopg
import sqlalchemy as sa

from brain import wire
from brain.clocks import SourceClock, corrected
from brain.db import faults
from brain.db.columns import microseconds_of
from brain.db.tables import host_samples, loss_samples, save_samples, throughput_samples
from brain.ports import SampleBatch
from brain.series import gpu_memory_share, gpu_share
from brain.types.telemetry import HostSample, LossSample, Sample, SaveSample, ThroughputSample

#: Job and source.
Source = tuple[str, str]
Clocks = dict[Source, SourceClock]
_Row = tuple[Any, ...]

_PLACE = ("source", "job", "replica", "local_rank", "rank", "epoch", "generation")
#: PostgreSQL counts its microseconds from 2000.
_POSTGRESQL_EPOCH = microseconds_of(datetime(2000, 1, 1, tzinfo=UTC))
#: First byte of JSONB on the wire.
_JSONB = b"\x01"


def _names(table: sa.Table, *first: str) -> tuple[str, ...]:
    given = (*first, "measured_at", "corrected_at")
    return (*first, *(column.name for column in table.c if column.name not in given))


class _Kind(NamedTuple):
    """How samples of one kind become rows, whose first columns are the two instants."""

    table: sa.Table
    #: Of the columns behind the instants.
    names: tuple[str, ...]
    row: Callable[[Any], _Row]


def _placed(table: sa.Table, **paths: str) -> _Kind:
    names = _names(table)
    placed = {name: f"place.{name}" for name in _PLACE}
    return _Kind(table, names, attrgetter(*(({**placed, **paths}).get(n, n) for n in names)))


_JSON = ("storage", "gpus", "unavailable", "replica_readings")
_HOST = tuple(
    name for name in _names(host_samples) if name not in (*_JSON, "gpu_share", "gpu_memory_share")
)
_host = attrgetter(*_HOST)


def _host_row(sample: HostSample) -> _Row:
    shares = gpu_share(sample), gpu_memory_share(sample)
    storage = None if sample.storage is None else wire.encode(sample.storage).decode()
    lists = (sample.gpus, sample.unavailable, sample.replica_readings)
    said = (wire.encode(each).decode() for each in lists)
    return (*_host(sample), *shares, storage, *said)


_KINDS: Mapping[type[Sample], _Kind] = {
    ThroughputSample: _placed(throughput_samples, phase="phase.value"),
    SaveSample: _placed(save_samples),
    HostSample: _Kind(host_samples, (*_HOST, "gpu_share", "gpu_memory_share", *_JSON), _host_row),
    LossSample: _Kind(loss_samples, _names(loss_samples), attrgetter(*_names(loss_samples))),
}


@dataclass(slots=True)
class Count:
    """What came of one source, as ``sources`` adds it up."""

    heard_at: datetime
    highest: int = -1
    stored: int = 0
    dropped: int = 0

    def add(self, sequence: int, dropped: int) -> None:
        """Count one sample."""
        self.highest = max(self.highest, sequence)
        self.stored += 1
        self.dropped += dropped


Counts = dict[Source, Count]


@dataclass(slots=True)
class Fresh:
    """Rows of batches that are written together."""

    rows: dict[type[Sample], list[_Row]] = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    batches: list[SampleBatch] = field(default_factory=list)

    def take(self, batch: SampleBatch, clocks: Clocks) -> bool:
        """Add a batch and move the clocks of its sources on; False, and nothing done, where one
        of its samples may be known."""
        by_source: dict[Source, list[Sample]] = {}
        for sample in batch.samples:
            by_source.setdefault(origin(sample), []).append(sample)
        offset = timedelta(seconds=batch.offset_seconds)
        moved: Clocks = {}
        instants: dict[Source, Mapping[datetime, datetime]] = {}
        for source, mine in by_source.items():
            clock, stamps = clocks.get(source, SourceClock()), [one.measured_at for one in mine]
            if clock.newest is not None and min(stamps) <= clock.newest[0]:
                return False
            instants[source], moved[source] = corrected(clock, stamps, offset)
            if len(instants[source]) < len(mine) > len({(type(s), s.measured_at) for s in mine}):
                return False
        clocks.update(moved)
        for source, mine in by_source.items():
            self._add(source, mine, instants[source], batch.received_at)
        self.batches.append(batch)
        return True

    def _add(
        self,
        source: Source,
        samples: Iterable[Sample],
        instants: Mapping[datetime, datetime],
        heard_at: datetime,
    ) -> None:
        count = self.counts.setdefault(source, Count(heard_at))
        count.heard_at = heard_at
        for sample in samples:
            kind, stamp = type(sample), sample.measured_at
            sent, instant = microseconds_of(stamp), microseconds_of(instants[stamp])
            self.rows.setdefault(kind, []).append((sent, instant, *_KINDS[kind].row(sample)))
            count.add(sample.sequence, sample.dropped if isinstance(sample, LossSample) else 0)


def write(connection: sa.Connection, fresh: Fresh, clocks: Clocks) -> bool:
    """Store rows and count them; False, and nothing done, where another one stored a sample."""
    postgresql = connection.dialect.name == "postgresql"
    put = _copy if postgresql else _insert
    # By hand: SQLAlchemy compiles such a statement each time, which takes longer than it does.
    connection.exec_driver_sql("SAVEPOINT fresh")
    try:
        for kind, shape in _KINDS.items():
            # In one order for everybody, so that no two writers wait for each other.
            if rows := sorted(fresh.rows.get(kind, ()), key=_identity(shape)):
                put(connection, shape, rows)
    except (sa.exc.IntegrityError, psycopg.errors.UniqueViolation) as known:
        if not _is_duplicate(getattr(known, "orig", known)):
            raise
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT fresh")
        return False
    connection.exec_driver_sql("RELEASE SAVEPOINT fresh")
    add_up(connection, fresh.counts, clocks)
    return True


def add_up(connection: sa.Connection, counts: Counts, clocks: Clocks) -> None:
    """Keep what came of each source, and its clock."""
    rows = []
    for source, of in sorted(counts.items()):
        clock = clocks[source]
        assert clock.newest is not None, "something was heard"
        seconds = clock.offset.total_seconds()
        instants = of.heard_at, *clock.newest
        rows.append((*source, of.highest, of.stored, of.dropped, seconds, *instants))
    if rows and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_COUNT_POSTGRESQL, (wire.encode(rows).decode(),))
    elif rows:
        whole = [(*row[:6], *map(microseconds_of, row[6:])) for row in rows]
        connection.exec_driver_sql(_COUNT_SQLITE, whole)


def clocks_of(connection: sa.Connection, wanted: Iterable[Source]) -> Clocks:
    """The clocks of sources that were heard before, locked until the transaction ends."""
    asked = sorted(set(wanted))
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(_CLOCKS_SQLITE, (wire.encode(asked).decode(),))
        read: Callable[[Any], datetime] = _instant
    else:
        # Two batches of one source take turns, or the later could stand before the earlier.
        jobs, sources = zip(*asked, strict=True) if asked else ((), ())
        found = connection.exec_driver_sql(_CLOCKS_POSTGRESQL, (list(jobs), list(sources)))
        read = _utc
    return {
        (job, source): SourceClock(
            offset=timedelta(seconds=seconds), newest=(read(stamp), read(instant))
        )
        for job, source, seconds, stamp, instant in found
    }


def origin(sample: Sample) -> Source:
    """The job and the source of any sample."""
    if isinstance(sample, ThroughputSample | SaveSample):
        return sample.place.job, sample.place.source
    return sample.job, sample.source


_CLOCKS_SQLITE = """
SELECT s.job, s.source, s.offset_seconds, s.measured_at, s.corrected_at
FROM json_each(?) AS w CROSS JOIN sources AS s
ON s.job = json_extract(w.value, '$[0]') AND s.source = json_extract(w.value, '$[1]')
"""
_CLOCKS_POSTGRESQL = """
SELECT job, source, offset_seconds, measured_at, corrected_at FROM sources
WHERE (job, source) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
ORDER BY job, source FOR UPDATE
"""
_COUNT = """
ON CONFLICT (job, source) DO UPDATE SET
highest = CASE WHEN excluded.highest > sources.highest
    THEN excluded.highest ELSE sources.highest END,
stored = sources.stored + excluded.stored,
dropped = sources.dropped + excluded.dropped,
heard_at = excluded.heard_at,
offset_seconds = CASE WHEN excluded.measured_at > sources.measured_at
    THEN excluded.offset_seconds ELSE sources.offset_seconds END,
corrected_at = CASE WHEN excluded.measured_at > sources.measured_at
    THEN excluded.corrected_at ELSE sources.corrected_at END,
measured_at = CASE WHEN excluded.measured_at > sources.measured_at
    THEN excluded.measured_at ELSE sources.measured_at END
"""
_SOURCES = (
    "job, source, highest, stored, dropped, offset_seconds, heard_at, measured_at, corrected_at"
)
_COUNT_SQLITE = f"INSERT INTO sources ({_SOURCES}) VALUES (?,?,?,?,?,?,?,?,?) {_COUNT}"
_COUNT_POSTGRESQL = f"""
INSERT INTO sources ({_SOURCES})
SELECT r->>0, r->>1, (r->>2)::int8, (r->>3)::int8, (r->>4)::int8, (r->>5)::float8,
    (r->>6)::timestamptz, (r->>7)::timestamptz, (r->>8)::timestamptz
FROM json_array_elements(%s::json) AS r {_COUNT}
"""


def _insert(connection: sa.Connection, shape: _Kind, rows: Sequence[_Row]) -> None:
    names = ", ".join(f'"{name}"' for name in ("measured_at", "corrected_at", *shape.names))
    marks = ", ".join("?" * (2 + len(shape.names)))
    connection.exec_driver_sql(
        f"INSERT INTO {shape.table.name} ({names}) VALUES ({marks})", list(rows)
    )


def _copy(connection: sa.Connection, shape: _Kind, rows: Sequence[_Row]) -> None:
    names = ("measured_at", "corrected_at", *shape.names)
    listed = ", ".join(f'"{name}"' for name in names)
    driver: Any = connection.connection.driver_connection
    encoded = [i for i, name in enumerate(names) if name in _JSON]
    with _translated(connection), driver.cursor() as cursor:
        statement = f"COPY {shape.table.name} ({listed}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(statement) as copy:
            copy.set_types([_wire_type(shape.table.c[name]) for name in names])
            for stamp, instant, *others in rows:
                row = [stamp - _POSTGRESQL_EPOCH, instant - _POSTGRESQL_EPOCH, *others]
                for i in encoded:
                    row[i] = row[i] and _JSONB + row[i].encode()
                copy.write_row(row)


def _wire_type(column: sa.Column[Any]) -> str:
    """How a column travels: instants as their microseconds, JSON as its bytes."""
    if column.name in ("measured_at", "corrected_at"):
        return "int8"
    if column.name in _JSON:
        return "bytea"
    kinds = {sa.BigInteger: "int8", sa.Double: "float8", sa.Boolean: "bool"}
    return kinds.get(type(column.type), "text")


class _translated(AbstractContextManager[None]):
    """What the driver says within, in the words of ``faults``; SQLAlchemy does not see a COPY."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def __exit__(self, kind: object, said: BaseException | None, trace: object) -> None:
        if said is None:
            return
        driver: Any = self._connection.connection.driver_connection
        if driver.closed or driver.broken:
            self._connection.invalidate(said)
        known = faults.domain_error(
            said, self._connection.engine.url.render_as_string(hide_password=True)
        )
        if known is not None:
            raise known from said


def _identity(shape: _Kind) -> Callable[[_Row], tuple[Any, ...]]:
    source = 2 + shape.names.index("source")
    return lambda row: (row[source], row[0])


def _is_duplicate(said: object) -> bool:
    code = getattr(said, "sqlite_errorname", "") or getattr(said, "sqlstate", "")
    return code in ("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "23505")


def _instant(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)
