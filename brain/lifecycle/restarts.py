"""Plans that restart a job at the same size before leaking memory runs out, and their verdicts.

Such a plan promises that memory is freed, and that throughput stays the same.
"""

from dataclasses import replace
from datetime import datetime

from brain.errors import Undetermined
from brain.lifecycle.amounts import FULL, READINGS, RECENT, ran_out, use_in
from brain.lifecycle.desired import begun_anew, wished_batch
from brain.lifecycle.observed import ThroughputObserved
from brain.lifecycle.plans import draft, stored
from brain.models.fitting import Point
from brain.optimizer.situation import Situation
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.explanation import Explanation
from brain.types.job import Job
from brain.types.plan import PlanKind, ScalePlan
from brain.types.roles import WORKER
from brain.typeset import gibibytes


def propose_restart(
    tx: Transaction,
    job: Job,
    situation: Situation,
    explanation: Explanation,
    *,
    until: datetime,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Store Brain's advice to restart a job; after ``until`` the restart is useless.

    Raises:
        Conflict: another plan is active, or another Brain stored this generation first.
    """
    plan = draft(
        tx,
        job,
        PlanKind.RESTART,
        replace(situation.current, batch=wished_batch(tx, job)),
        explanation,
        settings=settings,
        now=now,
        measured=situation.measured,
        promised=situation.measured,
        restart_seconds=situation.restart_seconds,
    )
    return stored(tx, job, replace(plan, expires_at=until), settings=settings, now=now)


def overtaken(tx: Transaction, plan: ScalePlan) -> str:
    """Return a clause about a world that began after the plan was proposed but before its restart,
    so that the restart is no longer needed; empty if there is no such world.
    """
    world = tx.worlds.latest(plan.job)
    if plan.kind is not PlanKind.RESTART or world is None or begun_anew(world, plan):
        return ""
    before = world.formed_at > plan.created_at
    return f"world {world.epoch} began before the restart ({world.cause})" if before else ""


def unfreed(
    tx: Transaction, plan: ScalePlan, sight: ThroughputObserved
) -> tuple[str, Point | Undetermined]:
    """Return a phrase about memory that a restart did not free; return also the throughput.

    The phrase is empty if the restart freed enough memory. The throughput is ``Undetermined`` until
    memory was read often enough.
    """
    world, applied = sight.world, plan.updated_at
    if world is None or world.epoch != plan.outcome.epoch:
        return ran_out(tx, plan), Undetermined("the world after the restart was lost")
    hosts = tx.telemetry.hosts(plan.job, since=world.formed_at - RECENT)
    before = use_in([one for one in hosts if one.measured_at <= world.formed_at], world, WORKER)
    after = use_in([one for one in hosts if one.measured_at > applied], world, WORKER)
    used, was = after.memory_bytes, before.memory_bytes
    if after.readings < READINGS or used is None:
        return "", Undetermined("there are too few readings of the job's memory since the restart")
    if was is None or used <= FULL * was:
        return "", sight.present
    return (
        f"a replica uses {gibibytes(used)} after the restart and used {gibibytes(was)} before it",
        sight.present,
    )
