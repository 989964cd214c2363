"""Derives worlds from pods, for jobs that run without Brain's agent. All functions are pure.

Such a job has no coordinator, so a world counts as formed when all requested pods run. Brain does
not know the job's speed or its repeated and lost steps, so the verdict on its plans is
inconclusive.
"""

from datetime import datetime

from brain.types.job import Intent
from brain.types.resources import NodeName
from brain.types.world import Cause, DesiredWorld, Member, World, WorldEvent, WorldReport
from scaler.adapters.training import Training
from scaler.ports import Observed, ReplicaPhase, ReplicaSeen

_UNKNOWN = NodeName("")


def reports(
    training: Training,
    seen: Observed,
    known: World | None,
    wish: DesiredWorld,
    *,
    processes: int,
    now: datetime,
) -> tuple[WorldReport, ...]:
    """Return the reports that Brain has not received yet, in order.

    Args:
        known: the latest world that Brain knows.
        processes: worker processes of each replica.
    """
    alive = known is not None and known.ended_at is None
    running = [each for each in seen.replicas if each.phase is ReplicaPhase.RUNNING]
    members = tuple(_member(rank, each, processes) for rank, each in enumerate(running))
    if training.over is not None:
        return _over(training, known, members, now) if alive or known is None else ()
    if known is not None and alive and not running:
        event = WorldEvent.STOPPED if wish.intent is not Intent.RUN else WorldEvent.LOST
        return (
            _report(training, event, known, known.members, now, detail="none of its pods runs"),
        )
    complete = bool(running) and len(running) == training.replicas
    same = known is not None and [m.replica for m in known.members] == [r.id for r in running]
    if not complete or (alive and same):
        return ()
    following = _following(training, known, wish, len(running), members, now)
    return (
        _report(training, WorldEvent.FORMED, following, members, now),
        _report(training, WorldEvent.STEPPING, following, members, now),
    )


def _following(
    training: Training,
    known: World | None,
    wish: DesiredWorld,
    size: int,
    members: tuple[Member, ...],
    now: datetime,
) -> World:
    """Return the next world.

    It answers the desired world if it has that size, else the earlier one.
    """
    before = known.generation if known is not None else 0
    generation = wish.generation if size == wish.replicas else before
    cause = Cause.PLAN if generation > before else Cause.MEMBERSHIP
    return World(
        job=training.job,
        epoch=known.epoch + 1 if known is not None else 1,
        generation=generation,
        cause=Cause.START if known is None else cause,
        members=members,
        formed_at=now,
    )


def _over(
    training: Training, known: World | None, members: tuple[Member, ...], now: datetime
) -> tuple[WorldReport, ...]:
    world = known or World(
        job=training.job, epoch=1, generation=0, cause=Cause.START, members=members, formed_at=now
    )
    if training.over == "Succeeded":
        return (_report(training, WorldEvent.FINISHED, world, world.members, now, exit_code=0),)
    detail = f"{training.kind.kind} {training.name} failed"
    return (_report(training, WorldEvent.LOST, world, world.members, now, detail=detail),)


def _report(
    training: Training,
    event: WorldEvent,
    world: World,
    members: tuple[Member, ...],
    now: datetime,
    *,
    exit_code: int | None = None,
    detail: str = "",
) -> WorldReport:
    return WorldReport(
        job=training.job,
        event=event,
        epoch=world.epoch,
        generation=world.generation,
        cause=world.cause,
        members=members,
        at=now,
        exit_code=exit_code,
        final=training.over is not None,
        detail=detail,
    )


def _member(rank: int, seen: ReplicaSeen, processes: int) -> Member:
    return Member(
        replica=seen.id,
        group_rank=rank,
        processes=processes,
        node=seen.node or _UNKNOWN,
        address="",
    )
