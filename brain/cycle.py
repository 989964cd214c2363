"""The loop, once around: what was measured becomes models, choices, plans. Read this file first.

``turn`` looks after every job of a pool:

    admit what waits -> follow its plan -> measure its world -> fit, choose -> store plan or hold

It reads stores and a clock that are given to it, and changes nothing but the stores: worlds
change because a coordinator reads the wish that follows from the plans (``lifecycle.wish``).

Admission is one transaction, each job another. A short one holds up no ingest, and what goes
wrong with one job (another Brain stored a plan first: ``Conflict``) undoes nothing of the others.
Calling ``turn`` again, at any time and from any number of Brains, is safe.
"""

from dataclasses import dataclass, field
from datetime import datetime

from brain import estimates, lifecycle
from brain.errors import Conflict, Undetermined
from brain.lifecycle.sight import Sight, look, remember
from brain.lifecycle.surroundings import situate
from brain.models.fitting import Point
from brain.optimizer import recommend
from brain.ports import Stores, Transaction
from brain.settings import Settings
from brain.types.job import Job, JobId, JobState
from brain.types.plan import PlanState, ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.record import Event
from brain.types.resources import PoolName
from brain.typeset import duration
from brain.views import Scaling, WhatIf

#: States in which there is something to decide, if only to say why nothing is done.
_DECIDED = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED, JobState.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn did."""

    pool: PoolName
    at: datetime
    #: Jobs that were started.
    admitted: tuple[JobId, ...] = ()
    #: Plans that were stored or moved, as they are now.
    plans: tuple[ScalePlan, ...] = ()
    #: The decision about each job that was looked at, holds included.
    decisions: dict[JobId, Recommendation] = field(default_factory=dict)
    #: Jobs that another Brain, or a person, changed meanwhile; the next turn looks at them.
    conflicts: tuple[JobId, ...] = ()


def turn(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> Turn:
    """Look after the jobs of ``pool`` once.

    Raises:
        Unavailable: the stores cannot be reached; nothing of the job at hand was stored.
    """
    admitted = admit(stores, pool, now)
    with stores.transaction() as tx:
        jobs = [job.id for job in tx.jobs.unfinished(pool)]
    plans: list[ScalePlan] = []
    decisions: dict[JobId, Recommendation] = {}
    conflicts: list[JobId] = []
    for job in jobs:
        try:
            with stores.transaction() as tx:
                moved, decision = attend(tx, tx.jobs.get(job), settings, now)
        except Conflict:
            conflicts.append(job)
            continue
        plans += moved
        if decision is not None:
            decisions[job] = decision
    return Turn(
        pool=pool,
        at=now,
        admitted=admitted,
        plans=tuple(plans),
        decisions=decisions,
        conflicts=tuple(conflicts),
    )


def admit(stores: Stores, pool: PoolName, now: datetime) -> tuple[JobId, ...]:
    """Start the queued jobs that fit; none where somebody else changed one of them meanwhile."""
    try:
        with stores.transaction() as tx:
            queue = [job for job in tx.jobs.unfinished(pool) if job.state is JobState.QUEUED]
            return tuple(job.id for job in lifecycle.admit(tx, queue, now=now))
    except Conflict:
        return ()


def attend(
    tx: Transaction, job: Job, settings: Settings, now: datetime
) -> tuple[list[ScalePlan], Recommendation | None]:
    """Follow one job's plan, measure its world, and decide; return the plans that moved."""
    before = {plan.generation: plan for plan in tx.plans.of(job.id)}
    sight = look(tx, job, settings=settings, now=now)
    follow(tx, job, sight, settings, now)
    remember(tx, job, sight, now)
    estimates.remember(tx, job, sight.world, now)
    decision = decide(tx, tx.jobs.get(job.id), sight, settings, now)
    moved = [plan for plan in tx.plans.of(job.id) if before.get(plan.generation) != plan]
    return moved, decision


def follow(tx: Transaction, job: Job, sight: Sight, settings: Settings, now: datetime) -> None:
    """Move the job's active plan as far as what was observed allows."""
    plan = tx.plans.active(job.id)
    match plan.state if plan else None:
        case PlanState.PROPOSED if plan and now >= plan.expires_at:
            lifecycle.expire(tx, plan, now)
        case PlanState.APPROVED if plan:
            lifecycle.begin(tx, plan, settings=settings, now=now)
        case PlanState.APPLYING if plan:
            lifecycle.settle(tx, plan, settings=settings, now=now)
        case PlanState.APPLIED if plan:
            verify(tx, plan, sight, settings, now)


def verify(
    tx: Transaction, plan: ScalePlan, sight: Sight, settings: Settings, now: datetime
) -> None:
    """Compare what an applied plan promised with what its world achieves, once that is known."""
    waited = (now - plan.updated_at).total_seconds()
    if isinstance(sight.present, Point) and sight.present.replicas == plan.target.replicas:
        measured = sight.present.measured
        lifecycle.judge(tx, plan, measured, unit=sight.unit, settings=settings, now=now)
    elif waited >= settings.verify_seconds:
        why = f"not measured within {duration(waited)}: {sight.missing}"
        lifecycle.inconclusive(tx, plan, why, now)


def decide(
    tx: Transaction, job: Job, sight: Sight, settings: Settings, now: datetime
) -> Recommendation | None:
    """Choose a size for a job and store the choice: a plan, or a hold with its reason."""
    if job.state not in _DECIDED:
        return None
    decision = recommend(situate(tx, job, sight, settings=settings, now=now))
    last = tx.plans.decision(job.id)
    tx.plans.decide(job.id, decision)
    code, reason = decision.explanation.code, decision.explanation.reason
    if not decision.hold:
        lifecycle.propose(tx, job, decision, settings=settings, now=now)
    elif last is None or last.explanation.code != code:
        tx.events.add(Event(at=now, kind="hold", job=job.id, message=reason, data={"code": code}))
    return decision


def scaling(tx: Transaction, job: Job, settings: Settings, now: datetime) -> Scaling:
    """Return the model's curve over the sizes that a job may have, for *what if*."""
    sight = look(tx, job, settings=settings, now=now)
    _, current = lifecycle.standing(tx.plans.of(job.id), job)
    advised = recommend(situate(tx, job, sight, settings=settings, now=now)).target
    active = tx.plans.active(job.id)
    return Scaling(
        current=current.replicas,
        recommended=(active.target if active else advised).replicas,
        sizes=tuple(_what_if(sight, size) for size in job.document.replicas.sizes()),
        basis=sight.model.basis if sight.model else sight.missing,
    )


def _what_if(sight: Sight, size: int) -> WhatIf:
    try:
        prediction, why = sight.predict(size), None
    except Undetermined as unknown:
        prediction, why = None, str(unknown)
    return WhatIf(replicas=size, prediction=prediction, undetermined=why, measured=sight.at(size))
