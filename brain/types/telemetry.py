"""What is measured, with time and place.

Every sample carries ``source`` (random per process start) and ``measured_at`` (strictly
rising per source); the pair is its identity. Sequence numbers only count gaps. ``measured_at``
is of the sender's clock until a store has it, then of the service's (``brain.clocks``).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

from brain.types.job import JobId
from brain.types.resources import NodeName

SourceId = NewType("SourceId", str)


class Phase(StrEnum):
    """What the worker was doing; only ``training`` is fitted, nothing is dropped."""

    WARMUP = "warmup"
    TRAINING = "training"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSource:
    """Where a worker's sample comes from."""

    job: JobId
    source: SourceId
    replica: int
    local_rank: int
    #: Global rank in the world of ``epoch``.
    rank: int
    #: Epoch of the world; samples of different epochs are never mixed.
    epoch: int
    #: Generation of the plan that this world answers.
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputSample:
    """A window of consecutive optimizer steps of one worker."""

    place: SampleSource
    measured_at: datetime
    #: Counts the samples of this source from 0; a gap is a loss.
    sequence: int
    phase: Phase
    #: Nodes, replicas and processes of the world.
    nodes: int
    replicas: int
    processes: int
    accelerator: str
    #: Examples of one micro-batch of this worker; None where no loader was seen.
    local_batch: int | None
    #: Micro-batches per optimizer step.
    accumulation: int
    #: Optimizer steps that this window stands for.
    steps: int
    #: Steps of this process since its start, at the window's end.
    step: int
    #: Median and mean seconds per step in the window.
    step_seconds: float
    step_seconds_mean: float
    #: Mean seconds per step spent waiting for data.
    data_wait_seconds: float
    #: Examples per second of this worker; None where no batch size was seen.
    examples_per_second: float | None
    #: Mean seconds per step spent waiting for the exchange of gradients after this worker's own
    #: were done, from sampled steps; None where it was not measured.
    exchange_wait_seconds: float | None = None
    #: Sampled steps whose gradients were compared; with it the four below are set, else None.
    gns_steps: int | None = None
    #: Examples of one micro-batch of this worker, and mean squared norm of its gradient.
    gns_small_batch: int | None = None
    gns_small_square: float | None = None
    #: Examples of one optimizer step of the world, and squared norm of their mean gradient.
    gns_big_batch: int | None = None
    gns_big_square: float | None = None
    #: Why gradients cannot be compared; None where they are, or where that is not known yet.
    gns_unavailable: str | None = None
    #: Whether this worker met another one so far: a process group of several, a session or a shard
    #: of ours, a peer by MPI or Horovod. None where an older probe does not tell.
    met: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSample:
    """A completed checkpoint, reported once the file has its final name."""

    place: SampleSource
    measured_at: datetime
    sequence: int
    path: str
    #: Steps of this process when it saved.
    step: int
    #: Seconds that training waited for the save.
    save_seconds: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One accelerator at one instant."""

    index: int
    name: str
    utilization: float
    memory_used_bytes: int
    memory_total_bytes: int
    power_watts: float | None = None
    temperature_celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReading:
    """Shared memory and storage as the job's processes find them, at one instant."""

    #: ``/dev/shm``, which all containers of a pod, or all processes of a machine, share.
    shm_used_bytes: int
    shm_capacity_bytes: int
    #: The file system of temporary files.
    scratch_used_bytes: int
    scratch_capacity_bytes: int
    #: Share of the time in which a process waited for storage (PSI); None: the kernel does not say.
    io_stalled_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReading:
    """What one replica's processes use at one instant."""

    replica: int
    cpu_millis: int
    #: Working set of its control group; resident sets where it has none.
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """A machine, and the share of one job in it."""

    job: JobId
    source: SourceId
    node: NodeName
    measured_at: datetime
    sequence: int
    #: In use on the node, and what the cgroup or affinity allows.
    cpu_millis: int
    cpu_capacity_millis: int
    memory_bytes: int
    memory_capacity_bytes: int
    #: In use by the job's processes on this node.
    job_cpu_millis: int
    job_memory_bytes: int
    network_receive_bytes_per_second: float
    network_send_bytes_per_second: float
    disk_read_bytes_per_second: float
    disk_write_bytes_per_second: float
    gpus: tuple[GpuReading, ...] = ()
    #: None: the collector is elsewhere, or an older one.
    storage: StorageReading | None = None
    #: Readings that cannot be had here, ``gpu: no NVIDIA driver`` for example.
    unavailable: tuple[str, ...] = ()
    #: Working set of the largest of the job's replicas here, by their own control groups; None
    #: where they have none.
    replica_memory_bytes: int | None = None
    #: Share of the scheduler's periods in which a quota stopped the most stopped of them, 0 to 1;
    #: None where no quota holds them.
    throttled_share: float | None = None
    #: Each of the job's replicas here; empty where there is one, or a collector elsewhere.
    replica_readings: tuple[ReplicaReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSample:
    """Samples that were dropped before they could be sent; losses are told, too."""

    job: JobId
    source: SourceId
    measured_at: datetime
    sequence: int
    #: ``probe`` (nobody listened for too long) or ``spool`` (full or too old).
    where: str
    dropped: int


#: Anything measured.
Sample = ThroughputSample | SaveSample | HostSample | LossSample


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedSample:
    """A sample of a batch that was not stored, and why."""

    #: Position in the batch, from 0.
    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to a batch: everything not listed as rejected is committed."""

    stored: int
    #: Already known by (source, measured_at).
    duplicates: int
    rejected: tuple[RejectedSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryLosses:
    """What is known to be missing of a job's telemetry."""

    #: Numbers missing between the sequence numbers of a source.
    gaps: int
    #: As told by ``LossSample``.
    dropped: int
