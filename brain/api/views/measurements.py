"""Recent measurements of one job, computed from a few reads of the stores."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property, reduce
from math import sqrt
from statistics import fmean, median, stdev

from brain.errors import Undetermined
from brain.lifecycle.observed import (
    achieved,
    fresh_seconds,
    of_world,
    stale_after_seconds,
    step_medians,
)
from brain.models.fitting import Point as Measured
from brain.ports import SeriesBucket, Transaction
from brain.series import METRICS, MetricReading, buckets
from brain.settings import Settings
from brain.types.job import Job, JobState
from brain.types.recommendation import Prediction
from brain.types.telemetry import Phase, Sample, ThroughputSample
from brain.types.world import World
from brain.views import WorkerView

#: Length of the interval that counts as present, and of the slices that show its scatter.
WINDOW = timedelta(minutes=1)
_SLICES = 12
#: 5th to 95th percentile of a normal, in standard errors.
_NINETY_PERCENT = 1.645
#: Excess of step time over the median of its peers that makes a worker a straggler, as a share.
STRAGGLER = 0.15

#: States in which a job makes steps.
STEPPING = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED})


class RecentMeasurements:
    """The measurements of a job's present world in the minute before ``now``, or in the last steps
    of a slow job.
    """

    def __init__(
        self, tx: Transaction, job: Job, world: World | None, settings: Settings, now: datetime
    ) -> None:
        self._tx, self._job, self._world, self._now = tx, job, world, now
        self._settings = settings
        heard = self._heard()
        self._newest = heard[-1] if heard else None
        epoch = None if world is None else world.epoch
        self._samples = [s for s in heard if s.place.epoch == epoch]
        #: Age from which the newest sample is stale.
        self.stale_after_seconds = stale_after_seconds(self._newest, settings)
        self._window = max(WINDOW, timedelta(seconds=fresh_seconds(self._newest)))
        self._recent = [s for s in self._samples if s.measured_at >= now - self._window]
        self._hosts = tx.telemetry.hosts(job.id, since=now - WINDOW) if self.stepping else ()

    @property
    def stepping(self) -> bool:
        """Return True if the job's state is one in which the job makes steps."""
        return self._job.state in STEPPING

    @property
    def measured(self) -> bool:
        """Return True if any raw sample of the job is stored."""
        return self._newest is not None

    @property
    def unit(self) -> str:
        return "steps/s" if self.metric == "steps_per_second" else "examples/s"

    @property
    def metric(self) -> str:
        """Return the name of the metric that shows the job's throughput."""
        known = self._samples or ([self._newest] if self._newest else [])
        without = known and all(sample.examples_per_second is None for sample in known)
        return "steps_per_second" if without else "examples_per_second"

    @cached_property
    def unsure(self) -> bool:
        """Return True if the last minute has too few samples for a decision, so that more samples
        are needed.
        """
        return bool(self._recent) and isinstance(self._lately, Undetermined)

    def throughput(self) -> Prediction | None:
        """Return the throughput of the world with its 90 % interval, in the unit of ``unit``; None
        if nothing was measured.

        The throughput is measured in the same way as for decisions. If there are too few steps for
        that, it is the mean over slices of the last minute.
        """
        found = self._achieved()
        counts_steps = self.metric == "steps_per_second"
        if isinstance(found, Measured) and counts_steps == (found.examples_per_step is None):
            return found.measured
        points = self._slices() if self.stepping else ()
        if not points:
            return None
        means = [point.mean for point in points]
        mean = fmean(means)
        if len(means) < 2:
            return Prediction(examples_per_second=mean, low=points[0].low, high=points[0].high)
        half = _NINETY_PERCENT * stdev(means) / sqrt(len(means))
        return Prediction(examples_per_second=mean, low=max(0.0, mean - half), high=mean + half)

    @cached_property
    def _lately(self) -> Measured | Undetermined | None:
        """The throughput by the samples of the last minute."""
        if not self.stepping or self._world is None:
            return None
        alone = self._job.document.independent
        return achieved(self._recent, self._settings, independent=alone)

    def _achieved(self) -> Measured | Undetermined | None:
        if not self.unsure or self._world is None:
            return self._lately
        tx, job, world = self._tx, self._job, self._world
        return of_world(tx, job, world, settings=self._settings, now=self._now)[1]

    def share(self, metric: str) -> float | None:
        """Return the mean of a metric whose values are fractions (0 to 1), over the last minute, or
        over three steps if they take longer; None if nothing was measured.
        """
        of_workers = metric == "data_wait_share"
        samples: Sequence[Sample] = self._recent if of_workers else self._hosts
        found = [one for one in map(METRICS[metric], samples) if one] if self.stepping else []
        if not found:
            return None
        mean = reduce(MetricReading.joined, found).mean
        return min(1.0, mean) if of_workers else mean

    def age_seconds(self, now: datetime) -> float | None:
        """Return the seconds since the newest stored raw sample; never negative."""
        if self._newest is None:
            return None
        return max(0.0, (now - self._newest.measured_at).total_seconds())

    def step_seconds(self) -> float | None:
        """Return the seconds per step of rank 0 in the last minute."""
        last = self._last()
        return None if last is None else last.step_seconds_mean

    def workers(self) -> tuple[WorkerView, ...]:
        """Return each worker's step time and its deviation from the workers' median, by rank."""
        ranks: defaultdict[int, list[ThroughputSample]] = defaultdict(list)
        for sample in self._recent:
            if sample.phase is Phase.TRAINING:
                ranks[sample.place.rank].append(sample)
        if not ranks or self._world is None:
            return ()
        times = step_medians(ranks)
        typical = median(times.values())
        nodes = {member.replica: member.node for member in self._world.members}
        elsewhere = self._world.members[0].node
        return tuple(
            WorkerView(
                rank=rank,
                replica=ranks[rank][-1].place.replica,
                local_rank=ranks[rank][-1].place.local_rank,
                node=nodes.get(ranks[rank][-1].place.replica, elsewhere),
                step_seconds=seconds,
                deviation=seconds / typical - 1,
                straggler=seconds > typical * (1 + STRAGGLER),
            )
            for rank, seconds in sorted(times.items())
        )

    def straggler(self) -> WorkerView | None:
        """Return the first worker by rank that is much slower than the median worker, if any; a
        single worker has no others to compare.
        """
        if len({sample.place.rank for sample in self._recent}) < 2:
            return None
        return next((worker for worker in self.workers() if worker.straggler), None)

    def _heard(self) -> Sequence[ThroughputSample]:
        """Return the samples of the last minute, or else of the last minute that has any."""
        if self._world is None:
            return ()
        job, telemetry = self._job.id, self._tx.telemetry
        if samples := telemetry.throughput(job, since=self._now - WINDOW):
            return samples
        newest = telemetry.newest(job)
        return () if newest is None else telemetry.throughput(job, since=newest - WINDOW)

    def _last(self) -> ThroughputSample | None:
        return next((s for s in reversed(self._samples) if s.place.rank == 0), None)

    def _slices(self) -> Sequence[SeriesBucket]:
        """Return the throughput in slices of the last minute, by the rules of every store."""
        since = self._now - self._window
        drawn = buckets(self.metric, since=since, until=self._now, points=_SLICES)
        read = METRICS[self.metric]
        found = [(drawn.index(sample.measured_at), read(sample)) for sample in self._recent]
        # The instant ``now`` itself belongs to the last slice.
        last = _SLICES - 1
        return drawn.drawn((min(i, last), one) for i, one in found if one is not None)
