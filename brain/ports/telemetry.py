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
    """One bucket of a series: of a metric over time, downsampled for a pixel width."""

    at: datetime
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBatch:
    """Samples that came together."""

    samples: tuple[Sample, ...]
    received_at: datetime
    #: Service time less the sender's when the batch was sent, as measured.
    offset_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SeriesStretch:
    """A metric from one instant to another."""

    metric: str
    since: datetime
    until: datetime


class TelemetryStore(Protocol):
    """Samples, exactly once by (source, measured_at as it was sent), in whatever order they come.

    Instants go in as the sender's clock had them and come out on service time. The store keeps
    both: by the first it knows a sample again; by the second it selects, sorts and retires, and
    ``measured_at`` of a sample that it hands out is the second.
    """

    def add(
        self, samples: Sequence[Sample], *, received_at: datetime, offset_seconds: float = 0.0
    ) -> Receipt:
        """Store what is new; ``duplicates`` counts what was known. Nothing is rejected here.

        ``offset_seconds`` is service time less the sender's when the batch was sent, as measured;
        ``brain.clocks`` says what becomes of it. Each source keeps its own offset, begins with
        none, and moves to a measured one from which it differs by more than ``clocks.TOLERANCE``;
        what is within that of zero counts as none. Samples newer than all of their source get the
        offset it has then, and stand after those that came before; samples that come late get
        the one it had. What is stored is not moved again.
        """
        ...

    def add_all(self, batches: Sequence[SampleBatch]) -> Sequence[Receipt]:
        """Do as ``add`` of each batch does, in their order; one receipt each.

        Batches of new samples are written together, which costs far less than one at a time.
        """
        ...

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        """Throughput samples of all workers of a job, oldest first."""
        ...

    def newest(self, job: JobId) -> datetime | None:
        """Return the time of a job's newest throughput sample; None where none is kept."""
        ...

    def last_steps(self, jobs: Collection[JobId]) -> Mapping[tuple[JobId, int], int]:
        """Steps of rank 0 in each world of these jobs when the next world formed, by its epoch.

        Worlds of which nothing was measured in the two minutes about that instant are left out.
        """
        ...

    def read_ahead(self, ends: Mapping[JobId, datetime], *, window: timedelta) -> None:
        """Read at once what lists show of these jobs, in a transaction that stores no samples.

        These are losses, and the samples in the ``window`` before each end, or, where a job was
        silent then, in the window before its newest sample.
        """
        ...

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        """Completed checkpoints of a job, oldest first."""
        ...

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        """Host samples that belong to a job, oldest first."""
        ...

    def losses(self, job: JobId) -> TelemetryLosses:
        """Gaps between sequence numbers, and the drops that senders reported."""
        ...

    def lines(
        self, asked: Mapping[JobId, SeriesStretch], *, points: int
    ) -> Mapping[JobId, Sequence[SeriesBucket]]:
        """``series`` of many jobs at once; jobs of which there are no points are left out."""
        ...

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[SeriesBucket]:
        """At most ``points`` buckets of one metric, empty buckets left out.

        ``since`` is in, ``until`` is not; a point stands at the beginning of its bucket.
        ``brain.series`` says how readings become points.

        Metrics: ``examples_per_second`` (sum over the workers of a world, ``steps_per_second``
        likewise where no batch size is known), ``steps_per_second``, ``step_seconds``,
        ``data_wait_share``, ``cpu_share``, ``memory_share``, ``gpu_share``, ``gpu_memory_share``,
        ``replicas``. Only the phase ``training`` counts for the first four.

        Raises:
            BadInput: no such metric, or fewer than one point.
        """
        ...

    def retire(self, *, raw_before: datetime, means_before: datetime) -> int:
        """Fold raw samples older than ``raw_before`` into 1-minute means, drop older means.

        Returns how many rows went. Safe to call again after a crash at any point.
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
        """Replace the fit of this job and kind."""
        ...

    def read_ahead(self, jobs: Collection[JobId], kind: str) -> None:
        """Read the fits of one kind of these jobs at once, for the questions that follow."""
        ...

    def get(self, job: JobId, kind: str) -> StoredFit | None:
        """The latest fit of this job and kind."""
        ...
