"""What becomes of an approved plan that waits for room or for replicas: it goes on, or ends."""

from datetime import datetime

from brain.lifecycle.amounts import refused
from brain.lifecycle.capacity import Room
from brain.lifecycle.plans import AUTO, ROLLBACK, expire, fail, obstacle, relent, settle
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.typeset import duration, reallocation


def apply(tx: Transaction, plan: ScalePlan, *, settings: Settings, now: datetime) -> ScalePlan:
    """Take note that a plan was applied, or give it up where replicas do not take it."""
    plan = settle(tx, plan, settings=settings, now=now)
    why = refused(tx, plan, now) or overdue(plan, settings, now)
    if plan.state is not PlanState.APPLYING or not why:
        return plan
    if plan.kind is PlanKind.RESTORE:
        return relent(tx, plan, why, now)
    return fail(tx, plan, why, settings=settings, now=now)


def overdue(plan: ScalePlan, settings: Settings, now: datetime) -> str:
    """Why advice on amounts that no scaler carries out is given up; empty: it is not, or not yet.

    Nothing restarts for it, so there is nothing to wait for; meanwhile Brain decides nothing else.
    """
    waited = (now - plan.updated_at).total_seconds()
    if plan.kind is not PlanKind.RESIZE or not plan.in_place or waited < settings.verify_seconds:
        return ""
    return f"not every replica was said to reserve it within {duration(waited)}"


def lapse(tx: Transaction, plan: ScalePlan, *, now: datetime, room: Room) -> None:
    """End advice that only the policy approved and that could not begin in time; the way back to
    earlier amounts, too.

    By then its measurements are old, and while it waits Brain decides nothing else about its job.
    """
    lapses = (AUTO, ROLLBACK) if plan.in_place else (AUTO,)
    by_policy = plan.approval is not None and plan.approval.by in lapses
    if plan.state is PlanState.APPROVED and by_policy and now >= plan.expires_at:
        kept = obstacle(tx, tx.jobs.get(plan.job), plan, room=room)
        what = reallocation(plan.current, plan.target)
        expire(tx, plan, now, why=f"{what} could not begin in time: {kept}")
