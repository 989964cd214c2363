"""Stores samples, and their means over minutes and hours, in dictionaries."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TypeVar

from brain.clocks import SourceClock, at_microseconds, corrected, microseconds_of
from brain.inmemory.rows import Rows
from brain.ports import SampleBatch, SeriesBucket, SeriesStretch
from brain.series import METRICS, MetricReading, buckets
from brain.types.job import JobId
from brain.types.telemetry import (
    HostSample,
    LossSample,
    Receipt,
    Sample,
    SaveSample,
    SourceId,
    TelemetryLosses,
    ThroughputSample,
)
from brain.types.world import World

S = TypeVar("S", bound=Sample)

#: Identity of a sample within its job: its source, and its time as sent.
Identity = tuple[type[Sample], SourceId, datetime]
#: A job, a metric, and the beginning of a minute or an hour.
MeanKey = tuple[JobId, str, datetime]


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts and the clock of one source, with which gaps are detected even after its samples
    were deleted.
    """

    highest: int = -1
    stored: int = 0
    dropped: int = 0
    clock: SourceClock = field(default_factory=SourceClock)

    def with_one(self, sample: Sample, clock: SourceClock) -> "Counted":
        told = sample.dropped if isinstance(sample, LossSample) else 0
        highest = max(self.highest, sample.sequence)
        return Counted(highest, self.stored + 1, self.dropped + told, clock)


class MemoryTelemetry:
    """``TelemetryStore`` that keeps each job's samples in a dictionary."""

    def __init__(
        self,
        samples: Rows[JobId, Mapping[Identity, Sample]],
        sources: Rows[tuple[JobId, SourceId], Counted],
        retired: Rows[tuple[JobId, int], int],
        minutes: Rows[MeanKey, MetricReading],
        hours: Rows[MeanKey, MetricReading],
        worlds: Rows[JobId, Mapping[int, World]],
    ) -> None:
        self._samples = samples
        self._sources = sources
        self._retired = retired
        self._minutes = minutes
        self._hours = hours
        self._worlds = worlds

    def add(
        self, samples: Sequence[Sample], *, received_at: datetime, offset_seconds: float = 0.0
    ) -> Receipt:
        clocks = self._corrected(samples, round(offset_seconds * 1e6))
        fresh: dict[JobId, dict[Identity, Sample]] = {}
        stored = 0
        for sample in samples:
            job, source = origin(sample)
            mine = fresh.setdefault(job, {})
            identity = (type(sample), source, sample.measured_at)
            if identity in mine or identity in self._samples.get(job, {}):
                continue
            instants, clock = clocks[job, source]
            instant = at_microseconds(instants[microseconds_of(sample.measured_at)])
            mine[identity] = replace(sample, measured_at=instant)
            self._sources[job, source] = self._counted(job, source).with_one(sample, clock)
            stored += 1
        for job, new in fresh.items():
            self._samples[job] = {**self._samples.get(job, {}), **new}
        return Receipt(stored=stored, duplicates=len(samples) - stored)

    def add_all(self, batches: Sequence[SampleBatch]) -> Sequence[Receipt]:
        return [
            self.add(
                batch.samples,
                received_at=batch.received_at,
                offset_seconds=batch.offset_seconds,
            )
            for batch in batches
        ]

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        samples = self._since(ThroughputSample, job, since)
        return [each for each in samples if epoch is None or each.place.epoch == epoch]

    def newest(self, job: JobId, epoch: int | None = None) -> datetime | None:
        mine = self._samples.get(job, {}).values()
        heard = (each for each in mine if isinstance(each, ThroughputSample))
        wanted = (each for each in heard if epoch is None or each.place.epoch == epoch)
        return max((each.measured_at for each in wanted), default=None)

    def steps(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        found: dict[JobId, int] = {}
        for job in jobs:
            last = {epoch: step for (owner, epoch), step in self._retired.items() if owner == job}
            for sample in self._samples.get(job, {}).values():
                if isinstance(sample, ThroughputSample) and sample.place.rank == 0:
                    epoch = sample.place.epoch
                    last[epoch] = max(sample.step, last.get(epoch, 0))
            if last:
                redone = sum(w.steps_redone or 0 for w in self._worlds.get(job, {}).values())
                found[job] = max(0, sum(last.values()) - redone)
        return found

    def read_ahead(self, ends: Mapping[JobId, datetime], *, window: timedelta) -> None:
        """Do nothing: dictionaries need no reading ahead."""

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        return self._since(SaveSample, job, since)

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        return self._since(HostSample, job, since)

    def losses(self, job: JobId) -> TelemetryLosses:
        mine = [counted for (owner, _), counted in self._sources.items() if owner == job]
        return TelemetryLosses.counted(
            missing=sum(max(0, each.highest + 1 - each.stored) for each in mine),
            dropped=sum(each.dropped for each in mine),
        )

    def lines(
        self, asked: Mapping[JobId, SeriesStretch], *, points: int
    ) -> Mapping[JobId, Sequence[SeriesBucket]]:
        drawn = {
            job: self.series(job, it.metric, since=it.since, until=it.until, points=points)
            for job, it in asked.items()
        }
        return {job: points_ for job, points_ in drawn.items() if points_}

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[SeriesBucket]:
        drawn = buckets(metric, since=since, until=until, points=points)
        seen = [*self._raw(job, metric), *self._folded(job, metric)]
        return drawn.drawn((drawn.index(at), it) for at, it in seen if since <= at < until)

    def make_ready(self, *, now: datetime, keep: timedelta) -> None:
        """Do nothing: dictionaries have no partitions."""

    def retire(
        self, *, raw_before: datetime, means_before: datetime, hours_before: datetime
    ) -> int:
        gone = sum(self._fold(job, raw_before, means_before) for job in list(self._samples))
        minutes = [key for key in self._minutes if key[2] < means_before]
        for job, metric, at in minutes:
            hour = (job, metric, at.replace(minute=0))
            _join(self._hours, hour, self._minutes[job, metric, at])
            del self._minutes[job, metric, at]
        hours = [key for key in self._hours if key[2] < hours_before]
        for key in hours:
            del self._hours[key]
        return gone + len(minutes) + len(hours)

    def _corrected(
        self, samples: Iterable[Sample], offset: int
    ) -> Mapping[tuple[JobId, SourceId], tuple[Mapping[int, int], SourceClock]]:
        stamps: defaultdict[tuple[JobId, SourceId], list[int]] = defaultdict(list)
        for sample in samples:
            stamps[origin(sample)].append(microseconds_of(sample.measured_at))
        return {
            whose: corrected(self._counted(*whose).clock, mine, offset)
            for whose, mine in stamps.items()
        }

    def _counted(self, job: JobId, source: SourceId) -> Counted:
        return self._sources.get((job, source), Counted())

    def _since(self, kind: type[S], job: JobId, since: datetime) -> list[S]:
        found = [
            sample
            for sample in self._samples.get(job, {}).values()
            if isinstance(sample, kind) and sample.measured_at >= since
        ]
        return sorted(found, key=lambda sample: (sample.measured_at, origin(sample)[1]))

    def _raw(self, job: JobId, metric: str) -> Iterator[tuple[datetime, MetricReading]]:
        for sample in self._samples.get(job, {}).values():
            reading = METRICS[metric](sample)
            if reading is not None:
                yield sample.measured_at, reading

    def _folded(self, job: JobId, metric: str) -> Iterator[tuple[datetime, MetricReading]]:
        for (owner, name, at), reading in chain(self._minutes.items(), self._hours.items()):
            if (owner, name) == (job, metric):
                yield at, reading

    def _fold(self, job: JobId, raw_before: datetime, means_before: datetime) -> int:
        kept: dict[Identity, Sample] = {}
        for identity, sample in self._samples[job].items():
            # Saves are few and show how a job checkpoints; they stay as long as the means.
            limit = means_before if isinstance(sample, SaveSample) else raw_before
            if sample.measured_at >= limit:
                kept[identity] = sample
                continue
            if isinstance(sample, ThroughputSample) and sample.place.rank == 0:
                world = job, sample.place.epoch
                self._retired[world] = max(sample.step, self._retired.get(world, 0))
            for metric, read in METRICS.items():
                reading = read(sample)
                if reading is not None:
                    minute = sample.measured_at.replace(second=0, microsecond=0)
                    _join(self._minutes, (job, metric, minute), reading)
        gone = len(self._samples[job]) - len(kept)
        if gone:
            self._samples[job] = kept
        return gone


def _join(means: Rows[MeanKey, MetricReading], key: MeanKey, reading: MetricReading) -> None:
    known = means.get(key)
    means[key] = reading if known is None else known.joined(reading)


def origin(sample: Sample) -> tuple[JobId, SourceId]:
    if isinstance(sample, ThroughputSample | SaveSample):
        return sample.place.job, sample.place.source
    return sample.job, sample.source
