"""Samples into SQLite and PostgreSQL: many batches in one transaction, many rows in one statement.

The row of a source in ``sources`` is locked before its samples are looked at, so that what is known
of it stays so: a sample newer than all that its source had sent is new, and of the others, which
are late or repeated, one question finds those that are known.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from brain import wire
from brain.clocks import SourceClock, corrected
from brain.db import faults, packing, samples
from brain.db.columns import insert, microseconds_of
from brain.ports import SampleBatch
from brain.series import gpu_memory_share, gpu_share
from brain.types.telemetry import (
    HostSample,
    LossSample,
    Receipt,
    Sample,
    SaveSample,
    ThroughputSample,
)

#: Job and source.
Source = tuple[str, str]
Clocks = dict[Source, SourceClock]
_Row = tuple[Any, ...]
#: Kind, job, source and microseconds of the instant as it was sent.
_Identity = tuple[str, str, str, int]
_MICROSECOND = timedelta(microseconds=1)
#: A source that was locked before it was heard has this for its newest instant.
_NEVER = datetime(1, 1, 1, tzinfo=UTC)


class _Kind(NamedTuple):
    """How samples of one kind become rows."""

    name: str
    contexts: sa.Table
    rows: sa.Table
    #: The columns of a context behind id, job, source and skew, and those of a row behind its key.
    context: Callable[[Any], _Row]
    row: Callable[[Any], _Row]


def _of(table: sa.Table, skipped: int, *, placed: bool = False) -> Callable[[Any], _Row]:
    names = [column.name for column in table.c][skipped:]
    paths = [f"place.{name}" if placed and name in _PLACE else name for name in names]
    found = attrgetter(*paths)
    return found if len(paths) > 1 else lambda sample: (found(sample),)


_PLACE = ("replica", "local_rank", "rank", "epoch", "generation")
_node = attrgetter("node", "cpu_capacity_millis", "memory_capacity_bytes")
_host = attrgetter(
    "sequence",
    "cpu_millis",
    "memory_bytes",
    "job_cpu_millis",
    "job_memory_bytes",
    "network_receive_bytes_per_second",
    "network_send_bytes_per_second",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
)


def _host_context(sample: HostSample) -> _Row:
    return (*_node(sample), packing.devices_of(sample.gpus), sample.unavailable)


def _host_row(sample: HostSample) -> _Row:
    return (
        *_host(sample),
        packing.packed_gpus(sample.gpus),
        gpu_share(sample),
        gpu_memory_share(sample),
        packing.packed_storage(sample.storage),
        packing.packed_replicas(sample.replica_readings),
        sample.replica_memory_bytes,
        sample.throttled_share,
    )


def _kind(name: str, contexts: sa.Table, rows: sa.Table, *, placed: bool = False) -> _Kind:
    return _Kind(name, contexts, rows, _of(contexts, 4, placed=placed), _of(rows, 3))


_KINDS: Mapping[type[Sample], _Kind] = {
    ThroughputSample: _kind(
        "throughput", samples.throughput_contexts, samples.throughput_rows, placed=True
    ),
    SaveSample: _kind("save", samples.save_contexts, samples.save_rows, placed=True),
    HostSample: _Kind("host", samples.host_contexts, samples.host_rows, _host_context, _host_row),
    LossSample: _kind("loss", samples.loss_contexts, samples.loss_rows),
}


@dataclass(slots=True)
class Count:
    """What came of one source, as ``sources`` adds it up."""

    heard_at: datetime
    highest: int = -1
    stored: int = 0
    dropped: int = 0

    def add(self, sample: Sample) -> None:
        """Count one sample."""
        self.highest = max(self.highest, sample.sequence)
        self.stored += 1
        if isinstance(sample, LossSample):
            self.dropped += sample.dropped


@dataclass(slots=True)
class _Found:
    """Samples of one batch with their instants; of ``doubtful`` ones some may be known."""

    batch: SampleBatch
    #: Kind, identity, instant on service time in microseconds, sample.
    placed: list[tuple[_Kind, _Identity, int, Sample]] = field(default_factory=list)
    doubtful: set[_Identity] = field(default_factory=set)


def add_all(connection: sa.Connection, batches: Sequence[SampleBatch]) -> list[Receipt]:
    """Store what is new of batches, in their order; one receipt each."""
    clocks = _clocks_of(connection, {_origin(s) for batch in batches for s in batch.samples})
    found = [_placed(batch, clocks) for batch in batches]
    known = _known(connection, set().union(*(each.doubtful for each in found)))
    contexts: dict[_Kind, dict[int, _Row]] = {}
    rows: dict[_Kind, list[_Row]] = {}
    counts: dict[Source, Count] = {}
    receipts = []
    for each in found:
        stored = 0
        for kind, identity, instant, sample in each.placed:
            if identity in known:
                continue
            known.add(identity)
            stored += 1
            _, job, source, sent = identity
            told = (job, source, instant - sent, *kind.context(sample))
            id = _context_id(told)
            contexts.setdefault(kind, {})[id] = told
            slot, within = divmod(instant, samples.SLOT)
            rows.setdefault(kind, []).append((id, slot, within, *kind.row(sample)))
            count = counts.setdefault((job, source), Count(each.batch.received_at))
            count.heard_at = each.batch.received_at
            count.add(sample)
        receipts.append(Receipt(stored=stored, duplicates=len(each.placed) - stored))
    for kind, mine in contexts.items():
        _keep_contexts(connection, kind, mine)
    put = _copy if connection.dialect.name == "postgresql" else _insert
    for kind, new in rows.items():
        put(connection, kind.rows, sorted(new))
    _add_up(connection, counts, clocks)
    return receipts


def _placed(batch: SampleBatch, clocks: Clocks) -> _Found:
    """Give each sample its instant, and move the clocks of its sources on."""
    stamps: dict[Source, list[datetime]] = {}
    for sample in batch.samples:
        stamps.setdefault(_origin(sample), []).append(sample.measured_at)
    offset = timedelta(seconds=batch.offset_seconds)
    newest, instants = {}, {}
    for source, mine in stamps.items():
        clock = clocks.get(source, SourceClock())
        newest[source] = clock.newest
        instants[source], clocks[source] = corrected(clock, mine, offset)
    found = _Found(batch)
    for sample in batch.samples:
        source, stamp = _origin(sample), sample.measured_at
        kind, before = _KINDS[type(sample)], newest[source]
        identity = (kind.name, *source, microseconds_of(stamp))
        if before is not None and stamp <= before[0]:
            found.doubtful.add(identity)
        instant = microseconds_of(instants[source][stamp])
        found.placed.append((kind, identity, instant, sample))
    return found


@lru_cache(maxsize=65_536)
def _context_id(told: _Row) -> int:
    """A digest of what a context holds; of 2^63, so that no two of them are ever alike."""
    return int.from_bytes(blake2b(wire.encode(told), digest_size=8).digest()) >> 1


def _known(connection: sa.Connection, doubtful: set[_Identity]) -> set[_Identity]:
    """Those of some samples that are stored; their sources are locked."""
    if not doubtful:
        return set()
    known: set[_Identity] = set()
    for kind in _KINDS.values():
        asked = sorted(each[1:] for each in doubtful if each[0] == kind.name)
        if asked:
            statement = _KNOWN[connection.dialect.name].format(kind=kind.name, slot=samples.SLOT)
            found = connection.exec_driver_sql(statement, (wire.encode(asked).decode(),))
            known |= {(kind.name, job, source, int(sent)) for job, source, sent in found}
    return known


def _keep_contexts(connection: sa.Connection, kind: _Kind, told: Mapping[int, _Row]) -> None:
    """Store the contexts that are not yet."""
    statement = _CONTEXTS[connection.dialect.name].format(kind=kind.name)
    asked = wire.encode(list(told)).decode()
    kept = {id for (id,) in connection.exec_driver_sql(statement, (asked,))}
    if missing := sorted(told.keys() - kept):
        names = [column.name for column in kind.contexts.c]
        new = [dict(zip(names, (id, *told[id]), strict=True)) for id in missing]
        connection.execute(insert(connection, kind.contexts).on_conflict_do_nothing(), new)


def _add_up(
    connection: sa.Connection, counts: Mapping[Source, Count], clocks: Mapping[Source, SourceClock]
) -> None:
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


def _clocks_of(connection: sa.Connection, wanted: Iterable[Source]) -> Clocks:
    """The clocks of sources that were heard before; all are locked until the transaction ends."""
    asked = sorted(wanted)
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(_CLOCKS_SQLITE, (wire.encode(asked).decode(),))
        return _read(found, _instant)
    # Two batches of one source take turns, or the later could stand before the earlier.
    clocks = _locked(connection, asked)
    if missing := [source for source in asked if source not in clocks]:
        connection.exec_driver_sql(_LOCKED, (_NEVER, _NEVER, _NEVER, wire.encode(missing).decode()))
        # Another one may have been faster.
        clocks |= _locked(connection, missing)
    return {source: clock for source, clock in clocks.items() if clock.newest != (_NEVER, _NEVER)}


def _locked(connection: sa.Connection, asked: Sequence[Source]) -> Clocks:
    given = (wire.encode(asked).decode(),)
    return _read(connection.exec_driver_sql(_CLOCKS_POSTGRESQL, given), _utc)


def _read(found: Iterable[Any], read: Callable[[Any], datetime]) -> Clocks:
    return {
        (job, source): SourceClock(
            offset=timedelta(seconds=seconds), newest=(read(stamp), read(instant))
        )
        for job, source, seconds, stamp, instant in found
    }


def _origin(sample: Sample) -> Source:
    """The job and the source of any sample."""
    if isinstance(sample, ThroughputSample | SaveSample):
        return sample.place.job, sample.place.source
    return sample.job, sample.source


_CLOCKS_SQLITE = """
SELECT s.job, s.source, s.offset_seconds, s.measured_at, s.corrected_at
FROM json_each(?) AS w CROSS JOIN sources AS s
ON s.job = json_extract(w.value, '$[0]') AND s.source = json_extract(w.value, '$[1]')
"""
_ASKED_POSTGRESQL = "json_array_elements(%s::json) AS r"
_CLOCKS_POSTGRESQL = f"""
SELECT job, source, offset_seconds, measured_at, corrected_at FROM sources
WHERE (job, source) IN (SELECT r->>0, r->>1 FROM {_ASKED_POSTGRESQL})
ORDER BY job, source FOR UPDATE
"""
_LOCKED = f"""
INSERT INTO sources (job, source, highest, stored, dropped, offset_seconds,
    heard_at, measured_at, corrected_at)
SELECT r->>0, r->>1, -1, 0, 0, 0, %s, %s, %s FROM {_ASKED_POSTGRESQL}
ON CONFLICT (job, source) DO NOTHING
"""
_KNOWN = {
    "sqlite": """
SELECT c.job, c.source, json_extract(w.value, '$[2]') FROM json_each(?) AS w
CROSS JOIN {kind}_contexts AS c ON c.job = json_extract(w.value, '$[0]')
    AND c.source = json_extract(w.value, '$[1]')
CROSS JOIN {kind}_rows AS r ON r.context = c.id
    AND r.slot = (json_extract(w.value, '$[2]') + c.skew) / {slot}
    AND r.within = (json_extract(w.value, '$[2]') + c.skew) % {slot}
""",
    "postgresql": """
SELECT c.job, c.source, w.sent
FROM (SELECT r->>0 AS job, r->>1 AS source, (r->>2)::int8 AS sent
    FROM json_array_elements(%s::json) AS r) AS w
JOIN {kind}_contexts AS c ON c.job = w.job AND c.source = w.source
JOIN {kind}_rows AS r ON r.context = c.id
    AND r.slot = (w.sent + c.skew) / {slot} AND r.within = (w.sent + c.skew) %% {slot}
""",
}
_CONTEXTS = {
    "sqlite": "SELECT c.id FROM json_each(?) AS w CROSS JOIN {kind}_contexts AS c "
    "ON c.id = w.value",
    "postgresql": "SELECT c.id FROM json_array_elements_text(%s::json) AS w(id) "
    "JOIN {kind}_contexts AS c ON c.id = w.id::int8",
}
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


def _insert(connection: sa.Connection, table: sa.Table, rows: list[_Row]) -> None:
    marks = ", ".join("?" * len(table.c))
    connection.exec_driver_sql(f"INSERT INTO {table.name} VALUES ({marks})", rows)


def _copy(connection: sa.Connection, table: sa.Table, rows: list[_Row]) -> None:
    driver: Any = connection.connection.driver_connection
    statement = f"COPY {table.name} FROM STDIN (FORMAT BINARY)"
    with _translated(connection), driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([_WIRE_TYPES.get(type(column.type), "text") for column in table.c])
        for row in rows:
            copy.write_row(row)


_WIRE_TYPES = {
    sa.BigInteger: "int8",
    sa.Integer: "int4",
    sa.Double: "float8",
    sa.LargeBinary: "bytea",
}


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


def _instant(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)
