"""Time limits for plans that wait for nodes or replicas."""

from dataclasses import replace
from datetime import datetime

from brain.lifecycle.amounts import refused
from brain.lifecycle.capacity import Room, lacks_nodes
from brain.lifecycle.plans import AUTO, ROLLBACK, expire, fail, obstacle, reserving, settle
from brain.lifecycle.records import move_job, move_plan
from brain.lifecycle.restarts import overtaken
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import JobState
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.typeset import duration, plan_change


def apply(tx: Transaction, plan: ScalePlan, *, settings: Settings, now: datetime) -> ScalePlan:
    """Mark a plan as applied once its target is met; abandon a plan that cannot be carried out.

    A plan cannot be carried out if a replica refuses its amounts, if it would come too late, or if
    it does not get its nodes in time.
    """
    plan = settle(tx, plan, settings=settings, now=now)
    why = refused(tx, plan, now) or overdue(plan, settings, now) or overtaken(tx, plan)
    if plan.state is PlanState.APPLYING and not why and shut_out(tx, plan, settings, now):
        span = duration(settings.verify_seconds)
        return _give_up(
            tx,
            plan,
            f"no room became free on the plan's nodes within {span}; the job stays where it is",
            now,
        )
    if plan.state is not PlanState.APPLYING or not why:
        return plan
    if plan.kind is PlanKind.RESTORE:
        return _relent(tx, plan, why, now)
    return fail(tx, plan, why, settings=settings, now=now)


def overdue(plan: ScalePlan, settings: Settings, now: datetime) -> str:
    """Return the reason to abandon a plan: its amounts were not applied in time, or its restart
    would come too late.

    The result is empty if there is no such reason. A plan of amounts has a time limit, because
    Brain decides nothing else about the job while the plan is active. Such a plan needs no restart,
    so it does not wait for a safe point.
    """
    if plan.kind is PlanKind.RESTART and now >= plan.expires_at:
        return "no safe point came before the time at which memory was predicted to run out"
    waited = (now - plan.updated_at).total_seconds()
    if plan.kind is not PlanKind.RESIZE or not plan.in_place or waited < settings.verify_seconds:
        return ""
    return f"not every replica reserved the new amounts within {duration(waited)}"


def shut_out(tx: Transaction, plan: ScalePlan, settings: Settings, now: datetime) -> bool:
    """Return True if a plan that only moves replicas did not get its nodes in time.

    Once the plan's replicas run on these nodes, the plan may wait for a safe point without a time
    limit.
    """
    late = (now - plan.updated_at).total_seconds() >= settings.verify_seconds
    waits = plan.state is PlanState.APPLYING and plan.only_moves and late
    return waits and lacks_nodes(tx, plan)


def _relent(tx: Transaction, plan: ScalePlan, why: str, now: datetime) -> ScalePlan:
    """Give up a RESTORE whose amounts a replica refuses; the larger amounts stand from then on."""
    most = plan.target.resources.loosest(plan.current.resources)
    reserving(tx, tx.jobs.get(plan.job), most, now)
    return _give_up(tx, plan, f"{why}; the replicas keep the larger amounts", now)


def _give_up(tx: Transaction, plan: ScalePlan, why: str, now: datetime) -> ScalePlan:
    """End a plan without a successor: the job goes on as it is."""
    outcome = replace(plan.outcome, detail=why)
    failed = move_plan(tx, plan, PlanState.FAILED, why, now, outcome=outcome)
    job = tx.jobs.get(plan.job)
    if job.state is JobState.CHANGING:
        move_job(tx, job, JobState.RUNNING, why, now)
    return failed


def lapse(tx: Transaction, plan: ScalePlan, *, now: datetime, room: Room) -> None:
    """End an approved plan that could not begin in time, if no person approved it.

    A rollback ends only if it changes amounts in place. A plan for a restart ends even if a person
    approved it. After such a delay, the measurements behind the plan are old, and while the plan
    waits, Brain decides nothing else about the job.
    """
    lapses = (AUTO, ROLLBACK) if plan.in_place else (AUTO,)
    by_policy = plan.approval is not None and plan.approval.by in lapses
    late = now >= plan.expires_at and (by_policy or plan.kind is PlanKind.RESTART)
    if plan.state is PlanState.APPROVED and late:
        kept = obstacle(tx, tx.jobs.get(plan.job), plan, now, room=room)
        what = plan_change(plan)
        expire(tx, plan, now, why=f"{what} could not begin in time: {kept}")
