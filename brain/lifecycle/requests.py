"""Requests of people and programs about plans: request a size, approve, reject, roll back.

A request for a size needs no other approval. A function that changes a plan takes the plan that was
read and the version that the requester saw. Each request returns the plan that was stored.
"""

from dataclasses import replace
from datetime import datetime

from brain.errors import BadInput, Conflict, IllegalTransition, VersionMismatch
from brain.lifecycle.advising import count_rollbacks
from brain.lifecycle.amounts import overused
from brain.lifecycle.capacity import Room, fitting, room, room_beside_others
from brain.lifecycle.desired import EMPTY, effective_mode, standing, wished
from brain.lifecycle.observed import look
from brain.lifecycle.plans import (
    approved,
    begin,
    draft,
    instead,
    unapproved,
    undoing,
)
from brain.lifecycle.records import move_plan
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.explanation import Explanation
from brain.types.job import FINISHED, Job, PolicyMode
from brain.types.plan import PLAN_MOVES, PlanKind, PlanState, ScalePlan, Verdict
from brain.types.roles import others
from brain.types.world import ReplicaState
from brain.typeset import count, plan_change


def request(
    tx: Transaction,
    job: Job,
    replicas: int,
    *,
    by: str,
    why: str,
    beyond: bool = False,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Store a request of a person or program for a size, reduced to the size that fits now, and
    begin the plan if possible.

    A request needs no other approval. The new plan supersedes an active plan. A plan that is being
    applied is superseded only if the new plan can begin immediately, or if no replica of the job
    may run. A size outside the job's bounds is refused, or clamped to the bounds if ``beyond`` is
    set.

    Raises:
        BadInput: the request is for no replicas, or for a size beyond the bounds.
        Conflict: the job ended, nothing would change, or no allowed size fits.
    """
    expect_unfinished(job)
    if not beyond:
        expect_allowed(job, replicas)
    plans = tx.plans.of(job.id)
    _, current = standing(plans, job)
    # An edit that is under way goes on, with the new size.
    ahead = wished(plans, job)[1]
    amounts = ahead.resources
    room = room_beside_others(tx, job, now)
    size, clamped = clamp(tx, job, ahead, replicas, now, room=room)
    expect_workers(replace(ahead, replicas=size))
    active = tx.plans.active(job.id)
    _expect_change(job, size, current, active, clamped)
    sight = look(tx, job, settings=settings, now=now)
    said = f"{by} asked for {count(replicas, 'replica')}"
    plan = draft(
        tx,
        job,
        PlanKind.REQUEST,
        replace(job.sized(size), resources=amounts, roles=ahead.roles),
        Explanation(
            code="requested",
            reason="; ".join(
                part for part in (said + (f": {why}" if why else ""), clamped) if part
            ),
            next_step=_next_step(job, size),
        ),
        settings=settings,
        now=now,
        measured=sight.now,
        promised=None if ahead.roles else sight.promise(size),
        proposed_by=by,
    )
    return instead(tx, job, active, plan, by=by, settings=settings, now=now, room=room)


def _next_step(job: Job, size: int) -> str:
    said = "The change begins once the job runs, nothing freezes it and the pool has room."
    if job.state not in EMPTY:
        return said
    edit = f"brain edit {job.document.name} --replicas {size}"
    return f"{said} To start the job with this size, run `{edit}`."


def clamp(
    tx: Transaction,
    job: Job,
    ahead: Allocation,
    replicas: int,
    now: datetime,
    *,
    room: Room = room,
) -> tuple[int, str]:
    """Return the possible size nearest to a request for ``replicas``, and the reason if it differs.

    The result is the largest possible size up to ``replicas``; if there is none, the smallest
    possible size. Replicas have the roles and amounts of ``ahead``, the target that the job is
    heading for.

    Raises:
        BadInput: ``replicas`` is less than 1.
        Conflict: not even the smallest allowed size fits the pool.
    """
    _expect_some(replicas)
    sizes = list(job.document.replicas.sizes())

    def with_live(tx: Transaction, asked: Job, now: datetime) -> int:
        """Return the room, which live replicas have whatever others reserve on their nodes: a job
        may always shrink.
        """
        live = [one for one in tx.worlds.replicas(job.id) if one.state is not ReplicaState.EXITED]
        return max(room(tx, asked, now), len(live) if asked.resources == job.resources else 0)

    fits = fitting(tx, job, ahead, now, room=with_live)
    most = job.document.resource_limits.most(ahead)
    possible = [size for size in sizes if size <= fits]
    if not possible:
        expect_within_limits(job, replace(ahead, replicas=max(sizes[0], others(ahead.roles) + 1)))
        raise Conflict(
            f"the job needs at least {count(sizes[0], 'replica')}, but pool {job.pool} has room "
            f"for {fits} now; free part of the pool, or wait"
        )
    size = max((size for size in possible if size <= replicas), default=possible[0])
    if size == replicas:
        return size, ""
    reasons = []
    if not job.document.replicas.allow(replicas):
        reasons.append(f"its bounds allow {_limits(job)}")
    if size == possible[-1] and size != sizes[-1] and replicas > fits:
        pool = f"the pool has room for {fits} now"
        reasons.append(pool if fits != most else f"its resourceLimits allow {fits}")
    return size, " and ".join(reasons)


def approve(
    tx: Transaction,
    plan: ScalePlan,
    *,
    by: str,
    version: int | None,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Approve a proposal at the version that the person saw, and begin the plan if possible.

    Raises:
        VersionMismatch: the plan changed since ``version``.
        Conflict: the plan cannot be approved; ``refusal`` has the reason.
        BadInput: the job's bounds or resource limits were lowered since, and the plan exceeds them.
    """
    _expect_version(plan, version)
    job = tx.jobs.get(plan.job)
    why_not = refusal(job, plan, settings, now) or alone(tx, plan) or overused(tx, plan, now)
    if why_not:
        raise Conflict(why_not)
    if plan.target.replicas != plan.current.replicas:
        expect_allowed(job, plan.target.replicas)
    expect_within_limits(job, plan.target)
    return begin(tx, approved(tx, plan, by, now), settings=settings, now=now)


def reject(
    tx: Transaction, plan: ScalePlan, *, by: str, version: int | None, why: str, now: datetime
) -> ScalePlan:
    """Reject a plan that has not begun.

    Raises:
        VersionMismatch: the plan changed since ``version``.
        IllegalTransition: the plan has begun, or is finished; the message names the remedy.
    """
    _expect_version(plan, version)
    if PlanState.REJECTED not in PLAN_MOVES[plan.state]:
        name = tx.jobs.get(plan.job).document.name
        remedy = (
            f"`brain rollback {name}` returns to the size before the plan"
            if plan.state in (PlanState.APPLYING, PlanState.APPLIED, PlanState.VERIFIED)
            else f"`brain plans {name}` lists the plans that wait"
        )
        raise IllegalTransition(
            f"plan {plan.generation} of {name} is {plan.state} and cannot be rejected; {remedy}"
        )
    message = f"{by} rejected {plan_change(plan)}" + (f": {why}" if why else "")
    outcome = replace(plan.outcome, detail=message)
    return move_plan(tx, plan, PlanState.REJECTED, message, now, by=by, outcome=outcome)


def rollback(
    tx: Transaction,
    plan: ScalePlan,
    *,
    by: str,
    version: int | None,
    why: str,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Store a rollback as a new plan that restores the target which ``plan`` replaced, and begin
    the rollback if possible; return the new plan.

    Raises:
        VersionMismatch: the plan changed since ``version``.
        Conflict: the plan is not in force or changed nothing, or the job ended.
        BadInput: the job's bounds no longer allow the earlier size.
    """
    _expect_version(plan, version)
    job = tx.jobs.get(plan.job)
    expect_unfinished(job)
    generation, _ = standing(tx.plans.effective(job.id), job)
    if plan.current == plan.target and not plan.changes_batch:
        raise Conflict(
            f"plan {plan.generation} changed no size, so there is no size to return to; ask for a "
            "size with `brain resize`"
        )
    if plan.generation != generation:
        raise Conflict(
            f"plan {plan.generation} is not in force (plan {generation} is); ask for a size with "
            "`brain resize`"
        )
    if plan.target.replicas != plan.current.replicas:
        expect_allowed(job, plan.current.replicas)
    reason = f"{by} rolled {plan_change(plan)} back" + (f": {why}" if why else "")
    active = tx.plans.active(job.id)
    if active and active.generation == plan.generation:
        outcome = replace(plan.outcome, verdict=Verdict.INCONCLUSIVE, detail=reason)
        move_plan(tx, plan, PlanState.ROLLED_BACK, reason, now, by=by, outcome=outcome)
        active = None
    back = undoing(tx, job, plan, reason, settings=settings, now=now, by=by)
    back = instead(tx, job, active, back, by=by, settings=settings, now=now)
    count_rollbacks(tx, plan, settings, now)
    return back


def refusal(job: Job, plan: ScalePlan, settings: Settings, now: datetime) -> str | None:
    """Return the reason why ``plan`` cannot be approved; None if it can."""
    if job.finished:
        return f"job {job.document.name} is {job.state} and cannot change any more"
    if plan.state is not PlanState.PROPOSED:
        return f"plan {plan.generation} is {plan.state}; only a proposal can be approved"
    if now >= plan.expires_at:
        return (
            f"plan {plan.generation} has expired; Brain proposes another plan if the change is "
            "still worth a restart"
        )
    if effective_mode(job, settings) is PolicyMode.SHADOW:
        return (
            "the policy mode is shadow, in which no plan can be approved; ask for a size with "
            "`brain resize`"
        )
    return None


def alone(tx: Transaction, plan: ScalePlan) -> str | None:
    """Return the reason why a plan cannot be approved before another plan; None if there is no such
    plan.

    The other plan frees resources that this plan needs, and is not approved yet.
    """
    first = unapproved(tx, plan)
    if first is None:
        return None
    name = tx.jobs.get(first.job).document.name
    return (
        f"plan {plan.generation} needs resources that plan {first.generation} of {name} frees "
        f"({plan_change(first)}); approve plan {first.generation} of {name} first"
    )


def _expect_some(replicas: int) -> None:
    if replicas < 1:
        raise BadInput(
            f"replicas {replicas} must be at least 1; to stop the job, suspend or cancel it",
            field="replicas",
        )


def expect_allowed(job: Job, replicas: int) -> None:
    """Raise BadInput for a size beyond the job's bounds."""
    _expect_some(replicas)
    bounds = job.document.replicas
    if not bounds.allow(replicas):
        raise BadInput(
            f"replicas {replicas} is not within the bounds {bounds.min}:{bounds.max} of job "
            f"{job.document.name}; ask for {_limits(job)}, or submit the job again with other "
            "bounds",
            field="replicas",
        )


def expect_within_limits(job: Job, asked: Allocation) -> None:
    """Raise BadInput for a size that reserves more than the job's resource limits."""
    if found := job.document.resource_limits.excess(asked):
        field, clause = found
        raise BadInput(
            f"job {job.document.name}: {clause}; ask for fewer replicas or smaller amounts, or "
            f"raise {field} (on a cluster, spec.resourceLimits of its ElasticJob)",
            field=field,
        )


def expect_workers(asked: Allocation) -> None:
    """Raise BadInput for a size that leaves no replica for workers."""
    if asked.roles and asked.workers < 1:
        raise BadInput(
            f"replicas {asked.replicas} counts all roles, and {others(asked.roles)} replicas of "
            f"other roles leave no worker; ask for at least {others(asked.roles) + 1}",
            field="replicas",
        )


def _limits(job: Job) -> str:
    sizes, unit = list(job.document.replicas.sizes()), job.document.replicas.unit
    return f"{sizes[0]} to {sizes[-1]}" + (f" in steps of {unit}" if unit > 1 else "")


def _expect_version(plan: ScalePlan, version: int | None) -> None:
    if version is not None and version != plan.version:
        raise VersionMismatch(
            f"plan {plan.generation} is at version {plan.version}, but the request names "
            f"version {version}; read the plan again"
        )


def expect_unfinished(job: Job) -> None:
    """Raise Conflict for a job that ended."""
    if job.state in FINISHED:
        raise Conflict(f"job {job.document.name} is {job.state} and cannot change any more")


def _expect_change(
    job: Job, size: int, current: Allocation, active: ScalePlan | None, clamped: str
) -> None:
    moving = active is not None and active.state is PlanState.APPLYING
    heading = active.target.replicas if active is not None and moving else current.replicas
    if size == heading:
        because = f" ({clamped})" if clamped else ""
        way = "already on its way to" if moving else "already at"
        raise Conflict(f"job {job.document.name} is {way} {count(size, 'replica')}{because}")
