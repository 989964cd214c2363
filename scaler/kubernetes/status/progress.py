"""A ScalePlan's request, its status, and the time of its deletion. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from brain.errors import BadInput, BrainError, NotAllowed, NotFound
from brain.types.allocation import Allocation
from brain.types.plan import PlanState, PlanVerdict, Verdict
from brain.types.plan import ScalePlan as Standing
from brain.types.recommendation import Prediction
from brain.types.resources import Resources
from brain.types.roles import groups_of
from brain.views import JobView
from scaler.kubernetes.kinds import (
    API_VERSION,
    JOB_LABEL,
    ElasticJob,
    PlanCondition,
    Reason,
    ScalePlan,
)
from scaler.kubernetes.kinds.quantities import is_accelerator, quantity, resources
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.amounts import NAMES, shown
from scaler.kubernetes.pods.fitting import allowed, excess
from scaler.kubernetes.pods.placement import needs
from scaler.kubernetes.runtime.cluster.kind import Key, Object
from scaler.kubernetes.runtime.status import StatusCondition, instant

#: Label by which DLRover tells people's plans from its own.
SCALE_TYPE, AUTO, MANUAL = "scale-type", "auto", "manual"
#: Final phases of a plan.
CLOSED = frozenset({"Verified", "RolledBack", "Rejected", "Superseded", "Expired", "Failed"})
_BEGUN = frozenset(
    {PlanState.APPLYING, PlanState.APPLIED, PlanState.VERIFIED, PlanState.ROLLED_BACK}
)
_MET = frozenset({PlanState.APPLIED, PlanState.VERIFIED, PlanState.ROLLED_BACK})
_ENDED_BADLY = frozenset(
    {PlanState.FAILED, PlanState.ROLLED_BACK, PlanState.REJECTED, PlanState.EXPIRED}
)
_ENDS = {
    PlanState.REJECTED: Reason.REJECTED,
    PlanState.SUPERSEDED: Reason.SUPERSEDED,
    PlanState.EXPIRED: Reason.EXPIRED,
    PlanState.FAILED: Reason.ENDED,
}


def progress(plan: Standing) -> tuple[list[StatusCondition], dict[str, Any]]:
    """Return conditions and fields of a plan as Brain has it."""
    said = [
        _said(PlanCondition.ACCEPTED, True, Reason.VALID, plan.explanation.reason),
        _approved(plan),
        _executing(plan),
        _complete(plan),
    ]
    if (verdict := _verified(plan)) is not None:
        said.append(verdict)
    if plan.state in _ENDS:
        reason = _ENDS[plan.state]
        said.append(_said(PlanCondition.FAILED, True, reason, plan.outcome.detail))
    fields: dict[str, Any] = {
        "phase": str(plan.state),
        "message": plan.outcome.detail or plan.explanation.reason,
        "predicted": _throughput(plan.promised),
        "observed": _throughput(plan.outcome.measured),
        "finishTime": instant(plan.updated_at) if str(plan.state) in CLOSED else None,
    }
    if plan.approval is not None:
        fields["approval"] = {"by": plan.approval.by, "at": instant(plan.approval.at)}
    return said, fields


def event_of(plan: Standing) -> tuple[Literal["Normal", "Warning"], str]:
    """Return type and reason of the event about a plan's present phase."""
    if plan.state is PlanState.VERIFIED and plan.judged is PlanVerdict.FELL_SHORT:
        return "Warning", str(Reason.FELL_SHORT)
    bad = plan.state in _ENDED_BADLY
    return "Warning" if bad else "Normal", str(plan.state)


def _approved(plan: Standing) -> StatusCondition:
    if plan.approval is None:
        waits = "a person must approve it: with `brain approve`, or in the dashboard's inbox"
        return _said(PlanCondition.APPROVED, False, Reason.PROPOSED, waits)
    by_policy = plan.approval.by.startswith("policy:")
    reason = Reason.POLICY if by_policy else Reason.PERSON
    return _said(PlanCondition.APPROVED, True, reason, f"approved by {plan.approval.by}")


def _executing(plan: Standing) -> StatusCondition:
    moving = plan.state is PlanState.APPLYING
    begun = plan.state in _BEGUN
    reason = Reason.APPLYING if moving else Reason.APPLIED if begun else Reason.PROPOSED
    return _said(PlanCondition.EXECUTING, moving, reason, "")


def _complete(plan: Standing) -> StatusCondition:
    met = plan.state in _MET
    message = f"world {plan.outcome.epoch} reached the target" if plan.outcome.epoch else ""
    return _said(PlanCondition.COMPLETE, met, Reason.APPLIED if met else Reason.PROPOSED, message)


def _verified(plan: Standing) -> StatusCondition | None:
    verdict, detail = plan.outcome.verdict, plan.outcome.detail
    if verdict is not None and plan.restores:
        return _said(PlanCondition.VERIFIED, None, Reason.RESTORED, detail)
    match verdict:
        case None:
            return None
        case Verdict.KEPT:
            return _said(PlanCondition.VERIFIED, True, Reason.KEPT, detail)
        case Verdict.FELL_SHORT:
            return _said(PlanCondition.VERIFIED, False, Reason.FELL_SHORT, detail)
        case Verdict.INCONCLUSIVE:
            return _said(PlanCondition.VERIFIED, None, Reason.INCONCLUSIVE, detail)


def _throughput(said: Prediction | None) -> dict[str, str] | None:
    if said is None:
        return None
    return {
        "examplesPerSecond": f"{said.examples_per_second:.6g}",
        "low": f"{said.low:.6g}",
        "high": f"{said.high:.6g}",
    }


def _said(
    type: PlanCondition, status: bool | None, reason: Reason, message: str
) -> StatusCondition:
    return StatusCondition(type=type, status=status, reason=reason, message=message)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The change that a plan asks for."""

    #: Replicas of the group, or of the job.
    replicas: int
    #: Amounts that each replica shall reserve; None: the present ones.
    resources: Resources | None = None
    #: The group; None: the job.
    group: str | None = None

    def met(self, target: Allocation) -> bool:
        """Return True if a plan's target has the replicas."""
        sizes = {name: size.replicas for name, size in target.roles}
        return self.replicas == (sizes[self.group] if self.group else target.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRetention:
    """Limits for keeping finished plans."""

    count: int = 20
    seconds: float = 3600.0


def wanted(plan: ScalePlan, job: ElasticJob, view: JobView) -> Wanted:
    """Return the replicas that a plan asks for, absolute or by pods to create and remove.

    Raises:
        BadInput: the plan asks for a change that no plan makes; the message has the remedy.
    """
    spec = plan.spec
    for role in spec.replica_resource_specs:
        if role != job.scaled and role not in job.groups:
            raise BadInput(
                f"spec.replicaResourceSpecs.{role}: plans only resize "
                f"{', '.join((job.scaled, *job.groups))}; edit {role} in the ElasticJob",
                field=f"spec.replicaResourceSpecs.{role}",
            )
    if groups := [name for name in spec.replica_resource_specs if name in job.groups]:
        return _of_group(plan, groups[0], view)
    return Wanted(*_of_all(plan, job, view))


def _of_group(plan: ScalePlan, group: str, view: JobView) -> Wanted:
    """Return the change of one group that a plan asks for."""
    spec, field = plan.spec, f"spec.replicaResourceSpecs.{group}"
    if len(spec.replica_resource_specs) > 1 or spec.create_pods or spec.remove_pods:
        raise BadInput(
            f"{field}: a plan that changes a group changes nothing else; create a plan for each",
            field=field,
        )
    known = next((one for one in view.groups if one.name == group), None)
    if known is None:
        raise BadInput(f"{field}: Brain knows no group {group} of the job", field=field)
    one = spec.replica_resource_specs[group]
    each = _each(one.resource, known.resources, group) if one.resource else None
    size = known.replicas_wished if one.replicas is None else one.replicas
    return Wanted(size, each, group)


def _of_all(plan: ScalePlan, job: ElasticJob, view: JobView) -> tuple[int, Resources | None]:
    spec = plan.spec
    one = spec.replica_resource_specs.get(job.scaled)
    each = _each(one.resource, view.resources, job.scaled) if one and one.resource else None
    if one is not None and one.replicas is not None:
        return one.replicas, each
    created = sum(pod.type == job.scaled for pod in spec.create_pods)
    removed = sum(pod.type == job.scaled for pod in spec.remove_pods)
    if created or removed or each is not None:
        return view.replicas_wished + created - removed, each
    raise BadInput(
        f"spec changes no number of replicas; give replicaResourceSpecs.{job.scaled}.replicas, "
        "or resource with the amounts for each replica",
        field="spec",
    )


def _each(given: Mapping[str, Any], now: Resources, role: str) -> Resources:
    """Return the amounts that each replica shall reserve: the present ones, with changes."""
    path = f"spec.replicaResourceSpecs.{role}.resource"
    for name in given:
        if name not in NAMES and not is_accelerator(name):
            raise BadInput(
                f"{path}.{name}: plans change cpu and memory; edit {name} in the template",
                field=f"{path}.{name}",
            )
    asked = resources(given, path)
    if asked.gpus not in (0, now.gpus):
        raise BadInput(
            f"{path} asks for {asked.gpus} accelerators, but a replica has {now.gpus}; plans "
            "change only cpu and memory, so edit the template",
            field=path,
        )
    return Resources(
        cpu_millis=asked.cpu_millis if "cpu" in given else now.cpu_millis,
        memory_bytes=asked.memory_bytes if "memory" in given else now.memory_bytes,
        gpus=now.gpus,
    )


def check_served(plan: ScalePlan) -> None:
    """Refuse a plan with fields that no plan can carry out.

    Raises:
        BadInput: with field, and remedy.
    """
    spec = plan.spec
    if spec.ps_hosts:
        raise BadInput(
            "spec.psHosts is ignored: the addresses follow from the pods; leave it out",
            field="spec.psHosts",
        )
    groups = {
        "createPods": spec.create_pods,
        "removePods": spec.remove_pods,
        "migratePods": spec.migrate_pods,
    }
    for group, pods in groups.items():
        for index, pod in enumerate(pods):
            if pod.resource:
                raise BadInput(
                    f"spec.{group}.{index}.resource: all replicas of a role reserve the same; "
                    f"give replicaResourceSpecs.{pod.type}.resource",
                    field=f"spec.{group}.{index}.resource",
                )


def target_of(plan: Standing, role: str) -> dict[str, Any]:
    """Return the target of a plan as ``status.target`` has it; ``role`` has the replicas of all
    groups.
    """
    groups = {name: size.replicas for name, size in groups_of(plan.target.roles)}
    sizes = {role: plan.target.replicas, **groups}
    found: dict[str, dict[str, Any]] = {name: {"replicas": n} for name, n in sizes.items()}
    if plan.changes_resources:
        for name, one in found.items():
            one["resource"] = shown(plan.target.of(name))
    return {"roles": found}


def only_moves(plan: ScalePlan, job: ElasticJob) -> bool:
    """True if a plan replaces pods and keeps their number."""
    spec = plan.spec
    sized = any(one.replicas is not None for one in spec.replica_resource_specs.values())
    changed = {each.type for each in (*spec.create_pods, *spec.remove_pods)}
    return bool(spec.migrate_pods) and not sized and job.scaled not in changed


def moving(names: Sequence[str]) -> list[StatusCondition]:
    """Return conditions of a plan whose pods are moving."""
    message = f"{', '.join(names)} are replaced on other nodes"
    asked = (
        "this user may create ScalePlans, so the pods are replaced; Brain decides only about sizes"
    )
    return [
        _said(PlanCondition.ACCEPTED, True, Reason.VALID, message),
        _said(PlanCondition.APPROVED, True, Reason.PERSON, asked),
        _said(PlanCondition.EXECUTING, True, Reason.APPLYING, message),
    ]


def moved() -> list[StatusCondition]:
    """Return conditions of a plan whose pods have moved."""
    return [
        _said(PlanCondition.EXECUTING, False, Reason.APPLIED, ""),
        _said(PlanCondition.COMPLETE, True, Reason.APPLIED, "all pods have gone"),
        _said(PlanCondition.VERIFIED, None, Reason.INCONCLUSIVE, "nothing was promised"),
    ]


def within_limits(asked: Wanted, job: ElasticJob) -> tuple[int, str]:
    """Return the part of a requested size that the job's ``resourceLimits`` allow, and the reason.

    A job with groups has no ``resourceLimits``.
    """
    limits, each = job.spec.resource_limits, needs(job.template_of().get("spec") or {})
    if asked.resources is not None:
        each |= {name: quantity(said, name) for name, said in shown(asked.resources).items()}
    why = excess(each, asked.replicas, limits)
    if why is None:
        return asked.replicas, ""
    return min(asked.replicas, allowed(each, limits) or 0), why


def why_refused(refusal: BrainError) -> Reason:
    """Return one word for why Brain refuses a plan's request."""
    match refusal:
        case BadInput():
            return Reason.OUT_OF_BOUNDS
        case NotFound():
            return Reason.NO_JOB
        case NotAllowed():
            return Reason.NOT_ALLOWED
        case _:
            return Reason.ANOTHER_ACTIVE if "is being applied" in str(refusal) else Reason.REFUSED


def published(job: Object, view: JobView) -> dict[str, Any]:
    """Build the object for a plan that began without one."""
    plan, metadata = view.plan, job["metadata"]
    assert plan is not None, "the caller has looked"
    scaled = read_elastic_job(job).scaled
    owner = identity.owner(metadata["name"], metadata["uid"]) | {"controller": False}
    return {
        "apiVersion": API_VERSION,
        "kind": "ScalePlan",
        "metadata": {
            "name": f"{metadata['name']}-plan-{plan.generation}",
            "namespace": metadata["namespace"],
            "labels": {
                JOB_LABEL: metadata["name"],
                SCALE_TYPE: AUTO,
                identity.MANAGED_BY: identity.MANAGER,
            },
            "annotations": {identity.GENERATION: str(plan.generation)},
            "ownerReferences": [owner],
        },
        "spec": {
            "ownerJob": metadata["name"],
            "replicaResourceSpecs": target_of(plan, scaled)["roles"],
            "expiresAt": instant(plan.expires_at),
        },
    }


def collected(
    finished: Iterable[Object], stands: int, now: datetime, keeping: PlanRetention
) -> frozenset[str]:
    """Return names of the job's finished plans to delete: those beyond a count, and old ones."""
    old = sorted(finished, key=lambda each: age_seconds(each, now))
    gone = [
        each
        for place, each in enumerate(old)
        if place >= keeping.count or age_seconds(each, now) >= keeping.seconds
    ]
    return frozenset(
        each["metadata"]["name"]
        for each in gone
        if (each.get("status") or {}).get("generation") != stands
    )


def unreadable(plan: Object, now: datetime, keeping: PlanRetention) -> bool:
    """True if an unreadable plan must be deleted: refused long ago, and without a target."""
    status = plan.get("status") or {}
    refused = phase_of(plan) in CLOSED and status.get("generation") is None
    return refused and age_seconds(plan, now) >= keeping.seconds


def with_phase(plan: ScalePlan, phase: str) -> ScalePlan:
    """Return the same plan in another phase."""
    return msgspec.structs.replace(plan, status=msgspec.structs.replace(plan.status, phase=phase))


def own_generation(plan: ScalePlan) -> int | None:
    said = plan.metadata.annotations.get(identity.GENERATION, "")
    return int(said) if said.isdecimal() else None


def job_key(plan: Object) -> tuple[str, ...]:
    metadata = plan["metadata"]
    name = (plan.get("spec") or {}).get("ownerJob") or (metadata.get("labels") or {}).get(JOB_LABEL)
    return (str(Key(metadata.get("namespace", ""), name)),) if name else ()


def phase_of(plan: Object) -> str:
    return str((plan.get("status") or {}).get("phase") or "")


def age_seconds(plan: Object, now: datetime) -> float:
    status = plan.get("status") or {}
    said = status.get("finishTime") or plan["metadata"].get("creationTimestamp")
    if not isinstance(said, str):
        return 0.0
    return (now - datetime.fromisoformat(said.replace("Z", "+00:00"))).total_seconds()
