"""ScalePlan: a change of a job's size, requested by a person, a program or Brain."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from scaler.kubernetes.kinds.fields import (
    Amounts,
    Count,
    Fields,
    Int64,
    Metadata,
    Name,
    Opaque,
    PrinterColumn,
    Rule,
    Text,
)
from scaler.kubernetes.kinds.jobstatus import ElasticJobCondition

#: Label by which DLRover finds the plans of a job.
JOB_LABEL = "elasticjob.dlrover/name"
#: The same label as DLRover's own examples misspell it.
OLD_JOB_LABEL = "elasticjob-name"


class ReplicaResource(Fields, frozen=True, kw_only=True):
    """The replicas that one role should have."""

    #: Number of replicas.
    replicas: Count | None = None
    #: Amounts that each replica reserves.
    resource: Amounts = msgspec.field(default_factory=dict)


class PodMeta(Fields, frozen=True, kw_only=True):
    """One pod of a plan, as DLRover names it."""

    #: Name of the pod.
    name: Name = ""
    #: The pod's id within its role.
    id: Int64 | None = None
    #: The pod's role.
    type: Name = "worker"
    #: The pod's rank.
    rank_index: Int64 | None = None
    #: `host:port` of the pod's service.
    service: Text = ""
    #: Amounts that the pod reserves.
    resource: Amounts = msgspec.field(default_factory=dict)


class ScalePlanSpec(Fields, frozen=True, kw_only=True):
    """The request; it never changes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self == oldSelf",
            message="the spec of a ScalePlan is immutable; create another plan",
        ),
    )

    #: Name of the ElasticJob. Default: the label `elasticjob.dlrover/name`.
    owner_job: Name = ""
    #: Replicas by role, and the amounts that each reserves.
    replica_resource_specs: Annotated[Mapping[str, ReplicaResource], Meta(max_length=8)] = {}
    #: Not supported: pods to create.
    create_pods: Annotated[tuple[PodMeta, ...], Meta(max_length=1024)] = ()
    #: Pods to remove, by name.
    remove_pods: Annotated[tuple[PodMeta, ...], Meta(max_length=1024)] = ()
    #: Pods to replace by others that reserve the amounts given here.
    migrate_pods: Annotated[tuple[PodMeta, ...], Meta(max_length=1024)] = ()
    #: Not supported: addresses of the parameter servers, in the order of their ranks.
    ps_hosts: Annotated[tuple[Text, ...], Meta(max_length=1024)] = ()
    #: Time after which nobody can approve the plan.
    expires_at: datetime | None = None


class ApprovalSpec(Fields, frozen=True, kw_only=True):
    """The name of the approver, and the time of the approval."""

    #: A person's name, or `policy:auto`.
    by: str = ""
    #: When the plan was approved.
    at: datetime | None = None


class Target(Fields, frozen=True, kw_only=True):
    """The size that follows from the plan. The operator sets it once, when Brain accepts the plan,
    and then reconciles the pods with it.
    """

    #: Replicas and resources by role (totals, not differences).
    roles: Mapping[str, ReplicaResource] = {}
    #: Names of pods to remove.
    remove: tuple[str, ...] = ()
    #: Pods to replace, by name, with the amounts that their successors reserve.
    migrate: Mapping[str, Amounts] = {}


class Throughput(Fields, frozen=True, kw_only=True):
    """A throughput in examples per second, with the bounds of its 90 % interval."""

    #: A number as text, because Kubernetes objects should not contain fractions: `412.5`.
    examples_per_second: str = ""
    #: Lower bound of the interval.
    low: str = ""
    #: Upper bound of the interval.
    high: str = ""


class ScalePlanStatus(Fields, frozen=True, kw_only=True):
    """The progress of the plan."""

    #: Generation of the spec that the status describes; always 1.
    observed_generation: Int64 = 0
    #: Number that Brain gave to the plan when it accepted it.
    generation: Int64 | None = None
    #: Pending, Proposed, Approved, Applying, Applied, Verified, RolledBack, Rejected, Superseded,
    #: Expired or Failed.
    phase: str = ""
    #: The reason for the state, in one sentence.
    message: str = ""
    approval: ApprovalSpec | None = None
    target: Target | None = None
    #: Throughput promised at the target.
    predicted: Throughput | None = None
    #: Throughput measured at the target.
    observed: Throughput | None = None
    #: Brain's reason, evidence, alternatives and confidence.
    explanation: Opaque | None = None
    #: Facts about the plan, one of each type.
    conditions: tuple[ElasticJobCondition, ...] = ()
    #: When the plan was created.
    create_time: datetime | None = None
    #: When the plan reached its last phase.
    finish_time: datetime | None = None


class ScalePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change of a job's size."""

    COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = (
        PrinterColumn(name="Job", path=".spec.ownerJob"),
        PrinterColumn(name="Generation", path=".status.generation", type="integer"),
        PrinterColumn(name="Workers", path=".status.target.roles.worker.replicas", type="integer"),
        PrinterColumn(name="Phase", path=".status.phase"),
        PrinterColumn(name="Approved", path=".status.approval.by"),
        PrinterColumn(name="Age", path=".metadata.creationTimestamp", type="date"),
        PrinterColumn(name="Predicted", path=".status.predicted.examplesPerSecond", wide=True),
        PrinterColumn(name="Observed", path=".status.observed.examplesPerSecond", wide=True),
        PrinterColumn(name="Message", path=".status.message", wide=True),
    )
    PLURAL: ClassVar[str] = "scaleplans"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("spl",)
    SELECTABLE: ClassVar[tuple[str, ...]] = (".spec.ownerJob", ".status.phase")

    metadata: Metadata
    spec: ScalePlanSpec
    status: ScalePlanStatus = ScalePlanStatus()

    @property
    def job(self) -> str:
        """Return the name of the job, in the plan's namespace."""
        labels = self.metadata.labels
        return self.spec.owner_job or labels.get(JOB_LABEL) or labels.get(OLD_JOB_LABEL, "")
