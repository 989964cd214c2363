"""Fields that a job document has and DLRover's schema lacks, with the job document's names."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from brain.types.grace import MOST_SECONDS
from scaler.kubernetes.kinds.fields import Fields, Positive, Text

Amount = Annotated[float, Meta(gt=0)]
Many = Annotated[int, Meta(ge=1, extra={"format": "int64"})]


class CheckpointSpec(Fields, frozen=True, kw_only=True):
    """The owner's statements about the script's checkpoints. The probe detects most of these facts
    by itself.
    """

    #: The checkpoint that the script writes: a file or a directory.
    path: Text | None = None
    #: How often the script saves, for example `90 s`, `5 m` or `200 steps`.
    every: Text | None = None
    #: Signal that makes the script save and exit.
    signal: Text | None = None
    #: `torch.save` returns once the file is in memory; storage follows.
    memory: bool | None = None
    #: Seconds that the script has to save and exit after the stop signal. Default:
    #: `--shutdown-timeout` of the command, else `terminationGracePeriodSeconds` of the template
    #: less 25 s, but at least 30.
    grace_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] | None = None


class BatchSpec(Fields, frozen=True, kw_only=True):
    """Bounds of the batch size, in examples."""

    #: Examples of an optimizer step over all workers, if the script keeps this number fixed.
    global_size: Many | None = None
    #: Largest global batch size with which training still works.
    global_max: Many | None = None
    #: Smallest batch size of a worker.
    local_min: Many | None = None
    #: Largest batch size of a worker.
    local_max: Many | None = None
    #: Largest batch size of a worker on some types of accelerator, instead of `localMax`.
    local_max_on: Annotated[Mapping[str, Many], Meta(max_length=32)] | None = None
    #: True: Brain may choose the batch size, because the script reads it from the file that
    #: BRAIN_BATCH_FILE names.
    tune: bool | None = None


class BudgetSpec(Fields, frozen=True, kw_only=True):
    """The most that a run may use, including its restarts. The job must also declare `steps`."""

    #: Accelerator-hours, or core-hours if the job uses no accelerators.
    accelerator_hours: Amount | None = None
    #: Money, by the installation's prices.
    cost: Amount | None = None


class RestartsSpec(Fields, frozen=True, kw_only=True):
    """Limits for failures of a job."""

    #: Number of worlds lost to failures after which the job is Failed. Default: `--max_restarts` of
    #: the command, else 10.
    limit: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class ParallelismSpec(Fields, frozen=True, kw_only=True):
    """Fixed dimensions of a 3D-parallel job."""

    #: Processes of a tensor-parallel group, which stay on one node.
    tensor: Positive = 1
    #: Pipeline stages.
    pipeline: Positive = 1
