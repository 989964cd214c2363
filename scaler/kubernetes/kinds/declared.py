"""Fields of a job document beyond DLRover's schema, under the same names."""

from typing import Annotated

from msgspec import Meta

from brain.types.grace import MOST_SECONDS
from scaler.kubernetes.kinds.fields import Fields, Positive, Text

Amount = Annotated[float, Meta(gt=0)]
Many = Annotated[int, Meta(ge=1, extra={"format": "int64"})]


class CheckpointSpec(Fields, frozen=True, kw_only=True):
    """The owner's facts about the script's checkpoints; the probe finds most of them by itself."""

    #: File or directory.
    path: Text | None = None
    #: `90 s`, `5 m` or `200 steps`.
    every: Text | None = None
    #: Signal upon which the script saves and exits.
    signal: Text | None = None
    #: `torch.save` returns once the file is in memory; storage follows.
    memory: bool | None = None
    #: Seconds that the script has to save and end once it is asked to. Without it
    #: `--shutdown-timeout` of the command, else what `terminationGracePeriodSeconds` of the
    #: template leaves beyond 25 s, 30 at least.
    grace_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] | None = None


class BatchSpec(Fields, frozen=True, kw_only=True):
    """Bounds of the batch, in examples."""

    #: Examples of an optimizer step over all workers, where the script keeps it fixed.
    global_size: Many | None = None
    #: Largest global batch that training bears.
    global_max: Many | None = None
    #: Smallest batch of a worker.
    local_min: Many | None = None
    #: Largest batch of a worker.
    local_max: Many | None = None
    #: The script takes its batch from the file that BRAIN_BATCH_FILE names.
    tune: bool | None = None


class BudgetSpec(Fields, frozen=True, kw_only=True):
    """The most that a run may use, its restarts included; needs `steps`."""

    #: Hours of accelerators; of cores where there are none.
    accelerator_hours: Amount | None = None
    #: Money, at the installation's prices.
    cost: Amount | None = None


class RestartsSpec(Fields, frozen=True, kw_only=True):
    """Limits for failures of a job."""

    #: Worlds lost to failures before the job is Failed. Without it `--max_restarts` of the
    #: command, else 10.
    limit: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class ParallelismSpec(Fields, frozen=True, kw_only=True):
    """Fixed dimensions of a 3D-parallel job."""

    #: Processes of a tensor-parallel group; they stay in one node.
    tensor: Positive = 1
    #: Pipeline stages.
    pipeline: Positive = 1
