"""Transitions of plans: proposal, approval, start, application, verdict, undoing.

A function that changes a plan takes the plan that was read and returns the plan that was stored. If
a plan is abandoned after it has begun, a plan of kind RESTORE with the present target follows. So
the job returns to this target with a new generation, and generations only increase.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from brain.errors import Conflict
from brain.lifecycle.batches import ask_with
from brain.lifecycle.capacity import Room, has_left, provided, room, sized
from brain.lifecycle.desired import (
    EMPTY,
    begun_anew,
    freeze_reason,
    frozen,
    may_act,
    meets,
    moved,
    reached,
    standing,
    wished_batch,
)
from brain.lifecycle.records import BRAIN, move_job, move_plan, told
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.explanation import Explanation
from brain.types.job import Intent, Job, JobId, JobState
from brain.types.plan import Approval, Outcome, PlanKind, PlanState, ScalePlan, Verdict
from brain.types.recommendation import Prediction, Recommendation
from brain.types.resources import Resources
from brain.types.roles import groups_of
from brain.typeset import count, plan_change, reallocation

#: The approver of plans that the policy approves.
AUTO, ROLLBACK, RESTORE = "policy:auto", "policy:rollback", "policy:restore"

_STEADY = frozenset({JobState.RUNNING, JobState.DEGRADED})


def propose(
    tx: Transaction,
    job: Job,
    advice: Recommendation,
    *,
    settings: Settings,
    now: datetime,
    after: tuple[tuple[JobId, int], ...] = (),
    room: Room = room,
) -> ScalePlan:
    """Store Brain's advice as a plan, and approve the plan if the policy allows this.

    ``after`` names the plans that free resources for this plan. Brain approves this plan only once
    those plans are approved.

    Raises:
        Conflict: another plan is active, or another Brain stored this generation first.
    """
    plan = draft(
        tx,
        job,
        PlanKind.RESIZE,
        advice.target,
        advice.explanation,
        settings=settings,
        now=now,
        current=advice.current,
        measured=advice.measured,
        promised=advice.predicted,
        restart_seconds=advice.restart_seconds,
        payback_seconds=advice.payback_seconds,
        after=after,
    )
    return stored(tx, job, plan, settings=settings, now=now, room=room)


def stored(
    tx: Transaction,
    job: Job,
    plan: ScalePlan,
    *,
    settings: Settings,
    now: datetime,
    room: Room = room,
) -> ScalePlan:
    """Store one of Brain's plans; approve and begin the plan if the policy allows this."""
    tx.plans.add(plan)
    told(tx, plan, plan.explanation.reason, now)
    return proceed(tx, job, plan, settings=settings, now=now, room=room)


def proceed(
    tx: Transaction,
    job: Job,
    plan: ScalePlan,
    *,
    settings: Settings,
    now: datetime,
    room: Room = room,
) -> ScalePlan:
    """Approve a proposal and begin it, if the policy allows this, and the plans that free resources
    for it are approved.
    """
    if not may_act(job, settings) or unapproved(tx, plan):
        return plan
    return begin(tx, approved(tx, plan, AUTO, now), settings=settings, now=now, room=room)


def unapproved(tx: Transaction, plan: ScalePlan) -> ScalePlan | None:
    """Return the first plan, if any, that frees resources for ``plan`` and is not approved yet."""
    needed = (tx.plans.get(job, generation) for job, generation in plan.after)
    return next((one for one in needed if one.state is PlanState.PROPOSED), None)


def forsaken(tx: Transaction, plan: ScalePlan) -> ScalePlan | None:
    """Return the first plan, if any, that ended without freeing its resources for ``plan``."""
    needed = (tx.plans.get(job, generation) for job, generation in plan.after)
    return next((one for one in needed if not one.active and not reached(one)), None)


def begin(
    tx: Transaction, plan: ScalePlan, *, settings: Settings, now: datetime, room: Room = room
) -> ScalePlan:
    """Begin to apply an approved plan, at most once; return the plan unchanged if an obstacle
    remains.
    """
    job = tx.jobs.get(plan.job)
    if plan.state is not PlanState.APPROVED or obstacle(tx, job, plan, now, room=room):
        return plan
    begins = plan_change(plan) if _stays(plan) else f"{plan_change(plan)} begins"
    plan = move_plan(tx, plan, PlanState.APPLYING, begins, now)
    ask_with(tx, job, plan, now)
    if job.state in _STEADY:
        move_job(tx, job, JobState.CHANGING, plan_change(plan), now)
    return settle(tx, plan, settings=settings, now=now)


def settle(tx: Transaction, plan: ScalePlan, *, settings: Settings, now: datetime) -> ScalePlan:
    """Mark a plan in Applying as Applied once the observed world meets its target."""
    world = tx.worlds.latest(plan.job)
    if plan.state is not PlanState.APPLYING or world is None or not meets(world, plan.target):
        return plan
    # A change of size is met on any nodes; a plan that only moves replicas is met on its own nodes.
    if plan.only_moves and not moved(world, plan.target):
        return plan
    if plan.changes_resources and not provided(tx, plan.job, plan.target):
        return plan
    if plan.kind is PlanKind.RESTART and not begun_anew(world, plan):
        return plan
    stands = plan.in_place and world.formed_at < plan.updated_at
    outcome = replace(
        plan.outcome,
        epoch=world.epoch,
        downtime_seconds=0.0 if stands else world.downtime_seconds,
        steps_redone=0 if stands else world.steps_redone,
    )
    message = f"world {world.epoch} trains with {count(world.replicas, 'replica')}"
    if plan.kind is PlanKind.ROLLBACK:
        message += f" again: {reallocation(plan.target, plan.current)} is rolled back"
    plan = move_plan(tx, plan, PlanState.APPLIED, message, now, outcome=outcome)
    job = tx.jobs.get(plan.job)
    if plan.changes_resources:
        job = reserving(tx, job, plan.target.resources, now)
    if job.state is JobState.CHANGING:
        move_job(tx, job, JobState.RUNNING, message, now)
    return plan


def obstacle(
    tx: Transaction, job: Job, plan: ScalePlan, now: datetime, *, room: Room = room
) -> str | None:
    """Return the obstacle that keeps an approved plan from beginning; None if there is none.

    A plan of kind RESTORE has no new size, so neither a freeze nor the job's state stops it, unless
    the job has ended.
    """
    if job.finished:
        return f"the job is {job.state}"
    if plan.kind is PlanKind.RESTORE:
        return None
    freeze = frozen(tx, job)
    if freeze:
        return freeze_reason(job, freeze)
    if job.intent is not Intent.RUN:
        return f"a request to {job.intent} the job is pending"
    if job.state not in _STEADY | {JobState.CHANGING}:
        return f"the job is {job.state}"
    waits = [(j, g) for j, g in plan.after if not has_left(tx, tx.plans.get(j, g))]
    if waits:
        other, generation = tx.jobs.get(waits[0][0]), waits[0][1]
        return f"plan {generation} of {other.document.name} has not freed its resources yet"
    target, asked = plan.target, job
    if plan.changes_resources or groups_of(target.roles):
        asked = sized(job, target)
    more = plan.current.each.at_least(target.each) != plan.current.each
    grows = target.replicas > plan.current.replicas or more
    if grows and (fits := room(tx, asked, now)) < target.replicas:
        return f"the pool has room for {fits} of {count(target.replicas, 'replica')} now"
    return None


def fail(
    tx: Transaction, plan: ScalePlan, why: str, *, settings: Settings, now: datetime
) -> ScalePlan:
    """Mark a plan as failed, and restore the present target if the plan had begun; return the
    failed plan.

    A plan of kind RESTORE that cannot continue stays active, because there is no other target to
    restore.
    """
    begun = plan.state is PlanState.APPLYING
    if begun and plan.kind is PlanKind.RESTORE:
        return plan
    failed = move_plan(
        tx, plan, PlanState.FAILED, why, now, outcome=replace(plan.outcome, detail=why)
    )
    job = tx.jobs.get(plan.job)
    if not begun or job.finished:
        return failed
    if job.state is JobState.CHANGING:
        job = move_job(tx, job, JobState.RUNNING, f"{plan_change(plan)} was given up: {why}", now)
    _, target = standing(tx.plans.effective(job.id), job)
    target = replace(target, batch=plan.current.batch)
    changed = plan.target if plan.changes_resources else target
    # The world may never have had the abandoned size, so the running world is the one that remains.
    world = tx.worlds.latest(job.id)
    runs = 0 if world is None or world.ended_at is not None else world.replicas
    explanation = Explanation(
        code="restore",
        reason=f"{plan_change(plan)} was given up: {why}",
        next_step=f"The job goes on with {count(target.replicas, 'replica')}.",
    )
    restore = draft(
        tx,
        job,
        PlanKind.RESTORE,
        target,
        explanation,
        settings=settings,
        now=now,
        current=replace(
            target,
            replicas=runs or target.replicas,
            resources=changed.resources,
            roles=changed.roles,
        ),
    )
    tx.plans.add(restore)
    told(tx, restore, explanation.reason, now)
    begin(tx, approved(tx, restore, RESTORE, now), settings=settings, now=now)
    return failed


def reserving(tx: Transaction, job: Job, amounts: Resources, now: datetime) -> Job:
    """Store the amounts that each replica of a job reserves from now on."""
    kept = None if amounts == job.document.resources else amounts
    return tx.jobs.put(replace(job, amounts=kept, updated_at=now))


def expire(tx: Transaction, plan: ScalePlan, now: datetime, *, why: str = "") -> ScalePlan:
    """End a plan that was not approved in time, or that can no longer begin."""
    message = why or f"nobody approved {plan_change(plan)} in time"
    outcome = replace(plan.outcome, detail=message)
    return move_plan(tx, plan, PlanState.EXPIRED, message, now, outcome=outcome)


def inconclusive(tx: Transaction, plan: ScalePlan, why: str, now: datetime) -> ScalePlan:
    """End the verification of an applied plan without a verdict on its promise."""
    return verified(tx, plan, Verdict.INCONCLUSIVE, why, now, None)


def close(tx: Transaction, job: Job, why: str, now: datetime) -> None:
    """End the active plan of a finished job; a plan that had begun counts as failed."""
    plan = tx.plans.active(job.id)
    match plan.state if plan else None:
        case PlanState.PROPOSED if plan:
            expire(tx, plan, now, why=f"{why}; nobody had decided about {plan_change(plan)}")
        case PlanState.APPROVED if plan:
            expire(tx, plan, now, why=f"{why}; {plan_change(plan)} had not begun")
        case PlanState.APPLYING if plan:
            outcome = replace(plan.outcome, detail=why)
            move_plan(tx, plan, PlanState.FAILED, why, now, outcome=outcome)
        case PlanState.APPLIED if plan:
            inconclusive(tx, plan, why, now)


def draft(
    tx: Transaction,
    job: Job,
    kind: PlanKind,
    target: Allocation,
    explanation: Explanation,
    *,
    settings: Settings,
    now: datetime,
    **more: Any,
) -> ScalePlan:
    """Return a proposed plan with the job's next generation; nothing is stored."""
    plans = tx.plans.of(job.id)
    current = more.get("current") or standing(plans, job)[1]
    more["current"] = replace(current, batch=wished_batch(tx, job))
    return ScalePlan(
        job=job.id,
        generation=1 + max((plan.generation for plan in plans), default=0),
        kind=kind,
        target=target,
        explanation=explanation,
        created_at=now,
        updated_at=now,
        expires_at=now + timedelta(seconds=settings.proposal_seconds),
        **more,
    )


def undoing(
    tx: Transaction,
    job: Job,
    plan: ScalePlan,
    reason: str,
    *,
    settings: Settings,
    now: datetime,
    by: str = BRAIN,
    code: str = "rollback",
) -> ScalePlan:
    """Return a rollback of ``plan``: a plan that restores the previous target.

    The rollback promises nothing, because the throughput at that target was already measured.
    """
    said = "The rollback begins at the next safe point."
    explanation = Explanation(code=code, reason=reason, next_step=said)
    return draft(
        tx,
        job,
        PlanKind.ROLLBACK,
        plan.current,
        explanation,
        settings=settings,
        now=now,
        current=plan.target,
        measured=plan.outcome.measured,
        proposed_by=by,
    )


def instead(
    tx: Transaction,
    job: Job,
    active: ScalePlan | None,
    plan: ScalePlan,
    *,
    by: str,
    settings: Settings,
    now: datetime,
    room: Room = room,
) -> ScalePlan:
    """Store ``plan`` as approved in place of the active plan, and begin ``plan`` if possible; raise
    Conflict if the active plan changes a world and ``plan`` cannot begin now.
    """
    if active is not None:
        applying = active.state is PlanState.APPLYING and job.state not in EMPTY
        blocked = obstacle(tx, job, plan, now, room=room) if applying else None
        if blocked:
            raise Conflict(f"plan {active.generation} is being applied and stays active: {blocked}")
        message = f"superseded by plan {plan.generation}"
        outcome = replace(active.outcome, detail=message)
        move_plan(tx, active, PlanState.SUPERSEDED, message, now, by=by, outcome=outcome)
    tx.plans.add(plan)
    told(tx, plan, plan.explanation.reason, now, by=by)
    return begin(tx, approved(tx, plan, by, now), settings=settings, now=now, room=room)


def approved(tx: Transaction, plan: ScalePlan, by: str, now: datetime) -> ScalePlan:
    what = f"that {plan_change(plan)}" if _stays(plan) else plan_change(plan)
    message = f"{by} approved {what}"
    approval = Approval(by=by, at=now)
    return move_plan(tx, plan, PlanState.APPROVED, message, now, by=by, approval=approval)


def verified(
    tx: Transaction,
    plan: ScalePlan,
    verdict: Verdict,
    detail: str,
    now: datetime,
    measured: Prediction | None,
) -> ScalePlan:
    """Store the verdict on a plan whose size is kept."""
    outcome: Outcome = replace(plan.outcome, measured=measured, verdict=verdict, detail=detail)
    message = f"{replace(plan, outcome=outcome).judged}: {detail}"
    return move_plan(tx, plan, PlanState.VERIFIED, message, now, outcome=outcome)


def _stays(plan: ScalePlan) -> bool:
    """Return True if a plan's change is a sentence about a size that stays."""
    return plan.current == plan.target and plan.kind is not PlanKind.RESTART
