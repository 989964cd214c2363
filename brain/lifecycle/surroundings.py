"""From the stores to the situation that a policy decides in."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from brain.lifecycle.capacity import Room, room
from brain.lifecycle.records import BRAIN
from brain.lifecycle.sight import Sight
from brain.lifecycle.wishes import changed_at, effective_mode, reached, standing
from brain.lifecycle.work import limits, ratios, still_to_come
from brain.models.job import Size
from brain.models.restart import restart_cost
from brain.optimizer import Situation
from brain.optimizer.guards import RETURNED
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.telemetry import Phase, SaveSample, ThroughputSample
from brain.types.world import Cause, World
from brain.typeset import change, duration

#: Brain's own changes of so long ago count towards what a job bears.
_LATELY_SECONDS = 3600.0
#: What of its node's CPUs is busy is looked at over so long.
_BUSY_SECONDS = 60.0
#: A size that fell short is not tried again for so long.
_DISAPPOINTED_SECONDS = 6 * 3600.0
#: Saves older than this say nothing about the script that runs now.
_SAVES_SECONDS = 24 * 3600.0
#: Step time above its peers' median from which a rank is a straggler.
_STRAGGLER = 0.2


def situate(
    tx: Transaction,
    job: Job,
    sight: Sight,
    *,
    settings: Settings,
    now: datetime,
    room: Room = room,
) -> Situation:
    """Gather what a policy may know of a job."""
    plans, worlds = tx.plans.of(job.id), tx.worlds.of(job.id)
    _, current = standing(plans, job)
    saves = _saves(tx, job, now)
    elapsed = _since(worlds[-1].formed_at if worlds else None, now)
    rest = still_to_come(job, sight, worlds, elapsed=elapsed, ratios=ratios(tx, job))
    sizes = tuple(job.document.replicas.sizes())
    if sight.model is not None:
        sight.model.curve([Size(replicas=size) for size in (current.replicas, *sizes)])
    declared, waited = job.document.checkpoint, _data_wait(sight.samples)
    return Situation(
        job=job,
        current=current,
        mode=effective_mode(job, settings),
        active=tx.plans.active(job.id),
        present=sight.present,
        model=sight.model,
        unit=sight.unit,
        sizes=sizes,
        room=room(tx, job),
        telemetry_age_seconds=_age(sight, now),
        world_age_seconds=_since(sight.world.formed_at if sight.world else None, now),
        checkpointed=bool(saves or declared.path or declared.every or declared.signal),
        unsaved_seconds=_since(saves[-1].measured_at, now) if saves else elapsed,
        since_decision_seconds=_away(tx.plans.decision(job.id), now),
        elapsed_seconds=elapsed,
        remaining_seconds=rest.seconds,
        end_declared=rest.declared,
        remaining_basis=rest.basis,
        limits=limits(job, sight, worlds, settings, now),
        straggler=_straggler(sight.samples),
        data_wait_share=waited,
        cpu_share=_cpu(tx, job, sight, waited, now),
        settings=settings,
        now=now,
        **_changes(plans, worlds, settings, now),
    )


def _changes(
    plans: Sequence[ScalePlan], worlds: Sequence[World], settings: Settings, now: datetime
) -> dict[str, Any]:
    """What changes of the world cost so far, when the last ones were and what they left."""
    downtimes = [
        world.downtime_seconds
        for world in reversed(worlds)
        if world.cause is Cause.PLAN and world.downtime_seconds is not None
    ]
    restart = restart_cost(downtimes, assumed_seconds=settings.restart_seconds)
    changed, lately = changed_at(worlds, plans), _own_changes(plans, now)
    return {
        "restart_seconds": restart.seconds,
        "restarts_measured": restart.measured,
        "since_change_seconds": None if changed is None else _since(changed, now),
        "changes_lately": len(lately),
        "left_lately": frozenset(plan.current.replicas for plan in lately),
        "disappointed": _disappointed(plans, now),
    }


def _since(instant: datetime | None, now: datetime) -> float:
    return 0.0 if instant is None else max(0.0, (now - instant).total_seconds())


def _age(sight: Sight, now: datetime) -> float | None:
    """Since the newest sample; a world that stepped and is silent is as old as its first step."""
    stepping_at = sight.world.stepping_at if sight.world else None
    heard = sight.samples[-1].measured_at if sight.samples else stepping_at
    return None if heard is None else _since(heard, now)


def _saves(tx: Transaction, job: Job, now: datetime) -> Sequence[SaveSample]:
    """The newest saves; the whole day is only read where the last hour has none."""
    hour = tx.telemetry.saves(job.id, since=now - timedelta(hours=1))
    return hour or tx.telemetry.saves(job.id, since=now - timedelta(seconds=_SAVES_SECONDS))


def _away(decided: Recommendation | None, now: datetime) -> float | None:
    """Since the last decision; None where that one only looked because of such an absence."""
    if decided is None or decided.explanation.code == RETURNED:
        return None
    return _since(decided.decided_at, now)


def _own_changes(plans: Sequence[ScalePlan], now: datetime) -> list[ScalePlan]:
    """Plans of Brain's own that changed the world within the last hour."""
    return [
        plan
        for plan in plans
        if plan.kind in (PlanKind.RESIZE, PlanKind.ROLLBACK)
        and plan.proposed_by == BRAIN
        and reached(plan)
        and _since(plan.updated_at, now) < _LATELY_SECONDS
    ]


def _disappointed(plans: Sequence[ScalePlan], now: datetime) -> frozenset[int]:
    return frozenset(
        plan.target.replicas
        for plan in plans
        if plan.kind is PlanKind.RESIZE
        and plan.state is PlanState.ROLLED_BACK
        and _since(plan.updated_at, now) < _DISAPPOINTED_SECONDS
    )


def _straggler(samples: Sequence[ThroughputSample]) -> str | None:
    ranks: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.phase is Phase.TRAINING:
            ranks[sample.place.rank].append(sample.step_seconds)
    if len(ranks) < 2:
        return None
    medians = {rank: median(values) for rank, values in ranks.items()}
    slowest = max(medians, key=lambda rank: medians[rank])
    usual = median(medians.values())
    if medians[slowest] <= usual * (1 + _STRAGGLER):
        return None
    return (
        f"rank {slowest} needs {duration(medians[slowest])} a step, "
        f"{change(medians[slowest] / usual - 1)} against the median of its peers"
    )


def _data_wait(samples: Sequence[ThroughputSample]) -> float | None:
    training = [sample for sample in samples if sample.phase is Phase.TRAINING]
    total = sum(sample.step_seconds_mean * sample.steps for sample in training)
    waited = sum(sample.data_wait_seconds * sample.steps for sample in training)
    return waited / total if total > 0 else None


def _cpu(
    tx: Transaction, job: Job, sight: Sight, waited: float | None, now: datetime
) -> float | None:
    """Busy share of the nodes' CPUs; where these train, being busy says nothing, hence None."""
    newest = sight.samples[-1] if sight.samples else None
    if newest is None or newest.accelerator == "cpu" or (waited or 0) <= 0:
        return None
    hosts = tx.telemetry.hosts(job.id, since=now - timedelta(seconds=_BUSY_SECONDS))
    shares = [h.cpu_millis / h.cpu_capacity_millis for h in hosts if h.cpu_capacity_millis > 0]
    return median(shares) if shares else None
