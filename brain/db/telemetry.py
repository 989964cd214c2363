"""Samples: one table per kind, each exactly once by (source, measured_at)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from brain.db import retention
from brain.db.columns import insert, insert_new, row, value
from brain.db.tables import host_samples, loss_samples, save_samples, sources, throughput_samples
from brain.ports import Point
from brain.series import gpu_memory_share, gpu_share
from brain.types.job import JobId
from brain.types.telemetry import (
    HostSample,
    Losses,
    LossSample,
    Place,
    Receipt,
    Sample,
    SaveSample,
    ThroughputSample,
)


def _placed_row(sample: ThroughputSample | SaveSample) -> dict[str, Any]:
    given = row(sample)
    return given | row(given.pop("place"))


def _host_row(sample: HostSample) -> dict[str, Any]:
    shares = {"gpu_share": gpu_share(sample), "gpu_memory_share": gpu_memory_share(sample)}
    return row(sample) | shares


class _Kind(NamedTuple):
    """Where a kind of sample is kept, and how one becomes a row."""

    table: sa.Table
    row: Callable[[Any], dict[str, Any]]


_KINDS: Mapping[type[Sample], _Kind] = {
    ThroughputSample: _Kind(throughput_samples, _placed_row),
    SaveSample: _Kind(save_samples, _placed_row),
    HostSample: _Kind(host_samples, _host_row),
    LossSample: _Kind(loss_samples, row),
}


class SqlTelemetry:
    """``TelemetryStore``."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, samples: Sequence[Sample], *, received_at: datetime) -> Receipt:
        by_kind: dict[type[Sample], list[Sample]] = defaultdict(list)
        for sample in samples:
            by_kind[type(sample)].append(sample)
        fresh = [each for kind, mine in by_kind.items() for each in self._store(kind, mine)]
        self._count(fresh, received_at)
        return Receipt(stored=len(fresh), duplicates=len(samples) - len(fresh))

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        mine = _since(throughput_samples, job, since)
        wanted = mine if epoch is None else mine.where(throughput_samples.c.epoch == epoch)
        return [_placed(ThroughputSample, found) for found in self._rows(wanted)]

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        return [
            _placed(SaveSample, found) for found in self._rows(_since(save_samples, job, since))
        ]

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        return [value(HostSample, found) for found in self._rows(_since(host_samples, job, since))]

    def losses(self, job: JobId) -> Losses:
        missing = sources.c.highest + 1 - sources.c.stored
        totals = sa.select(
            sa.func.sum(sa.case((missing > 0, missing), else_=0)), sa.func.sum(sources.c.dropped)
        )
        gaps, dropped = self._connection.execute(totals.where(sources.c.job == job)).one()
        return Losses(gaps=int(gaps or 0), dropped=int(dropped or 0))

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[Point]:
        return retention.series(
            self._connection, job, metric, since=since, until=until, points=points
        )

    def retire(self, *, raw_before: datetime, means_before: datetime) -> int:
        return retention.retire(self._connection, raw_before=raw_before, means_before=means_before)

    def _store(
        self, kind: type[Sample], samples: Iterable[Sample]
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Store samples of one kind and return the rows that are new."""
        table, as_row = _KINDS[kind]
        # In one order for everybody, so that two batches of the same samples cannot wait for
        # each other in a circle.
        rows = sorted(map(as_row, samples), key=lambda each: (each["source"], each["measured_at"]))
        dropped = table.c.dropped if kind is LossSample else sa.literal(0)
        counted = (table.c.job, table.c.source, table.c.sequence, dropped)
        return insert_new(self._connection, table, rows, *counted)

    def _count(self, fresh: Iterable[sa.Row[*tuple[Any, ...]]], received_at: datetime) -> None:
        counted: dict[tuple[str, str], dict[str, Any]] = {}
        for job, source, sequence, dropped in fresh:
            seen = counted.setdefault(
                (job, source), {"highest": sequence, "stored": 0, "dropped": 0}
            )
            seen["highest"] = max(seen["highest"], sequence)
            seen["stored"] += 1
            seen["dropped"] += dropped
        if not counted:
            return
        statement = insert(self._connection, sources)
        new, known = statement.excluded, sources.c
        added = statement.on_conflict_do_update(
            index_elements=[known.job, known.source],
            set_={
                "highest": sa.case((new.highest > known.highest, new.highest), else_=known.highest),
                "stored": known.stored + new.stored,
                "dropped": known.dropped + new.dropped,
                "heard_at": new.heard_at,
            },
        )
        rows = [
            {"job": job, "source": source, "heard_at": received_at, **seen}
            for (job, source), seen in sorted(counted.items())
        ]
        self._connection.execute(added, rows)

    def _rows(self, statement: sa.Select[Any]) -> sa.MappingResult:
        return self._connection.execute(statement).mappings()


def _since(table: sa.Table, job: JobId, since: datetime) -> sa.Select[Any]:
    recent = sa.select(table).where(table.c.job == job, table.c.measured_at >= since)
    return recent.order_by(table.c.measured_at, table.c.source)


def _placed(kind: type[Any], found: Mapping[Any, Any]) -> Any:
    return value(kind, {**found, "place": value(Place, found)})
