"""Pure functions for ScalePlans: status and conditions, and which finished ones to delete."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from brain.errors import BadInput, BrainError, NotAllowed, NotFound
from brain.types.plan import PlanState, PlanVerdict, Verdict
from brain.types.plan import ScalePlan as Standing
from brain.types.recommendation import Prediction
from brain.views import JobView
from scaler.kubernetes.kinds import (
    API_VERSION,
    JOB_LABEL,
    ElasticJob,
    PlanCondition,
    Reason,
    ScalePlan,
)
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.amounts import shown
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
    """Return the conditions and fields that show the state of a plan in Brain."""
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
        waits = "a person must approve the plan: with `brain approve`, or in the dashboard's inbox"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRetention:
    """Limits for keeping finished plans."""

    count: int = 20
    seconds: float = 3600.0


def target_of(plan: Standing, role: str) -> dict[str, Any]:
    """Return the target of a plan in the form of ``status.target``; ``role`` has the replicas of
    all groups.
    """
    groups = {name: size.replicas for name, size in plan.target.roles}
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
    message = f"other nodes get replacements for these pods: {', '.join(names)}"
    asked = (
        "a user who may create ScalePlans requested the move; Brain approves only changes of size"
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
        _said(
            PlanCondition.COMPLETE, True, Reason.APPLIED, "all pods that the plan names have ended"
        ),
        _said(PlanCondition.VERIFIED, None, Reason.INCONCLUSIVE, "the plan promised no throughput"),
    ]


def why_refused(refusal: BrainError) -> Reason:
    """Return the reason of the condition for a plan whose request Brain refuses."""
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
    """Build the ScalePlan object for a plan that did not come from such an object."""
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
    """Return the names of the job's finished plans to delete: plans beyond the number to keep, and
    plans that ended too long ago.
    """
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
    """True if a plan that cannot be read must be deleted: it was refused long ago and has no
    target.
    """
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
