"""A plan that restarts a job at a safe point before leaking memory runs out."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from brain import lifecycle
from brain.estimates.advice import advised
from brain.estimates.usage import used_of
from brain.models.restart import restart_cost
from brain.optimizer import Situation, guards
from brain.optimizer.leaks import Leak, RestartChoice, choose_restart
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.estimate import Band
from brain.types.explanation import Evidence, Explanation
from brain.types.job import Job, JobId
from brain.types.plan import PlanKind, PlanState, Verdict
from brain.types.telemetry import SaveSample
from brain.types.world import Cause
from brain.typeset import duration

#: Guards of a restart: those of a resize, but for the one of jobs with a single size.
_GUARDS = tuple(guard for guard in guards.ALL if guard is not guards.rigid)
#: Time without another restart after one was rejected, or freed no memory.
_REST = timedelta(hours=24)
#: Time over which the interval between saves is measured.
_SAVES = timedelta(hours=1)


def restart(
    tx: Transaction, job: Job, situation: Situation, *, settings: Settings, now: datetime
) -> list[JobId]:
    """Store a plan that restarts a job whose memory leaks, if the restart pays and no guard forbids
    it.

    Another proposal that waits for approval is withdrawn, because the restart is more urgent. Only
    worlds of Brain's agents can end at a safe point. So a world with a member that has no address,
    and thus no such agent, is not restarted. Returns the jobs whose plans changed; empty if there
    is no restart.
    """
    world = tx.worlds.latest(job.id)
    # Advice takes twenty times as long as this look, and nearly no job leaks.
    if used_of(tx, job).memory_lasts is None or world is None:
        return []
    if not all(member.address for member in world.members):
        return []
    # A round's situation leaves out a proposal of amounts, which is active all the same.
    waiting = tx.plans.active(job.id)
    if waiting is not None and lifecycle.waits_for_approval(waiting):
        situation = replace(situation, active=None)
    found = advised(tx, job, settings, now)
    left = None if found is None else found.memory_lasts_seconds
    if left is None or any(guard(situation) for guard in _GUARDS) or _rests(tx, job, settings, now):
        return []
    choice = choose_restart(_leak(tx, job, situation, left, settings, now))
    if not choice.restart:
        return []
    changed = [job.id]
    if waiting is not None:
        why = f"{choice.reason}; the restart comes first, and Brain decides again after it"
        changed += lifecycle.give_way(tx, waiting, why, now)
    lifecycle.propose_restart(
        tx,
        job,
        situation,
        _explanation(choice, situation),
        until=now + timedelta(seconds=left.high),
        settings=settings,
        now=now,
    )
    return changed


def _leak(
    tx: Transaction,
    job: Job,
    situation: Situation,
    left: Band,
    settings: Settings,
    now: datetime,
) -> Leak:
    worlds = tx.worlds.of(job.id)
    lost = [
        world.downtime_seconds
        for world in reversed(worlds)
        if world.cause in (Cause.FAILURE, Cause.MEMBERSHIP) and world.downtime_seconds is not None
    ]
    heal = restart_cost(lost, assumed_seconds=situation.restart_seconds)
    began = worlds[0].stepping_at or worlds[0].formed_at
    return Leak(
        left=left,
        age_seconds=situation.world_age_seconds,
        save_seconds=_interval(tx.telemetry.saves(job.id, since=max(began, now - _SAVES))),
        saved_seconds=situation.unsaved_seconds,
        restart_seconds=situation.restart_seconds,
        heal_seconds=heal.seconds,
        keeps_work=situation.in_process and situation.replicas > 1,
        last_failure=job.failures >= job.document.restarts.limit,
        ends_seconds=situation.remaining_seconds if situation.end_known else None,
        asks=not lifecycle.may_act(job, settings),
    )


def _interval(saves: Sequence[SaveSample]) -> float | None:
    """Return the usual seconds between two saves of one process; None before the second one."""
    if not saves:
        return None
    source = saves[-1].place.source
    times = [save.measured_at for save in saves if save.place.source == source]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    return median(gaps) if gaps else None


def _explanation(choice: RestartChoice, situation: Situation) -> Explanation:
    facts = {
        "a restart at a save costs": duration(choice.restart_costs),
        "running out of memory costs": duration(choice.crash_costs),
        "restarts measured": str(situation.restarts_measured),
    }
    return Explanation(
        code="memory-leak",
        reason=choice.reason,
        evidence=tuple(Evidence(label=label, value=value) for label, value in facts.items()),
        next_step=(
            "The restart begins at the next safe point. To end the leak, find the objects that the "
            "script keeps "
            "from step to step."
        ),
    )


def _rests(tx: Transaction, job: Job, settings: Settings, now: datetime) -> bool:
    """Return True if the last restart is too recent, or was of no use."""
    for plan in tx.plans.of(job.id):
        if plan.kind is not PlanKind.RESTART:
            continue
        useless = plan.outcome.verdict is Verdict.FELL_SHORT
        unwanted = plan.state is PlanState.REJECTED
        rest = _REST if useless or unwanted else timedelta(seconds=settings.dwell_seconds)
        return now - plan.updated_at < rest
    return False
