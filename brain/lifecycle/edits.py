"""Edits of jobs: the amounts of each replica, the size, and the batch size of scripts with
``batch.tune``.
"""

from dataclasses import replace
from datetime import datetime
from math import ceil

from brain.errors import BadInput, Conflict
from brain.lifecycle.amounts import FULL, ReplicaUse, recent_use
from brain.lifecycle.batches import ask_with, asked_for
from brain.lifecycle.capacity import Room, room_beside_others, sized
from brain.lifecycle.desired import EMPTY, frozen, may_act, standing, wished, wished_batch
from brain.lifecycle.nodes import expected
from brain.lifecycle.observed import ThroughputObserved, look
from brain.lifecycle.plans import draft, inconclusive, instead, obstacle, reserving
from brain.lifecycle.records import move_plan
from brain.lifecycle.requests import (
    expect_allowed,
    expect_unfinished,
    expect_within_limits,
    expect_workers,
)
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.explanation import Evidence, Explanation
from brain.types.job import Job, OptimizeMode
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Prediction
from brain.types.resources import Resources
from brain.types.roles import NAMED, SINGLE, WORKER, alike, others, ranked
from brain.typeset import cores, count, number, plan_change

_GIB = 2**30
#: Least memory, which a Python process needs, and most, which no machine has.
LEAST_MEMORY, MOST_MEMORY = 16 * 2**20, 2**50
#: Least CPU quota: a smaller one stops a process for most of each second.
LEAST_CPU, MOST_CPU = 10, 10_000_000
_NOTHING_RUNS = "the job has no running replicas; its next start uses the new values"


def edit(
    tx: Transaction,
    job: Job,
    *,
    cpu_millis: int | None,
    memory_bytes: int | None,
    replicas: int | None,
    gpus: int | None = None,
    batch: int | None = None,
    role: str | None = None,
    by: str,
    why: str,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Store a person's edit of a job as a plan: the amounts of each replica, the size, the batch
    size, or several of these. Begin the plan if possible.

    With a ``role`` the request concerns only that role's replicas. None leaves a field unchanged.
    The request needs no other approval, and supersedes an active plan. Amounts and batch size
    change while replicas run; the size changes at the next safe point. If no replica of the job
    runs, all fields change immediately; ``gpus`` can change only then.

    Raises:
        BadInput: the request is empty; an amount is absurd, larger than every node's capacity, or
            less than a replica uses now; ``gpus`` would change while replicas run; the script does
            not ask for its batch or may not have this one; or the size is beyond the bounds or the
            resource limits.
        Conflict: the job ended, nothing would change, or the size does not fit the pool now.
    """
    expect_unfinished(job)
    plans = tx.plans.of(job.id)
    _, current = standing(plans, job)
    _, heading = wished(plans, job)
    if cpu_millis is memory_bytes is replicas is gpus is batch is None:
        raise BadInput(
            "cpu_millis, memory_bytes, replicas, gpus and batch are all missing; give at least "
            "one of them",
            field="cpu_millis",
        )
    at_once = job.state in EMPTY and not frozen(tx, job)
    _expect_gpus(job, heading.of(role or WORKER), gpus, at_once=at_once)
    asked = _reshaped(heading, role, replicas, cpu_millis, memory_bytes, gpus)
    if replicas is not None:
        expect_allowed(job, asked.replicas)
        expect_workers(asked)
    used = recent_use(tx, job, now, role or WORKER)
    _expect_sensible(cpu_millis, memory_bytes)
    if asked.total.at_least(heading.total) != heading.total:
        expect_within_limits(job, asked)
    _expect_a_node(tx, job, role or WORKER, asked, heading, now)
    _expect_more_than_used(cpu_millis, memory_bytes, used)
    for name in dict(asked.roles):
        if name != role and asked.of(name) != heading.of(name):
            also = recent_use(tx, job, now, name)
            _expect_more_than_used(cpu_millis, memory_bytes, also)
    size, sight = asked.replicas, look(tx, job, settings=settings, now=now)
    wish = None if batch is None else asked_for(job, batch, asked.processes, sight.model)
    if asked == heading and wish in (None, wished_batch(tx, job)):
        raise Conflict(
            f"job {job.document.name} already has these values, or a plan will give them to it"
        )
    room = room_beside_others(tx, job, now)
    fits = room(tx, sized(job, asked), now)
    if fits < size and not at_once:
        raise Conflict(
            f"pool {job.pool} has room for {fits} of {count(size, 'replica')} with these amounts "
            "now; request smaller amounts, or free part of the pool"
        )
    same = size == current.replicas
    target = replace(
        asked, nodes=current.nodes if same else (), batch=wish or wished_batch(tx, job)
    )
    plan = draft(
        tx,
        job,
        PlanKind.REQUEST,
        target,
        Explanation(code="requested", reason="", evidence=_evidence(used), next_step=""),
        settings=settings,
        now=now,
        measured=sight.now,
        # No model says what another batch brings before the script has taken it.
        promised=None if wish else _promise(sight, current, target),
        proposed_by=by,
    )
    reason = f"{by} asked for {plan_change(plan)}" + (f": {why}" if why else "")
    next_step = (
        f"The edit applies now: {_NOTHING_RUNS}."
        if at_once
        else _next_step(tx, job, plan, settings, now, room)
    )
    explanation = replace(plan.explanation, reason=reason, next_step=next_step)
    active = tx.plans.active(job.id)
    plan = replace(plan, explanation=explanation)
    plan = instead(tx, job, active, plan, by=by, settings=settings, now=now, room=room)
    return _applied(tx, job, plan, now) if at_once else plan


def _reshaped(
    heading: Allocation,
    role: str | None,
    replicas: int | None,
    cpu_millis: int | None,
    memory_bytes: int | None,
    gpus: int | None,
) -> Allocation:
    """Return ``heading`` with the requested size and amounts, of a role or of all replicas.

    Raises:
        BadInput: the job has no such role, or a role cannot have so many.
    """
    name = role or WORKER
    if role not in (None, WORKER, *dict(heading.roles)):
        known = ", ".join((WORKER, *dict(heading.roles)))
        inner = f"; on a cluster, edit spec.replicaSpecs.{role} of its ElasticJob"
        remedy = inner if role in NAMED and not ranked(heading.roles) else ""
        raise BadInput(
            f"role {role} is neither a role nor a group of the job; the job has {known}{remedy}",
            field="role",
        )
    old = heading.of(name)
    amounts = Resources(
        cpu_millis=old.cpu_millis if cpu_millis is None else cpu_millis,
        memory_bytes=old.memory_bytes if memory_bytes is None else memory_bytes,
        gpus=old.gpus if gpus is None else gpus,
    )
    if name == WORKER:
        beside = others(heading.roles) if role else 0
        size = heading.replicas if replicas is None else replicas + beside
        alone = heading.reserving(WORKER, amounts) if role else replace(heading, resources=amounts)
        return replace(alone, replicas=size)
    before = dict(heading.roles)[name]
    number = before.replicas if replicas is None else replicas
    most = 1 if name in SINGLE else number
    if not 1 <= number <= most:
        asked = "1" if name in SINGLE else "1 or more"
        raise BadInput(f"replicas {number} of role {name} must be {asked}", field="replicas")
    own = heading.reserving(name, amounts).roles
    return replace(
        heading,
        replicas=heading.replicas + number - before.replicas,
        roles=tuple((n, replace(s, replicas=number) if n == name else s) for n, s in own),
    )


def _promise(
    sight: ThroughputObserved, current: Allocation, target: Allocation
) -> Prediction | None:
    """Return the promise of an edit: amounts alone leave throughput as it is, and no model predicts
    the gain of another server or worker in a job with roles."""
    same = target.replicas == current.replicas and alike(current.roles, target.roles)
    if same:
        return sight.now
    return None if target.roles else sight.promise(target.replicas)


def _applied(tx: Transaction, job: Job, plan: ScalePlan, now: datetime) -> ScalePlan:
    """Apply a plan to a job without running replicas, where nothing has to change or be
    measured.
    """
    plan = move_plan(tx, plan, PlanState.APPLYING, f"{plan_change(plan)} begins", now)
    ask_with(tx, job, plan, now)
    plan = move_plan(tx, plan, PlanState.APPLIED, _NOTHING_RUNS, now)
    reserving(tx, tx.jobs.get(job.id), plan.target.resources, now)
    return inconclusive(tx, plan, _NOTHING_RUNS, now)


def _next_step(
    tx: Transaction, job: Job, plan: ScalePlan, settings: Settings, now: datetime, room: Room
) -> str:
    """Return a sentence on the parts of a plan that apply now, and those that apply at the safe
    point.
    """
    blocked = obstacle(tx, job, replace(plan, state=PlanState.APPROVED), now, room=room)
    if blocked:
        return f"No part of the edit applies now: {blocked}."
    steps = []
    if plan.changes_resources:
        steps.append(
            "The new amounts apply now on nodes that can change running replicas, and on other "
            "nodes when the replicas next start."
        )
    if plan.changes_batch:
        steps.append("The new batch applies when the script next asks for its batch.")
        if may_act(job, settings) and job.document.optimize_mode is not OptimizeMode.MANUAL:
            steps.append(
                "Brain may choose another batch later; to prevent that, set optimizeMode to manual."
            )
    if not plan.in_place:
        steps.append("The size changes at the next safe point.")
    return " ".join(steps)


def _evidence(used: ReplicaUse) -> tuple[Evidence, ...]:
    said = []
    if used.memory_bytes is not None:
        said.append(Evidence(label="memory used", value=f"{number(used.memory_bytes / _GIB)} GiB"))
    if used.cpu_millis is not None:
        said.append(Evidence(label="CPU used", value=number(used.cpu_millis / 1000)))
    return tuple(said)


def _expect_sensible(cpu_millis: int | None, memory_bytes: int | None) -> None:
    if cpu_millis is not None and not LEAST_CPU <= cpu_millis <= MOST_CPU:
        raise BadInput(
            f"cpu_millis {cpu_millis} is not a possible amount for a replica; give {LEAST_CPU} to "
            f"{MOST_CPU:,} (1000 is one CPU)",
            field="cpu_millis",
        )
    if memory_bytes is not None and not LEAST_MEMORY <= memory_bytes <= MOST_MEMORY:
        raise BadInput(
            f"memory_bytes {memory_bytes} is not a possible amount for a replica; give "
            f"{LEAST_MEMORY} (16 MiB) "
            f"to {MOST_MEMORY} (1 PiB)",
            field="memory_bytes",
        )


def _expect_gpus(job: Job, heading: Resources, gpus: int | None, *, at_once: bool) -> None:
    """Refuse another number of accelerators while replicas hold theirs.

    Raises:
        BadInput: the number is negative, or replicas run.
    """
    if gpus is None or gpus == heading.gpus:
        return
    name = job.document.name
    if gpus < 0:
        raise BadInput(f"gpus {gpus} is negative; give 0 or more", field="gpus")
    if not at_once:
        raise BadInput(
            f"gpus {gpus} cannot be given to {name} while it is {job.state}, because a process "
            f"keeps the accelerators that it started with; run `brain suspend {name}`, then this "
            f"edit, then `brain resume {name}`, which goes on from the checkpoint",
            field="gpus",
        )


def _expect_a_node(
    tx: Transaction,
    job: Job,
    role: str,
    size: Allocation,
    heading: Allocation,
    now: datetime,
) -> None:
    asked, before, wants = size.of(role), heading.of(role), job.document.accelerator_of(role)
    known = expected(tx.nodes.of(job.pool), now)
    nodes = [one for one in known if wants in (None, one.accelerator)]
    if not nodes or any(asked.copies_within(one.capacity) != 0 for one in nodes):
        return
    cpu, memory, gpus = (
        max(getattr(node.capacity, name) for node in nodes)
        for name in ("cpu_millis", "memory_bytes", "gpus")
    )
    grown = (f for f in ("gpus", "memory_bytes") if getattr(asked, f) > getattr(before, f))
    field = next(grown, "cpu_millis")
    raise BadInput(
        f"{field} {getattr(asked, field)} fits no node of pool {job.pool}, even an empty one; no "
        f"node has more than {cores(cpu)}, {number(memory / _GIB)} GiB or {count(gpus, 'GPU')}: "
        "ask for less",
        field=field,
    )


def _expect_more_than_used(
    cpu_millis: int | None, memory_bytes: int | None, used: ReplicaUse
) -> None:
    if memory_bytes is not None and (used.memory_bytes or 0.0) > FULL * memory_bytes:
        have = used.memory_bytes or 0.0
        raise BadInput(
            f"memory_bytes {memory_bytes} ({number(memory_bytes / _GIB)} GiB) leaves too little "
            f"above the {number(have / _GIB)} GiB that a replica uses now; give at least "
            f"{ceil(have / FULL)}, or first make the job use less",
            field="memory_bytes",
        )
    if cpu_millis is not None and (used.cpu_millis or 0.0) > cpu_millis:
        have = used.cpu_millis or 0.0
        raise BadInput(
            f"cpu_millis {cpu_millis} is less than the {have:.0f} mCPU that a replica uses now; "
            f"give at least {have:.0f}, or first reduce the processes or loader workers",
            field="cpu_millis",
        )
