"""Writes samples to SQLite and PostgreSQL: many batches per transaction, many rows per statement.

A writer locks the row of a source in ``sources`` before it compares samples, so that no other
writer adds samples of that source meanwhile. A sample that is newer than all stored samples of its
source must be new. Older samples are late or repeated; one query finds those that are already
stored.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from brain import wire
from brain.clocks import SourceClock, corrected, microseconds_of
from brain.db import faults, packing, sources
from brain.db import samples as tables
from brain.db.columns import insert
from brain.db.samples import SLOT
from brain.db.sources import Clocks, Count, Source
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

_Row = tuple[Any, ...]
#: Kind, job, source, and microseconds of the time that was sent.
_Identity = tuple[str, str, str, int]


class _Kind(NamedTuple):
    """The conversion of samples of one kind into rows."""

    name: str
    contexts: sa.Table
    rows: sa.Table
    #: Columns of a context after id, job, source and skew, and columns of a row after its key.
    context: Callable[[Any], _Row]
    row: Callable[[Any], _Row]


def _of(table: sa.Table, skipped: int, *, placed: bool = False) -> Callable[[Any], _Row]:
    names = [column.name for column in table.c][skipped:]
    paths = [f"place.{name}" if placed and name in _PLACE else name for name in names]
    found = attrgetter(*paths)
    return found if len(paths) > 1 else lambda sample: (found(sample),)


_NEW = SourceClock()
#: Samples of workers, whose job and source are in their ``place``.
_PLACED = (ThroughputSample, SaveSample)
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
        "throughput", tables.throughput_contexts, tables.throughput_rows, placed=True
    ),
    SaveSample: _kind("save", tables.save_contexts, tables.save_rows, placed=True),
    HostSample: _Kind("host", tables.host_contexts, tables.host_rows, _host_context, _host_row),
    LossSample: _kind("loss", tables.loss_contexts, tables.loss_rows),
}


class _Group(NamedTuple):
    """The samples of one kind and source in a batch."""

    kind: _Kind
    source: Source
    samples: Sequence[Sample]
    #: Times of each sample in microseconds: as sent, and on service time.
    instants: Sequence[tuple[int, int]]
    #: True if all samples are newer than all earlier ones of the source, and distinct, so that none
    #: can be known.
    fresh: bool

    @property
    def identities(self) -> Sequence[_Identity]:
        return [(self.kind.name, *self.source, sent) for sent, _ in self.instants]


@dataclass(slots=True)
class _Writing:
    """Rows that a transaction writes."""

    contexts: dict[_Kind, dict[int, _Row]] = field(default_factory=dict)
    rows: dict[_Kind, list[_Row]] = field(default_factory=dict)
    counts: dict[Source, Count] = field(default_factory=dict)

    def add(
        self,
        group: _Group,
        samples: Sequence[Sample],
        instants: Iterable[tuple[int, int]],
        heard_at: datetime,
    ) -> None:
        """Add the samples of a group that are new."""
        kind, source = group.kind, group.source
        contexts = self.contexts.setdefault(kind, {})
        rows = self.rows.setdefault(kind, [])
        context, row = kind.context, kind.row
        last, id = None, 0
        for sample, (sent, instant) in zip(samples, instants, strict=True):
            told = (*source, instant - sent, *context(sample))
            if told != last:
                last, id = told, _context_id(told)
                contexts[id] = told
            rows.append((id, *divmod(instant, SLOT), *row(sample)))
        count = self.counts.setdefault(source, Count(heard_at))
        count.heard_at = heard_at
        count.add(samples)


def add_all(connection: sa.Connection, batches: Sequence[SampleBatch]) -> list[Receipt]:
    """Store the new samples of batches, in the batches' order; return a receipt for each batch."""
    divided = [_by_source(batch.samples) for batch in batches]
    clocks = sources.clocks_of(connection, set().union(*divided))
    placed = [_placed(batch, mine, clocks) for batch, mine in zip(batches, divided, strict=True)]
    doubtful = {
        each
        for groups in placed
        for group in groups
        if not group.fresh
        for each in group.identities
    }
    known = _known(connection, doubtful)
    writing, receipts = _Writing(), []
    for batch, groups in zip(batches, placed, strict=True):
        stored = 0
        for group in groups:
            samples, instants = group.samples, group.instants
            if doubtful:
                new = _new(group, known)
                samples, instants = [samples[i] for i in new], [instants[i] for i in new]
            if samples:
                writing.add(group, samples, instants, batch.received_at)
            stored += len(samples)
        receipts.append(Receipt(stored=stored, duplicates=len(batch.samples) - stored))
    _write(connection, writing, clocks)
    return receipts


def _write(connection: sa.Connection, writing: _Writing, clocks: Clocks) -> None:
    for kind, mine in writing.contexts.items():
        _keep_contexts(connection, kind, mine)
    put = _copy if connection.dialect.name == "postgresql" else _insert
    for kind, new in writing.rows.items():
        put(connection, kind.rows, sorted(new))
    sources.add_up(connection, writing.counts, clocks)


def _new(group: _Group, known: set[_Identity]) -> list[int]:
    """Return the positions of the new samples, and mark those as known."""
    new = []
    for index, identity in enumerate(group.identities):
        if identity not in known:
            known.add(identity)
            new.append(index)
    return new


def _by_source(samples: Iterable[Sample]) -> dict[Source, dict[type[Sample], list[Sample]]]:
    """Return the samples by source and kind, each list in its order."""
    divided: dict[Source, dict[type[Sample], list[Sample]]] = {}
    for sample in samples:
        kinds = divided.setdefault(_origin(sample), {})
        kinds.setdefault(type(sample), []).append(sample)
    return divided


def _placed(
    batch: SampleBatch,
    divided: Mapping[Source, Mapping[type[Sample], Sequence[Sample]]],
    clocks: Clocks,
) -> list[_Group]:
    """Give each sample its service time, and advance the clocks of its sources."""
    offset, groups = round(batch.offset_seconds * 1e6), []
    for source, kinds in divided.items():
        clock = clocks.get(source, _NEW)
        stamps = [[microseconds_of(each.measured_at) for each in mine] for mine in kinds.values()]
        everything = stamps[0] if len(stamps) == 1 else [at for mine in stamps for at in mine]
        instants, clocks[source] = corrected(clock, everything, offset)
        fresh = clock.newest is None or min(everything) > clock.newest[0]
        for (kind, mine), sent in zip(kinds.items(), stamps, strict=True):
            own = [(at, instants[at]) for at in sent]
            apart = len(set(sent)) == len(sent)
            groups.append(_Group(_KINDS[kind], source, mine, own, fresh and apart))
    return groups


@lru_cache(maxsize=65_536)
def _context_id(told: _Row) -> int:
    """Return a 63-bit digest of a context's fields; two contexts practically never share one."""
    return int.from_bytes(blake2b(wire.encode(told), digest_size=8).digest()) >> 1


def _known(connection: sa.Connection, doubtful: set[_Identity]) -> set[_Identity]:
    """Return the identities of samples that are stored already; their sources are locked."""
    if not doubtful:
        return set()
    known: set[_Identity] = set()
    for kind in _KINDS.values():
        asked = sorted(each[1:] for each in doubtful if each[0] == kind.name)
        if asked:
            statement = _KNOWN[connection.dialect.name].format(kind=kind.name, slot=SLOT)
            found = connection.exec_driver_sql(statement, (wire.encode(asked).decode(),))
            known |= {(kind.name, job, source, int(sent)) for job, source, sent in found}
    return known


def _keep_contexts(connection: sa.Connection, kind: _Kind, told: Mapping[int, _Row]) -> None:
    """Store the contexts that are not stored yet."""
    statement = _CONTEXTS[connection.dialect.name].format(kind=kind.name)
    asked = wire.encode(list(told)).decode()
    kept = {id for (id,) in connection.exec_driver_sql(statement, (asked,))}
    if missing := sorted(told.keys() - kept):
        names = [column.name for column in kind.contexts.c]
        new = [dict(zip(names, (id, *told[id]), strict=True)) for id in missing]
        connection.execute(insert(connection, kind.contexts).on_conflict_do_nothing(), new)


def _origin(sample: Sample) -> Source:
    """Return the job and the source of any sample."""
    if isinstance(sample, _PLACED):
        return sample.place.job, sample.place.source
    return sample.job, sample.source


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


def _insert(connection: sa.Connection, table: sa.Table, rows: list[_Row]) -> None:
    # The driver binds None several times slower than a number, and most rows end with Nones.
    shortened: defaultdict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        width = len(row)
        while row[width - 1] is None:
            width -= 1
        shortened[width].append(row[:width])
    for width, mine in shortened.items():
        names = ", ".join(f'"{name}"' for name in table.c.keys()[:width])
        marks = ", ".join("?" * width)
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", mine)


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
    """Translate the driver's errors as ``faults`` does, because SQLAlchemy does not see a COPY."""

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
