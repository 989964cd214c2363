"""What a ScalePlan's status says of the plan that it was turned into: pure."""

from typing import Any

from brain.types.plan import PlanState, ScalePlan, Verdict
from brain.types.recommendation import Prediction
from scaler.kubernetes.kinds import PlanCondition, Reason
from scaler.kubernetes.machinery.status import Condition, instant

#: Phases after which nothing happens to a plan any more.
CLOSED = frozenset({"Verified", "RolledBack", "Rejected", "Superseded", "Expired", "Failed"})
_BEGUN = frozenset(
    {PlanState.APPLYING, PlanState.APPLIED, PlanState.VERIFIED, PlanState.ROLLED_BACK}
)
_MET = frozenset({PlanState.APPLIED, PlanState.VERIFIED, PlanState.ROLLED_BACK})
_ENDS = {
    PlanState.REJECTED: Reason.REJECTED,
    PlanState.SUPERSEDED: Reason.SUPERSEDED,
    PlanState.EXPIRED: Reason.EXPIRED,
    PlanState.FAILED: Reason.ENDED,
}


def progress(plan: ScalePlan) -> tuple[list[Condition], dict[str, Any]]:
    """Conditions and fields of a plan as Brain has it."""
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


def _approved(plan: ScalePlan) -> Condition:
    if plan.approval is None:
        waits = "a person approves it in Brain: brain approve, or the inbox"
        return _said(PlanCondition.APPROVED, False, Reason.PROPOSED, waits)
    by_policy = plan.approval.by.startswith("policy:")
    reason = Reason.POLICY if by_policy else Reason.PERSON
    return _said(PlanCondition.APPROVED, True, reason, f"approved by {plan.approval.by}")


def _executing(plan: ScalePlan) -> Condition:
    moving = plan.state is PlanState.APPLYING
    begun = plan.state in _BEGUN
    reason = Reason.APPLYING if moving else Reason.APPLIED if begun else Reason.PROPOSED
    return _said(PlanCondition.EXECUTING, moving, reason, "")


def _complete(plan: ScalePlan) -> Condition:
    met = plan.state in _MET
    message = f"world {plan.outcome.epoch} met the target" if plan.outcome.epoch else ""
    return _said(PlanCondition.COMPLETE, met, Reason.APPLIED if met else Reason.PROPOSED, message)


def _verified(plan: ScalePlan) -> Condition | None:
    verdict, detail = plan.outcome.verdict, plan.outcome.detail
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


def _said(type: PlanCondition, status: bool | None, reason: Reason, message: str) -> Condition:
    return Condition(type=type, status=status, reason=reason, message=message)
