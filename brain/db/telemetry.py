"""Samples, each stored once by (source, measured_at), and read by service time."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from brain.clocks import microseconds_of
from brain.db import packing, retention, samples, series, writing
from brain.db.ahead import Heard, KnownSamples
from brain.db.columns import ASKED, Micros, asked_rows, builder, value
from brain.db.samples import (
    host_samples,
    save_samples,
    throughput_contexts,
    throughput_rows,
    throughput_samples,
)
from brain.db.tables import retired_steps, sources, worlds
from brain.ports import SampleBatch, SeriesBucket, SeriesStretch
from brain.types.job import JobId
from brain.types.telemetry import (
    HostSample,
    Receipt,
    Sample,
    SampleSource,
    SaveSample,
    TelemetryLosses,
    ThroughputSample,
)

P = TypeVar("P", bound=ThroughputSample | SaveSample)
_PLACE = tuple(field.name for field in fields(SampleSource))


@dataclass(frozen=True, slots=True)
class _Placed(Generic[P]):
    """A query for samples of one kind, whose rows end with the columns of the place."""

    statement: sa.Select[Any]
    build: Callable[[SampleSource, Sequence[Any]], P]


def _question(
    kind: type[P], table: sa.Subquery, *, of_epoch: bool = False, of_many: bool = False
) -> _Placed[P]:
    names: tuple[str, ...] = tuple(f.name for f in fields(kind) if f.name != "place")
    kept_in: list[str] = ["corrected_at" if name == "measured_at" else name for name in names]
    columns = [table.c[name] for name in (*kept_in, *_PLACE)]
    if of_many:
        return _Placed(_since_asked(table, *columns), builder(kind, "place", names))
    recent = _recent(table, *columns)
    if of_epoch:
        recent = recent.where(table.c.epoch == sa.bindparam("epoch"))
    return _Placed(recent, builder(kind, "place", names))


def _recent(table: sa.Subquery, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return rows of one job since a time."""
    since = samples.since(table, sa.bindparam("since", type_=table.c.corrected_at.type))
    found = sa.select(*columns).where(table.c.job == sa.bindparam("job"), since)
    return found.order_by(table.c.corrected_at, table.c.source)


def _since_asked(table: sa.Subquery, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return rows of many jobs, each since a time of its own."""
    mine = (table.c.job == ASKED.c.job) & samples.since(table, ASKED.c.since_at)
    # PostgreSQL cannot estimate the times in ``ASKED``, and would read all partitions.
    mine &= table.c.slot >= sa.bindparam("first_slot", type_=sa.BigInteger)
    found = sa.select(*columns).select_from(sa.join(ASKED, table, mine))
    return found.order_by(table.c.job, table.c.corrected_at, table.c.source)


_THROUGHPUT = _question(ThroughputSample, throughput_samples)
_THROUGHPUT_OF_EPOCH = _question(ThroughputSample, throughput_samples, of_epoch=True)
_THROUGHPUT_OF_MANY = _question(ThroughputSample, throughput_samples, of_many=True)
_HOSTS = _recent(host_samples, *host_samples.c)
_HOSTS_OF_MANY = _since_asked(host_samples, *host_samples.c)
_SAVES = _question(SaveSample, save_samples)
_newest_row = (
    sa.select(samples.instant_of(throughput_rows))
    .where(throughput_rows.c.context == throughput_contexts.c.id)
    .order_by(throughput_rows.c.slot.desc(), throughput_rows.c.within.desc())
    .limit(1)
    .scalar_subquery()
)
_newest = sa.func.max(_newest_row, type_=Micros())
_NEWEST = sa.select(_newest).where(throughput_contexts.c.job == sa.bindparam("job"))
_NEWEST_OF_EPOCH = _NEWEST.where(throughput_contexts.c.epoch == sa.bindparam("epoch"))
_NEWEST_OF_MANY = sa.select(
    ASKED.c.job,
    sa.select(_newest).where(throughput_contexts.c.job == ASKED.c.job).scalar_subquery(),
)
# In this order of operations the highest numbers do not overflow.
_missing = sources.c.highest - sources.c.stored + 1
_LOSSES = (
    sa.select(
        sources.c.job,
        sa.func.sum(sa.case((_missing > 0, _missing), else_=0)),
        sa.func.sum(sources.c.dropped),
    )
    .where(sources.c.job.in_(sa.bindparam("jobs", expanding=True)))
    .group_by(sources.c.job)
)
_asked_jobs: sa.BindParameter[Any] = sa.bindparam("jobs", expanding=True)
_newest_step = (
    sa.select(throughput_rows.c.step)
    .where(throughput_rows.c.context == throughput_contexts.c.id)
    .order_by(throughput_rows.c.slot.desc(), throughput_rows.c.within.desc())
    .limit(1)
    .scalar_subquery()
)
#: Last steps of rank 0 in each world: of the stored samples, and of the retired ones.
_reached = sa.union_all(
    sa.select(
        throughput_contexts.c.job, throughput_contexts.c.epoch, _newest_step.label("step")
    ).where(throughput_contexts.c.job.in_(_asked_jobs), throughput_contexts.c.rank == 0),
    sa.select(retired_steps.c.job, retired_steps.c.epoch, retired_steps.c.step).where(
        retired_steps.c.job.in_(_asked_jobs)
    ),
).subquery("reached")
_of_worlds = (
    sa.select(_reached.c.job, sa.func.max(_reached.c.step).label("step"))
    .group_by(_reached.c.job, _reached.c.epoch)
    .subquery("of_worlds")
)
_redone = (
    sa.select(worlds.c.job, sa.func.sum(worlds.c.steps_redone).label("steps"))
    .where(worlds.c.job.in_(_asked_jobs))
    .group_by(worlds.c.job)
    .subquery("redone")
)
_STEPS = (
    sa.select(
        _of_worlds.c.job,
        sa.func.sum(_of_worlds.c.step) - sa.func.coalesce(sa.func.max(_redone.c.steps), 0),
    )
    .select_from(_of_worlds.outerjoin(_redone, _redone.c.job == _of_worlds.c.job))
    .where(_of_worlds.c.step.is_not(None))
    .group_by(_of_worlds.c.job)
)
#: Start of the time that was read of a job without samples, which has no earlier ones.
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


class SqlTelemetry:
    """``TelemetryStore``; ``known`` are samples that the transaction has read ahead."""

    def __init__(self, connection: sa.Connection, known: KnownSamples) -> None:
        self._connection = connection
        self._known = known

    def add_all(self, batches: Sequence[SampleBatch]) -> Sequence[Receipt]:
        return writing.add_all(self._connection, batches)

    def add(
        self, samples: Sequence[Sample], *, received_at: datetime, offset_seconds: float = 0.0
    ) -> Receipt:
        batch = SampleBatch(
            samples=tuple(samples), received_at=received_at, offset_seconds=offset_seconds
        )
        return self.add_all([batch])[0]

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        if (known := self._known.throughput_since(job, since, epoch)) is not None:
            return known
        if epoch is None:
            return self._placed(_THROUGHPUT, {"job": job, "since": since})
        return self._placed(_THROUGHPUT_OF_EPOCH, {"job": job, "since": since, "epoch": epoch})

    def newest(self, job: JobId, epoch: int | None = None) -> datetime | None:
        if epoch is None and job in self._known.throughput:
            heard = self._known.throughput[job].samples
            return heard[-1].measured_at if heard else None
        asked = _NEWEST if epoch is None else _NEWEST_OF_EPOCH
        given = {"job": job} if epoch is None else {"job": job, "epoch": epoch}
        found: datetime | None = self._connection.execute(asked, given).scalar_one()
        return found

    def steps(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        found = self._connection.execute(_STEPS, {"jobs": list(jobs)})
        return {job: max(0, int(steps)) for job, steps in found}

    def read_ahead(self, ends: Mapping[JobId, datetime], *, window: timedelta) -> None:
        sinces = {job: end - window for job, end in ends.items()}
        heard = self._heard(sinces)
        newest = self._connection.execute(
            _NEWEST_OF_MANY, asked_rows(_from(sinces[job], job) for job in sinces.keys() - heard)
        )
        silent = {job: at - window for job, at in newest if at is not None}
        heard |= self._heard(silent)
        for job, since in (sinces | silent).items():
            begin = since if job in heard else _EVER
            self._known.throughput[job] = Heard(begin, heard.get(job, ()))
        readings: defaultdict[JobId, list[HostSample]] = defaultdict(list)
        asked = _asked(sinces)
        for found in self._connection.execute(_HOSTS_OF_MANY, asked).mappings():
            readings[found["job"]].append(_host(found))
        self._known.hosts.update((job, (since, readings[job])) for job, since in sinces.items())
        self._known.losses.update(self._losses(ends))

    def _heard(self, sinces: Mapping[JobId, datetime]) -> dict[JobId, list[ThroughputSample]]:
        if not sinces:
            return {}
        asked = _asked(sinces)
        found: defaultdict[JobId, list[ThroughputSample]] = defaultdict(list)
        for sample in self._placed(_THROUGHPUT_OF_MANY, asked):
            found[sample.place.job].append(sample)
        return found

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        return self._placed(_SAVES, {"job": job, "since": since})

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        if (known := self._known.hosts_since(job, since)) is not None:
            return known
        found = self._connection.execute(_HOSTS, {"job": job, "since": since})
        return [_host(each) for each in found.mappings()]

    def losses(self, job: JobId) -> TelemetryLosses:
        return self._known.losses.get(job) or self._losses([job])[job]

    def _losses(self, jobs: Iterable[JobId]) -> Mapping[JobId, TelemetryLosses]:
        asked = list(jobs)
        counted = {
            job: TelemetryLosses.counted(missing=int(missing or 0), dropped=int(dropped or 0))
            for job, missing, dropped in self._connection.execute(_LOSSES, {"jobs": asked})
        }
        return dict.fromkeys(asked, TelemetryLosses(gaps=0, dropped=0)) | counted

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[SeriesBucket]:
        asked = {job: SeriesStretch(metric, since, until)}
        return self.lines(asked, points=points).get(job, [])

    def lines(
        self, asked: Mapping[JobId, SeriesStretch], *, points: int
    ) -> Mapping[JobId, Sequence[SeriesBucket]]:
        return series.lines(self._connection, asked, points=points)

    def make_ready(self, *, now: datetime, keep: timedelta) -> None:
        retention.make_ahead(self._connection, now=now, keep=keep)

    def retire(
        self, *, raw_before: datetime, means_before: datetime, hours_before: datetime
    ) -> int:
        return retention.retire(
            self._connection,
            raw_before=raw_before,
            means_before=means_before,
            hours_before=hours_before,
        )

    def _placed(self, asked: _Placed[P], given: Mapping[str, object]) -> list[P]:
        """Return samples with their places; equal places share one object, to save time."""
        places: dict[Any, SampleSource] = {}
        found: list[P] = []
        rows: Sequence[Any] = self._connection.execute(asked.statement, given).all()
        for columns in rows:
            where = columns[-len(_PLACE) :]
            place = places.get(where)
            if place is None:
                place = places[where] = SampleSource(**dict(zip(_PLACE, where, strict=True)))
            found.append(asked.build(place, columns))
        return found


def _asked(sinces: Mapping[JobId, datetime]) -> Mapping[str, object]:
    first = min((microseconds_of(since) // samples.SLOT for since in sinces.values()), default=0)
    return asked_rows(_from(since, job) for job, since in sinces.items()) | {"first_slot": first}


def _from(since: datetime, job: JobId) -> tuple[JobId, datetime, None, None]:
    return job, since, None, None


def _host(found: Mapping[Any, Any]) -> HostSample:
    unpacked = {
        "measured_at": found["corrected_at"],
        "gpus": packing.gpus_of(found["devices"], found["gpus"]),
        "storage": packing.storage_of(found["storage"]),
        "replica_readings": packing.replicas_of(found["replica_readings"]),
    }
    return value(HostSample, {**found, **unpacked})
