"""Stores of samples, and of the models that were fitted to samples."""

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
    #: The service's clock minus the sender's, measured when the batch was sent.
    offset_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SeriesStretch:
    """A metric, and the interval to read: it includes its first instant and excludes its last."""

    metric: str
    since: datetime
    until: datetime


class TelemetryStore(Protocol):
    """Stores samples. A sample that a source sends twice is stored once; samples may arrive in any
    order.

    The store keeps two times of each sample. The time by the sender's clock identifies the sample.
    The time by the service's clock decides which queries select the sample, where it is sorted, and
    when ``retire`` replaces it; readers get this time as ``measured_at``.
    """

    def add(
        self, samples: Sequence[Sample], *, received_at: datetime, offset_seconds: float = 0.0
    ) -> Receipt:
        """Store new samples and reject none; the receipt's ``duplicates`` counts samples stored
        before.

        ``offset_seconds`` is the service's clock minus the sender's, measured when the batch was
        sent; ``brain.clocks`` has the rules. Each source has its own offset, which begins at zero.
        A measured offset replaces the source's offset if they differ by more than
        ``clocks.TOLERANCE``; a measured offset within this tolerance of zero counts as zero. A
        sample that is newer than all others of its source gets the source's present offset, and
        sorts after the others. A late sample gets the offset that its source had when the sample
        was measured. The time of a stored sample never changes.
        """
        ...

    def add_all(self, batches: Sequence[SampleBatch]) -> Sequence[Receipt]:
        """Store several batches as ``add`` does, in order; return one receipt for each batch.

        Batches of new samples are written together, which costs far less than writing each batch by
        itself.
        """
        ...

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        """Return the throughput samples of all workers of a job, oldest first."""
        ...

    def newest(self, job: JobId, epoch: int | None = None) -> datetime | None:
        """Return the time of the newest throughput sample of a job, or of one of its worlds; None
        if none is stored.
        """
        ...

    def steps(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        """Return the optimizer steps of each job in all its worlds, with repeated steps counted
        once; jobs without a sample of rank 0 are left out.

        A world counts the last step that rank 0 reported, even after its samples were deleted.
        """
        ...

    def read_ahead(self, ends: Mapping[JobId, datetime], *, window: timedelta) -> None:
        """Read ahead, with few statements, the telemetry that is shown in lists of jobs; the
        transaction must store no samples.

        This telemetry is the numbers of lost samples (``losses``), and the stored samples in the
        ``window`` before each job's end. For a job without samples in that time, the samples in the
        ``window`` before the job's newest sample are read.
        """
        ...

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        """Return the completed checkpoints of a job, oldest first."""
        ...

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        """Return a job's samples of the machines on which it ran, oldest first."""
        ...

    def losses(self, job: JobId) -> TelemetryLosses:
        """Return how many samples of a job are missing, and how many were reported as lost."""
        ...

    def lines(
        self, asked: Mapping[JobId, SeriesStretch], *, points: int
    ) -> Mapping[JobId, Sequence[SeriesBucket]]:
        """Return, for each job, at most ``points`` buckets of one metric, without empty buckets;
        leave out jobs that have no bucket.
        """
        ...

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[SeriesBucket]:
        """Return at most ``points`` buckets of one metric, without empty buckets.

        The interval includes ``since`` and excludes ``until``; the time of a bucket is its
        beginning. ``brain.series`` has the rules that turn readings into buckets.

        Metrics: ``examples_per_second``, ``steps_per_second``, ``step_seconds``,
        ``data_wait_share``, ``cpu_share``, ``memory_share``, ``gpu_share``, ``gpu_memory_share``,
        ``replicas``. ``examples_per_second`` is the sum over the workers of a world; if no batch
        size is known, it is the sum of ``steps_per_second``. The first four metrics are computed
        only from windows of the phase ``training``.

        Raises:
            BadInput: the metric does not exist, or ``points`` is below 1.
        """
        ...

    def make_ready(self, *, now: datetime, keep: timedelta) -> None:
        """Make room for the samples of the next hours, which are stored for about ``keep``.

        Samples are also stored without this call, but then their retirement takes longer.
        """
        ...

    def retire(
        self, *, raw_before: datetime, means_before: datetime, hours_before: datetime
    ) -> int:
        """Replace samples older than ``raw_before`` by 1-minute means, and 1-minute means older
        than ``means_before`` by 1-hour means; delete 1-hour means from before ``hours_before``.

        Return the number of deleted rows. After a crash at any point, the next call continues. A
        store that retires samples of several hours together keeps them up to that much longer.
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
    """The latest fit of each kind of model for each job."""

    def put(self, fit: StoredFit) -> None:
        """Store a fit; it replaces the stored fit of the same job and kind."""
        ...

    def read_ahead(self, jobs: Collection[JobId], *kinds: str) -> None:
        """Read the fits of these kinds of all these jobs with one SQL statement, so that later
        queries about these fits run no statement.
        """
        ...

    def get(self, job: JobId, kind: str) -> StoredFit | None:
        """Return the latest fit of this job and kind; None if there is none."""
        ...
