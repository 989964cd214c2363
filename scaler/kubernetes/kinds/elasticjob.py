"""ElasticJob: a training job in the form that DLRover's users write, with additional fields."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from brain.types.job import OptimizeMode, PolicyMode
from scaler.kubernetes.kinds.declared import (
    BatchSpec,
    BudgetSpec,
    CheckpointSpec,
    Many,
    ParallelismSpec,
    RestartsSpec,
)
from scaler.kubernetes.kinds.fields import (
    GROUP,
    Amounts,
    Count,
    Fields,
    GroupName,
    Metadata,
    Name,
    Opaque,
    PodTemplate,
    Positive,
    PrinterColumn,
    Rule,
    Seconds,
    Text,
)
from scaler.kubernetes.kinds.jobstatus import ElasticJobStatus

#: ``spec.managedBy`` of jobs that DLRover's own master runs.
DLROVER = "dlrover"
#: Values of ``spec.managedBy`` that mean this operator; Kubernetes' kinds require a domain in them.
OURS = ("brain", f"{GROUP}/brain")


class Strategy(StrEnum):
    """Strategies by which the job's processes share the training."""

    ALLREDUCE = "AllreduceStrategy"
    PARAMETER_SERVER = "ParameterServerStrategy"
    CUSTOM = "CustomStrategy"
    LOCAL = "Local"


class ReplicaType(StrEnum):
    """The roles of replicas."""

    WORKER = "worker"
    PS = "ps"
    CHIEF = "chief"
    EVALUATOR = "evaluator"
    #: DLRover's master pod; this operator makes none, and a condition of the job says so.
    MASTER = "dlrover-master"


class RestartPolicy(StrEnum):
    """Rules for restarting an ended replica; its pod itself is never restarted."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class BatchScheduler(StrEnum):
    """Schedulers that admit the gang."""

    #: Our scheduling gates, on any scheduler.
    DEFAULT = "default"
    VOLCANO = "volcano"


class GroupSpec(Fields, frozen=True, kw_only=True):
    """Workers that differ from the others, or the servers, chief or evaluator beside them."""

    #: Number of replicas of the group; only users write it. The job begins with this number. A
    #: later edit is a request that changes the size of the job by the difference, and is answered
    #: in `status.request`.
    replicas: Positive = 1
    #: Worker processes of each replica. Default: `--nproc_per_node` of the command, else 1.
    processes_per_replica: Positive | None = None
    #: The pod template of the group's replicas. Default: the role's.
    template: PodTemplate | None = None


class ReplicaSpec(Fields, frozen=True, kw_only=True):
    """The replicas of one role."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.minReplicas) || !has(self.maxReplicas) "
            "|| self.minReplicas <= self.maxReplicas",
            message="minReplicas is more than maxReplicas; raise maxReplicas or lower minReplicas",
        ),
        Rule(
            cel="!has(self.unit) || !has(self.maxReplicas) || (has(self.minReplicas) "
            "? (self.minReplicas + self.unit - 1) / self.unit * self.unit <= self.maxReplicas "
            ": self.unit <= self.maxReplicas)",
            message=(
                "no multiple of unit lies between minReplicas and maxReplicas; raise maxReplicas "
                "to such a multiple"
            ),
        ),
        Rule(
            cel="has(self.groups) == has(oldSelf.groups) && (!has(self.groups) "
            "|| size(self.groups) == size(oldSelf.groups) "
            "&& self.groups.all(name, name in oldSelf.groups))",
            message="groups cannot be added or removed; delete the job and create it again, or "
            "edit the replicas of a group",
        ),
        Rule(
            cel="!has(self.groups) || !has(self.minReplicas) "
            "|| self.minReplicas > size(self.groups)",
            message="minReplicas must allow a replica of each group and one more; raise "
            "minReplicas above the number of groups",
        ),
    )

    #: Number of replicas that the user wants; only users write it. The job begins with this number,
    #: within its bounds. 0: Brain chooses the size, and begins with the smallest. A later edit or
    #: `kubectl scale` is a request, which Brain limits to the bounds and answers in
    #: `status.request`. `status.replicas` is the present number.
    replicas: Count = 1
    #: Smallest number of replicas. Default: `--nnodes` of the command, else `replicas`.
    min_replicas: Positive | None = None
    #: Largest number of replicas. Default: `--nnodes` of the command, else `replicas`.
    max_replicas: Positive | None = None
    #: Number of replicas that are added or removed together. Default: the number that `parallelism`
    #: needs, else `--node_unit` of the command, else 1.
    unit: Positive | None = None
    #: Worker processes of each replica. Default: `--nproc_per_node` of the command, else 1.
    processes_per_replica: Positive | None = None
    #: The pod template of a replica; every field is passed to Kubernetes.
    template: PodTemplate | None = None
    #: Takes precedence over the template's policy: `Always` restarts the replica after every
    #: failure, `OnFailure` and `ExitCode` after failures that may not repeat, `Never` after none.
    #: Default: `Always`.
    restart_policy: RestartPolicy | None = None
    #: How often a replica is restarted after its own failures. Evictions, preemptions and lost
    #: nodes do not count.
    restart_count: Count | None = None
    #: False: only people change the size.
    auto_scale: bool | None = None
    #: Seconds within which a restarted replica must be ready; after that the operator starts
    #: another one.
    restart_timeout: Seconds | None = None
    #: `high`, `low`, the share of replicas with high priority (`0.5`), or the name of a
    #: PriorityClass.
    priority: Name | None = None
    #: Groups of workers, by name, whose processes, amounts or nodes differ from those of the other
    #: workers. In a job with parameter servers the groups are the roles `ps`, `chief` and
    #: `evaluator`, whose sizes and amounts plans change. `replicas` and its bounds include the
    #: replicas of groups.
    groups: Annotated[Mapping[GroupName, GroupSpec], Meta(max_length=7)] = {}
    #: How the gang (the pods that start together) is admitted. `default`: by scheduling gates, with
    #: any scheduler; `volcano`: by a PodGroup.
    batch_scheduler: BatchScheduler | None = msgspec.field(default=None, name="BatchScheduler")


class PolicySpec(Fields, frozen=True, kw_only=True):
    """The rules for approving plans."""

    #: `off` (Brain makes no plans), `shadow` (plans are recorded, never applied), `approve` (a
    #: person approves) or `auto` (plans need no approval). Default: the installation's mode.
    mode: PolicyMode | None = None


class ElasticJobSpec(Fields, frozen=True, kw_only=True):
    """The desired state, as the user states it."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.replicaSpecs.all(role, role in "
            "['worker', 'ps', 'chief', 'evaluator', 'dlrover-master'])",
            message=(
                "replicaSpecs has an unknown role; rename it to worker, ps, chief, evaluator or "
                "dlrover-master"
            ),
        ),
        Rule(
            cel="!('worker' in self.replicaSpecs) || has(self.replicaSpecs['worker'].template)",
            message=(
                "worker has no template: give the role one, since a job without workers has no "
                "scale"
            ),
        ),
        Rule(
            cel="has(self.steps) || !has(self.deadline) && !has(self.budget)",
            message=(
                "deadline or budget is set, but the length of the job is unknown; declare steps"
            ),
        ),
        Rule(
            cel="self.managedBy == oldSelf.managedBy",
            message="managedBy is immutable; delete the job and create it anew",
        ),
    )

    #: How the replicas train together. Default: `ParameterServerStrategy` if there is a role or
    #: group `ps`, else `AllreduceStrategy`.
    distribution_strategy: Strategy | None = None
    #: Source of plans. `manual`: only people; `single-job`: Brain, for this job alone; `cluster`:
    #: Brain, for all jobs of the pool together.
    optimize_mode: OptimizeMode = OptimizeMode.SINGLE_JOB
    #: The roles and their replicas.
    replica_specs: Annotated[Mapping[str, ReplicaSpec], Meta(min_length=1, max_length=8)]
    #: Largest amounts that all pods of the job together may reserve: `cpu`, `memory`, `gpu` or the
    #: name of a resource.
    resource_limits: Amounts = msgspec.field(default_factory=dict)
    #: Ignored: the operator uses its own Brain.
    brain_service: Text | None = None
    #: Seconds for which the pods of an incomplete gang keep their nodes; each further node restarts
    #: the count. Then the pods release all nodes, and wait again. Default: 900.
    gang_patience: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    #: True: replacements start elsewhere before the pods of a cordoned node leave the node at a
    #: safe point. A PodDisruptionBudget makes `kubectl drain` wait until then, for at most
    #: `gangPatience`. False: a cordon moves no pods, and a drain evicts them immediately. A cordon
    #: never moves pods without Brain's agent.
    drain_on_cordon: bool = True
    #: Environment of every container, by name; a variable of the template takes precedence.
    envs: Annotated[Mapping[str, Opaque], Meta(max_length=256)] = {}
    #: The job has no pods while this is true; running pods leave at the next safe point.
    suspend: bool = False
    #: Ignored: Brain has no equivalent of DLRover's data sharding service.
    enable_dynamic_sharding: bool | None = None
    #: False: only people change the size.
    enable_elastic_scheduling: bool | None = None
    #: Tensor and pipeline parallelism, from which the unit follows.
    parallelism: ParallelismSpec | None = None
    #: Approval of plans.
    policy: PolicySpec | None = None
    #: Facts about the script's checkpoints.
    checkpoint: CheckpointSpec | None = None
    #: Bounds of the batch.
    batch: BatchSpec | None = None
    #: Declared passes over the data.
    epochs: Many | None = None
    #: Declared optimizer steps.
    steps: Many | None = None
    #: Greatest cost of the run.
    budget: BudgetSpec | None = None
    #: Time by which the job must end: Brain chooses no size with which the job would end later. The
    #: job must also declare `steps`.
    deadline: datetime | None = None
    #: Limits for failures of the job.
    restarts: RestartsSpec | None = None
    #: Product name of the accelerator. Default: the name in the template's node selector.
    accelerator: Text | None = None
    #: Priority of the job in a shared pool, from -8 to 8; each step multiplies the job's weight by
    #: 4.
    priority: Annotated[int, Meta(ge=-8, le=8)] | None = None
    #: True: replicas are meant to work independently. False: if replicas never connect to each
    #: other, Brain reduces the job to one replica.
    independent: bool = False
    #: Controller of the job: `brain`, or with its domain `elastic.iml.github.io/brain`; `dlrover`
    #: (Brain only advises); with any other value, such as `kueue.x-k8s.io/multikueue`, Brain leaves
    #: the job alone.
    managed_by: Name = "brain"
    #: Seconds after `startTime` at which the operator ends a job that still runs. The job is then
    #: Failed, with the reason `DeadlineExceeded`. A suspension restarts the count. Default: no
    #: limit.
    active_deadline_seconds: Annotated[int, Meta(ge=1, le=315_360_000)] | None = None
    #: Seconds after which a finished job is deleted, with its pods and plans. Default: never.
    ttl_seconds_after_finished: Seconds | None = None


class ElasticJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An elastic training job."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="size(self.metadata.name) <= 63",
            message=(
                "a job's name is longer than 63 characters; choose a shorter one, because the "
                "pods' labels contain the job's name"
            ),
        ),
    )
    COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = (
        PrinterColumn(name="Phase", path=".status.phase"),
        PrinterColumn(name="Replicas", path=".status.replicas", type="integer"),
        PrinterColumn(name="Ready", path=".status.readyReplicas", type="integer"),
        PrinterColumn(name="Mode", path=".spec.optimizeMode"),
        PrinterColumn(name="Plan", path=".status.scalePlan"),
        PrinterColumn(name="Age", path=".metadata.creationTimestamp", type="date"),
        PrinterColumn(name="Strategy", path=".spec.distributionStrategy", wide=True),
        PrinterColumn(name="Generation", path=".status.generation", type="integer", wide=True),
        PrinterColumn(name="Restarts", path=".status.restarts", type="integer", wide=True),
        PrinterColumn(
            name="Feasible", path='.status.conditions[?(@.type=="Feasible")].status', wide=True
        ),
        PrinterColumn(name="Message", path=".status.message", wide=True),
    )
    PLURAL: ClassVar[str] = "elasticjobs"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ej",)
    SELECTABLE: ClassVar[tuple[str, ...]] = (".spec.managedBy", ".status.phase")

    metadata: Metadata
    spec: ElasticJobSpec
    status: ElasticJobStatus = ElasticJobStatus()

    @property
    def strategy(self) -> Strategy:
        """Return the strategy that ``distributionStrategy`` names, or that follows from roles and
        groups.
        """
        served = ReplicaType.PS in self.spec.replica_specs or ReplicaType.PS in self.groups
        implied = Strategy.PARAMETER_SERVER if served else Strategy.ALLREDUCE
        return self.spec.distribution_strategy or implied

    @property
    def configured_here(self) -> bool:
        """Return True if the operator writes ``TF_CONFIG``.

        If servers are in ``groups``, Brain's agents write it.
        """
        return self.strategy is Strategy.PARAMETER_SERVER and ReplicaType.PS not in self.groups

    @property
    def scaled(self) -> str:
        """Return the role whose size plans change."""
        return scaled_of(self.spec.replica_specs)

    @property
    def groups(self) -> Mapping[str, GroupSpec]:
        """Return the groups of the scaled role."""
        return self.spec.replica_specs[self.scaled].groups

    def template_of(self, group: str = ReplicaType.WORKER) -> Mapping[str, Any]:
        """Return the pod template of a group of the scaled role, or the role's template for
        replicas outside the groups.
        """
        own = self.groups[group].template if group in self.groups else None
        return own or self.spec.replica_specs[self.scaled].template or {}


def scaled_of(roles: Iterable[str]) -> str:
    """Return the role whose size plans change: ``worker``, else the only one that exists.

    >>> scaled_of(["chief", "dlrover-master"])
    'chief'
    """
    own = [role for role in roles if role != ReplicaType.MASTER]
    return ReplicaType.WORKER if ReplicaType.WORKER in own else own[0]
