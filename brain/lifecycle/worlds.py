"""Reports of coordinators, and the resulting changes of job and plan.

Reports may be repeated or late: a report of an older epoch, or one that was handled before, changes
nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from brain.errors import BadInput
from brain.lifecycle.advising import advise_only
from brain.lifecycle.costs import estimated
from brain.lifecycle.desired import wished
from brain.lifecycle.jobs import end, stopped
from brain.lifecycle.plans import fail, settle
from brain.lifecycle.records import happened, move_job
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.job import Intent, Job, JobState
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.world import (
    Cause,
    World,
    WorldEvent,
    WorldReport,
)
from brain.typeset import count, gibibytes

#: Epochs by which a report may be ahead of the last one that reached Brain.
_EPOCHS = 1_000_000

_Follow = Callable[[Transaction, Job, WorldReport, Settings, datetime], Job]
_ENDS = frozenset({WorldEvent.LOST, WorldEvent.FINISHED, WorldEvent.STOPPED})


def world_reported(
    tx: Transaction, report: WorldReport, *, settings: Settings, now: datetime
) -> Job:
    """Apply a coordinator's report, and return the updated job.

    Raises:
        UnknownJob: the job does not exist.
        BadInput: the report has more members than the job may have, or an impossible epoch.
    """
    # A report's time is at most now: a reporter whose clock is ahead must not hold up the loop.
    report = replace(report, at=min(report.at, now))
    job = tx.jobs.get(report.job)
    known = tx.worlds.latest(job.id)
    _check_possible(tx, job, known, report)
    if report.event is WorldEvent.MEMORY:
        return _remembered(tx, job, known, report)
    if job.finished or not _news(tx, known, report):
        return job
    world = _world(known, report)
    if report.event is WorldEvent.STEPPING:
        world = estimated(tx, world)
    if world.diagnosis is not None:
        _keep_one(tx, world)
    tx.worlds.put(world)
    message = _sentence(report)
    happened(
        tx,
        f"world.{report.event}",
        message,
        job=job.id,
        now=now,
        subject=report.epoch,
        data=_said_of(report.diagnosis),
    )
    return _FOLLOW[report.event](tx, job, report, settings, now)


def _check_possible(tx: Transaction, job: Job, known: World | None, report: WorldReport) -> None:
    """Raise for a report that would do lasting harm: too many members, or too high an epoch."""
    # Bounds may have shrunk since the replicas started.
    started = len(tx.worlds.replicas(job.id))
    most = max(job.document.replicas.max, known.replicas if known else 0, started)
    if len(report.members) > most:
        raise BadInput(
            f"members: {len(report.members)} members are more than the {count(most, 'replica')} "
            f"that job {job.document.name} may have or has had; raise replicas.max to allow "
            "that many",
            field="members",
        )
    last = known.epoch if known else 0
    if not 0 <= report.epoch <= last + _EPOCHS:
        raise BadInput(
            f"epoch {report.epoch} is not possible for job {job.document.name}, whose last world "
            f"has epoch {last}; epochs rise by one with every world",
            field="epoch",
        )


def _remembered(tx: Transaction, job: Job, known: World | None, report: WorldReport) -> Job:
    """Store how far checkpoints in memory are ahead of storage; no decision rests on it."""
    if known is not None and known.epoch == report.epoch:
        tx.worlds.put(replace(known, members=report.members))
    return job


def _news(tx: Transaction, known: World | None, report: WorldReport) -> bool:
    if known is None:
        return True
    if report.epoch != known.epoch:
        return report.epoch > known.epoch
    match report.event:
        case WorldEvent.FORMED:
            return False
        case WorldEvent.STEPPING:
            return known.stepping_at is None and known.ended_at is None
        case WorldEvent.HELD | WorldEvent.CHANGE_FAILED:
            plan = _applying(tx, report)
            lasts = plan is None or plan.kind is PlanKind.RESTORE
            return known.detail != report.detail if lasts else True
        case WorldEvent.HUNG:
            return known.ended_at is None and known.diagnosis != report.diagnosis
        case WorldEvent.LOST:
            # The last report may follow the report of a loss.
            return known.ended_at is None or report.final
        case _:
            return known.ended_at is None


def _world(known: World | None, report: WorldReport) -> World:
    world = known
    if world is None or world.epoch < report.epoch:
        world = World(
            job=report.job,
            epoch=report.epoch,
            generation=report.generation,
            cause=report.cause,
            members=report.members,
            formed_at=report.at,
        )
    if report.event is WorldEvent.STEPPING:
        world = replace(
            world,
            stepping_at=report.at,
            downtime_seconds=report.downtime_seconds,
            steps_redone=report.steps_redone,
            elastic=report.elastic,
        )
    if report.event in _ENDS:
        world = replace(world, ended_at=world.ended_at or report.at)
    return replace(
        world,
        detail=report.detail or world.detail,
        diagnosis=report.diagnosis or world.diagnosis,
    )


def _keep_one(tx: Transaction, world: World) -> None:
    """Keep tracebacks and stacks of the newest finding only: they are large, and pages show one
    finding.
    """
    for other in tx.worlds.of(world.job):
        why = other.diagnosis
        if other.epoch != world.epoch and why is not None and (why.traceback or why.attachments):
            tx.worlds.put(replace(other, diagnosis=replace(why, traceback="", attachments=())))


def _said_of(why: Diagnosis | None) -> Mapping[str, str] | None:
    """Return the fields of a finding that programs which listen to events need."""
    if why is None:
        return None
    known = {"rank": why.rank, "replica": why.replica, "node": why.node, "step": why.step}
    said = {name: str(value) for name, value in known.items() if value is not None}
    return {"kind": str(why.kind), **said, **{fact.label: fact.value for fact in why.evidence}}


def _formed(
    tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime
) -> Job:
    if job.state is JobState.STARTING:
        return move_job(tx, job, JobState.RUNNING, "no step seen yet", now)
    return job


def _stepping(
    tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime
) -> Job:
    plan = tx.plans.active(job.id)
    if plan is not None:
        plan = settle(tx, plan, settings=settings, now=now)
        job = tx.jobs.get(job.id)
    size, wanted = len(report.members), wished(tx.plans.effective(job.id), job)[1].replicas
    if size < wanted:
        reason = f"{size} of {count(wanted, 'replica')} {_train(size)}"
        return move_job(tx, job, JobState.DEGRADED, reason, now)
    if plan is not None and plan.state is PlanState.APPLYING:
        reason = f"{size} → {count(plan.target.replicas, 'replica')}"
        return move_job(tx, job, JobState.CHANGING, reason, now)
    reason = f"{count(size, 'replica')} {_train(size)}"
    return move_job(tx, job, JobState.RUNNING, reason, now)


def _held(tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime) -> Job:
    why, plan = report.detail or "no safe point came", _applying(tx, report)
    if plan is not None:
        fail(tx, plan, why, settings=settings, now=now)
    elif job.intent is Intent.SUSPEND:
        why = (
            f"{why}, so the job is not suspended yet; its next save suspends the job, and `brain "
            "cancel` ends it"
        )
        return move_job(tx, job, job.state, why, now)
    return tx.jobs.get(job.id)


def _change_failed(
    tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime
) -> Job:
    why = report.detail or "the new world could not be used"
    job = advise_only(tx, job, f"a change failed: {why}", now)
    plan = _applying(tx, report)
    if plan is not None:
        fail(tx, plan, why, settings=settings, now=now)
    return tx.jobs.get(job.id)


def _hung(tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime) -> Job:
    return move_job(tx, job, job.state, report.detail or "no worker moves", now)


def _lost(tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime) -> Job:
    failures = job.failures + (report.cause is Cause.FAILURE)
    why = report.detail or "its world was lost"
    if report.final:
        job = move_job(tx, job, job.state, job.reason, now, failures=failures)
        why = f"{why}{_remedy(job, report.diagnosis)}"
        return end(tx, job, JobState.FAILED, why, now, exit_code=report.exit_code)
    state = JobState.DEGRADED if job.state is not JobState.STARTING else job.state
    return move_job(
        tx, job, state, f"{why}; the job continues from its checkpoint", now, failures=failures
    )


def _remedy(job: Job, found: Diagnosis | None) -> str:
    """Return a clause with the remedy for a job that ran out of its reserved memory."""
    reserved = job.resources.memory_bytes
    if found is None or found.kind is not FailureKind.MEMORY or not reserved:
        return ""
    return (
        f"; each replica may use {gibibytes(reserved)}: submit the job again with more "
        "`memoryBytes`"
    )


def _finished(
    tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime
) -> Job:
    return end(tx, job, JobState.SUCCEEDED, "all workers ended with exit code 0", now, exit_code=0)


def _stopped(
    tx: Transaction, job: Job, report: WorldReport, settings: Settings, now: datetime
) -> Job:
    return stopped(tx, job, now)


_FOLLOW: Mapping[WorldEvent, _Follow] = {
    WorldEvent.FORMED: _formed,
    WorldEvent.STEPPING: _stepping,
    WorldEvent.HELD: _held,
    WorldEvent.CHANGE_FAILED: _change_failed,
    WorldEvent.HUNG: _hung,
    WorldEvent.LOST: _lost,
    WorldEvent.FINISHED: _finished,
    WorldEvent.STOPPED: _stopped,
}


def _applying(tx: Transaction, report: WorldReport) -> ScalePlan | None:
    """Return the plan that the change in a report belongs to, if that plan is still being
    applied.
    """
    plan = tx.plans.active(report.job)
    if plan is None or plan.state is not PlanState.APPLYING:
        return None
    return plan if plan.generation == report.generation else None


def _sentence(report: WorldReport) -> str:
    said = f"world {report.epoch} with {count(len(report.members), 'replica')}: {report.event}"
    return said + (f", {report.detail}" if report.detail else "")


def _train(size: int) -> str:
    return "trains" if size == 1 else "train"
