"""Samples: measurements of steps, saves, machines and replicas, each with its time and origin.

Every sample carries ``source`` (random per process start) and ``measured_at`` (strictly rising per
source); the pair is its identity. Sequence numbers only serve to count gaps. Until a sample is
stored, its ``measured_at`` is a time of the sender's clock; afterwards it is a time of the
service's clock (``brain.clocks``).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

from brain.types.job import JobId
from brain.types.resources import NodeName

SourceId = NewType("SourceId", str)


#: Beginning of ``ThroughputSample.gns_unavailable`` if workers hold only a part of the parameters;
#: probes of earlier releases tell nothing else of divided state.
SHARDED = "parameters are sharded"


class Phase(StrEnum):
    """The phase of the worker in a window; models are fitted only to ``training``, but no sample is
    dropped.
    """

    WARMUP = "warmup"
    TRAINING = "training"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSource:
    """The worker that a sample comes from: its job, world, replica and rank."""

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
    #: Examples of one micro-batch of this worker; None if no loader was seen.
    local_batch: int | None
    #: Micro-batches per optimizer step.
    accumulation: int
    #: Optimizer steps in this window.
    steps: int
    #: Steps of this process since its start, at the window's end.
    step: int
    #: Median and mean seconds per step in the window.
    step_seconds: float
    step_seconds_mean: float
    #: Mean seconds per step spent waiting for data.
    data_wait_seconds: float
    #: Examples per second of this worker; None if no batch size was seen.
    examples_per_second: float | None
    #: Mean seconds per step spent waiting for the gradient exchange after this worker's own
    #: gradients were done, from sampled steps; None if not measured.
    exchange_wait_seconds: float | None = None
    #: Sampled steps whose gradients were compared; if set, the four fields below are set, too.
    gns_steps: int | None = None
    #: Examples of one micro-batch of this worker, and mean squared norm of its gradient.
    gns_small_batch: int | None = None
    gns_small_square: float | None = None
    #: Examples of one optimizer step of the world, and squared norm of their mean gradient.
    gns_big_batch: int | None = None
    gns_big_square: float | None = None
    #: The reason why gradients cannot be compared, which begins with ``SHARDED`` if workers hold
    #: only a part of the parameters; None if they are, or if that is not known yet.
    gns_unavailable: str | None = None
    #: True if this worker met another one so far: a process group of several, an elastic session or
    #: a shard of Brain, a peer by MPI or Horovod. None from an older probe.
    met: bool | None = None
    #: Bytes of this worker's part of the state that workers divide among them: optimizer state, and
    #: gradients and parameters where they are divided, too. 0: its size is unknown; None: the
    #: workers divide nothing, or the probe does not tell.
    sharded_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSample:
    """A completed checkpoint, reported once the file has its final name."""

    place: SampleSource
    measured_at: datetime
    sequence: int
    path: str
    #: Steps of this process at the save.
    step: int
    #: Seconds that training waited for the save.
    save_seconds: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The reading of one accelerator at one instant."""

    index: int
    name: str
    utilization: float
    memory_used_bytes: int
    memory_total_bytes: int
    power_watts: float | None = None
    temperature_celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReading:
    """Shared memory and storage as the job's processes see them at one instant."""

    #: ``/dev/shm``, which all containers of a pod, or all processes of a machine, share.
    shm_used_bytes: int
    shm_capacity_bytes: int
    #: The file system of temporary files.
    scratch_used_bytes: int
    scratch_capacity_bytes: int
    #: Share of time in which a process waited for storage (PSI); None: the kernel does not report
    #: it.
    io_stalled_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReading:
    """The resource use of one replica's processes at one instant."""

    replica: int
    cpu_millis: int
    #: Working set of the replica's control group; resident sets if it has none.
    memory_bytes: int


#: End of an entry of ``HostSample.unavailable`` about a counter that ran backwards: its rate is 0.
BEGAN_ANEW = "began anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """A reading of one machine, and of one job's processes on the machine."""

    job: JobId
    source: SourceId
    node: NodeName
    measured_at: datetime
    sequence: int
    #: CPU in use on the node, and the limit of the cgroup or affinity.
    cpu_millis: int
    cpu_capacity_millis: int
    memory_bytes: int
    memory_capacity_bytes: int
    #: CPU in use by the job's processes on this node.
    job_cpu_millis: int
    job_memory_bytes: int
    network_receive_bytes_per_second: float
    network_send_bytes_per_second: float
    disk_read_bytes_per_second: float
    disk_write_bytes_per_second: float
    gpus: tuple[GpuReading, ...] = ()
    #: Reading of storage; None: the collector is elsewhere, or is an older one.
    storage: StorageReading | None = None
    #: Readings that are impossible here, for example ``gpu: no NVIDIA driver``.
    unavailable: tuple[str, ...] = ()
    #: Working set of the largest of the job's replicas here, by their own control groups; None if
    #: they have none.
    replica_memory_bytes: int | None = None
    #: Share, 0 to 1, of scheduler periods in which a quota stopped the most throttled replica of
    #: the job; None without a quota.
    throttled_share: float | None = None
    #: Reading of each of the job's replicas here; empty for a single replica, or a collector
    #: elsewhere.
    replica_readings: tuple[ReplicaReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSample:
    """A report of samples that were dropped before they could be sent."""

    job: JobId
    source: SourceId
    measured_at: datetime
    sequence: int
    #: Place of the loss: ``probe`` (no collector listened for too long) or ``spool`` (full or too
    #: old).
    where: str
    dropped: int


#: Any sample.
Sample = ThroughputSample | SaveSample | HostSample | LossSample


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedSample:
    """A sample of a batch that was not stored, with the reason."""

    #: Position in the batch, from 0.
    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to a batch: every sample not listed as rejected is committed."""

    stored: int
    #: Samples already known by (source, measured_at).
    duplicates: int
    rejected: tuple[RejectedSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryLosses:
    """How many of a job's samples are known to be lost, each counted once."""

    #: Numbers missing between the sequence numbers of a source, except those that reported losses
    #: explain.
    gaps: int
    #: Losses reported by ``LossSample``.
    dropped: int

    @classmethod
    def counted(cls, *, missing: int, dropped: int) -> "TelemetryLosses":
        """Return the losses, in which a dropped sample does not also count as a gap.

        A sample gets its number before it is dropped, so its number is also ``missing``.

        >>> TelemetryLosses.counted(missing=9, dropped=7)
        TelemetryLosses(gaps=2, dropped=7)
        >>> TelemetryLosses.counted(missing=0, dropped=7)
        TelemetryLosses(gaps=0, dropped=7)
        """
        return cls(gaps=max(0, missing - dropped), dropped=dropped)
