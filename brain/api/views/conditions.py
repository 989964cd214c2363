"""Conditions of a job: facts that a person should know in addition to the job's state."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from brain import estimates, lifecycle
from brain.api.views.measurements import RecentMeasurements
from brain.pool.rounds.findings import CODE as UNDECIDED
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.job import Job, JobState, ObjectCondition
from brain.types.world import UNFIT, Replica, ReplicaState, World, unfit_nodes
from brain.typeset import duration, percent
from brain.views import Condition, MemoryView

#: Seconds after which storage that does not take a checkpoint gives the job a condition.
_BEHIND_SECONDS = 30.0
#: Expected conditions of a cluster's object: these are true, and ``Conflict`` is false.
_AS_IT_SHOULD = {
    "Accepted": True,
    "Honoured": True,
    "Feasible": True,
    "Scheduled": True,
    "Telemetry": True,
    "Conflict": False,
}


def conditions(
    tx: Transaction, job: Job, seen: RecentMeasurements, settings: Settings, now: datetime
) -> tuple[Condition, ...]:
    """Return all conditions of an unfinished job; a finished job has none."""
    if job.finished:
        return ()
    world = tx.worlds.latest(job.id)
    found = [*_decided(tx, job)]
    if (held := memory(world, now)) is not None:
        found += _memory_conditions(held)
    # No worker steps while the world changes, and nothing is wrong.
    if seen.stepping and job.state is not JobState.CHANGING:
        found += _measured_conditions(seen, world, now)
    found += [(one.kind, one.sentence) for one in estimates.notices(tx, job, settings, now)]
    replicas = tx.worlds.present(job.id)
    found += left(replicas, now)
    found += unenforced(replicas)
    found += of_object(job.conditions)
    return tuple(Condition(kind=kind, reason=reason) for kind, reason in found)


def late(job: Job, ends_at: datetime | None) -> tuple[Condition, ...]:
    """Return the ``Late`` condition if the job misses its deadline at the present pace."""
    deadline = job.document.deadline
    if job.finished or deadline is None or ends_at is None or ends_at <= deadline:
        return ()
    behind = duration((ends_at - deadline).total_seconds())
    return (
        Condition(
            kind="Late", reason=f"at the present pace the job ends {behind} after its deadline"
        ),
    )


def left(replicas: Iterable[Replica], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield a ``LeftNode`` condition for each node that a job left because the node was sick or
    slow, with the time until which the job avoids the node.
    """
    for node, last in unfit_nodes(replicas, now).items():
        if last.ended_at is not None:
            until = last.ended_at + UNFIT
            yield "LeftNode", f"the job avoids {node} until {until:%H:%M} UTC: {last.unfit}"


def unenforced(replicas: Iterable[Replica]) -> Iterator[tuple[str, str]]:
    """Yield a ``NotEnforced`` condition for each reason why amounts that live replicas reserve are
    not enforced.
    """
    live = [one for one in replicas if one.unenforced and one.state is not ReplicaState.EXITED]
    for reason in dict.fromkeys(one.unenforced for one in live):
        yield "NotEnforced", reason


def of_object(said: Iterable[ObjectCondition]) -> Iterator[tuple[str, str]]:
    """Yield the reason and the message of each condition of a job's object that
    reports a problem.
    """
    for one in said:
        expected = _AS_IT_SHOULD.get(one.type)
        if expected is not None and one.status is not expected:
            yield one.reason, one.message or f"{one.type} is {one.status}"


def _decided(tx: Transaction, job: Job) -> Iterator[tuple[str, str]]:
    """Yield kind and reason of each condition under which Brain does nothing about the job."""
    decision = tx.plans.decision(job.id)
    if decision is not None and decision.hold:
        kind = "Undecided" if decision.explanation.code == UNDECIDED else "Holding"
        yield kind, decision.explanation.reason
    if job.advise_only is not None:
        yield "AdviseOnly", job.advise_only
    if (freeze := lifecycle.frozen(tx, job)) is not None:
        yield "Frozen", lifecycle.freeze_reason(job, freeze)


def memory(world: World | None, now: datetime) -> MemoryView | None:
    """Return the state of the present world's RAM checkpoints; None if the world has none.

    The state includes how far the RAM checkpoints are ahead of storage.
    """
    members = () if world is None or world.ended_at else world.members
    known = [member.memory for member in members if member.memory is not None]
    if not known:
        return None
    ahead = [(now - each.ahead_since).total_seconds() for each in known if each.ahead_since]
    copied = [each.buddy for each in known if each.buddy is not None]
    return MemoryView(
        ahead_seconds=max(0.0, *ahead, 0.0),
        buddy=all(copied) if copied else None,
        off=next((each.off for each in known if each.off), ""),
    )


def _memory_conditions(held: MemoryView) -> list[tuple[str, str]]:
    if held.off:
        return [("NoMemoryCheckpoint", held.off)]
    if held.ahead_seconds > _BEHIND_SECONDS:
        text = f"the newest checkpoint has existed only in memory for {held.ahead_seconds:.0f} s"
        return [("StorageBehind", text)]
    return []


def _measured_conditions(
    seen: RecentMeasurements, world: World | None, now: datetime
) -> list[tuple[str, str]]:
    age = seen.age_seconds(now)
    if age is not None and age > seen.stale_after_seconds:
        # The finding stays stored with its world, but a world that has stepped since does not hang.
        if (hang := _hang(world)) is not None:
            return [("Hung", hang.sentence)]
        return [("StaleTelemetry", f"the newest sample is {duration(age)} old")]
    slow = seen.straggler()
    if slow is None:
        return []
    more = percent(slow.deviation)
    return [("Straggler", f"rank {slow.rank} on {slow.node} is {more} slower than the other ranks")]


def _hang(world: World | None) -> Diagnosis | None:
    """Return the diagnosis of a world that hangs and still runs."""
    if world is None or world.ended_at is not None or world.diagnosis is None:
        return None
    return world.diagnosis if world.diagnosis.kind is FailureKind.HANG else None
