"""Stores of samples, and of fits to them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from brain.types.job import JobId
from brain.types.telemetry import (
    HostSample,
    Receipt,
    Sample,
    SaveSample,
    TelemetryLosses,
    ThroughputSample,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBucket:
    """One point of a series: the mean, lowest and highest reading in an interval."""

    at: datetime
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBatch:
    """Samples that arrived in one request."""

    samples: tuple[Sample, ...]
    received_at: datetime
    #: Service time less the sender's at the sending of the batch, as measured.
    offset_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SeriesStretch:
    """The metric to read, and the interval from one instant (included) to another (excluded)."""

    metric: str
    since: datetime
    until: datetime


class TelemetryStore(Protocol):
    """Samples, stored exactly once by (source, sent measured_at), in any order of arrival.

    Times are written on the sender's clock and read on service time. The store keeps both: the
    first identifies a sample; the second selects, sorts and retires it, and is the ``measured_at``
    of a sample that is read.
    """

    def add(
        self, samples: Sequence[Sample], *, received_at: datetime, offset_seconds: float = 0.0
    ) -> Receipt:
        """Store new samples; ``duplicates`` counts known ones. Nothing is rejected here.

        ``offset_seconds`` is service time less the sender's when the batch was sent, as measured;
        ``brain.clocks`` has the rules. Each source has its own offset, which begins at zero. A
        measured offset replaces it if the two differ by more than ``clocks.TOLERANCE``; an offset
        within the tolerance of zero counts as zero. A sample newer than all others of its source
        gets the source's present offset, and sorts after them. A late sample gets the offset of its
        time. A stored sample is never moved again.
        """
        ...

    def add_all(self, batches: Sequence[SampleBatch]) -> Sequence[Receipt]:
        """Store several batches as ``add`` does, in order; return one receipt for each batch.

        Batches of new samples are written together, which costs far less than one at a time.
        """
        ...

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        """Return the throughput samples of all workers of a job, oldest first."""
        ...

    def newest(self, job: JobId) -> datetime | None:
        """Return the time of a job's newest throughput sample; None if none is stored."""
        ...

    def last_steps(self, jobs: Collection[JobId]) -> Mapping[tuple[JobId, int], int]:
        """Return the steps of rank 0 in each world of these jobs when the next world formed, by
        epoch.

        Worlds without a sample in the two minutes around that time are left out.
        """
        ...

    def read_ahead(self, ends: Mapping[JobId, datetime], *, window: timedelta) -> None:
        """Read at once the telemetry that lists show of these jobs, in a transaction that stores no
        samples.

        That telemetry is losses, and the samples in the ``window`` before each end or, if a job was
        silent then, before its newest sample.
        """
        ...

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        """Return the completed checkpoints of a job, oldest first."""
        ...

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        """Return the samples of machines on which a job runs or ran, oldest first."""
        ...

    def losses(self, job: JobId) -> TelemetryLosses:
        """Return the telemetry that a job lost: gaps in sequence numbers, and drops that senders
        reported.
        """
        ...

    def lines(
        self, asked: Mapping[JobId, SeriesStretch], *, points: int
    ) -> Mapping[JobId, Sequence[SeriesBucket]]:
        """Return one series per job, as ``series`` defines it; jobs without points are left out."""
        ...

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[SeriesBucket]:
        """Return at most ``points`` buckets of one metric, without empty buckets.

        The interval includes ``since`` and excludes ``until``; a point has the time at which its
        bucket begins. ``brain.series`` has the rules by which readings become points.

        Metrics: ``examples_per_second`` (sum over the workers of a world, ``steps_per_second``
        likewise if no batch size is known), ``steps_per_second``, ``step_seconds``,
        ``data_wait_share``, ``cpu_share``, ``memory_share``, ``gpu_share``, ``gpu_memory_share``,
        ``replicas``. Only the phase ``training`` counts for the first four.

        Raises:
            BadInput: the metric does not exist, or fewer than one point was asked for.
        """
        ...

    def retire(
        self, *, raw_before: datetime, means_before: datetime, hours_before: datetime
    ) -> int:
        """Fold raw samples older than ``raw_before`` into 1-minute means, and those older than
        ``means_before`` into 1-hour means; drop hours that began before ``hours_before``.

        Returns the number of deleted rows. A call after a crash at any point is safe.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFit:
    """A fitted model's parameters as JSON, with the version of the code that wrote them."""

    job: JobId
    kind: str
    parameters: str
    fitted_at: datetime


class FitStore(Protocol):
    """The latest fit per job and kind."""

    def put(self, fit: StoredFit) -> None:
        """Store a fit; it replaces the stored fit of the same job and kind."""
        ...

    def read_ahead(self, jobs: Collection[JobId], kind: str) -> None:
        """Read the fits of one kind of all these jobs with one statement, so that later queries
        about these jobs need none.
        """
        ...

    def get(self, job: JobId, kind: str) -> StoredFit | None:
        """Return the latest fit of this job and kind; None if there is none."""
        ...
