"""Carries out one action of ``membership``; facts that a successor needs are written first."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from brain.types.roles import roles_in
from brain.types.world import Cause, Member, ReplicaExit, WorldEvent
from launcher import messages
from launcher.coordinator import pins
from launcher.coordinator.membership import next_epoch
from launcher.coordinator.world.peers import Peer
from launcher.coordinator.world.preparation import Preparation
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.action import (
    DiscardWorld,
    End,
    FormWorld,
    HoldWorld,
    Ordinary,
    ParkWorld,
    PrepareWorld,
    Relabel,
    Release,
    Revert,
    StayAsIs,
    StopWorld,
    Swap,
    Take,
    Unpark,
    WaitFor,
)
from launcher.values.config import WorldDocument, on_loopback
from launcher.values.console import say
from launcher.values.diagnosis.first import then
from launcher.values.observation import HeldWorld, WorldChange, WorldPhase
from launcher.values.ram_checkpoint import parts
from launcher.values.workers import ParkRequest as Mode

#: Seconds until a world that could not be built in process is tried again.
_BUILD_AGAIN_SECONDS = 30.0
#: Seconds until a checkpoint that could not be put back is tried again.
_RETRY_SECONDS = 1.0
#: Seconds beyond their grace that the last workers of a job may take, and between looks at them.
_LAST_SECONDS, _LOOK_SECONDS = 2.0, 0.005
#: Said once, by hand too: a person can change the script.
_UNLOADED = (
    "a change is undone: the script stepped without loading %s, which it had just saved. From "
    "now on each agent that comes or goes costs a restart, without a check that the script loads "
    "the checkpoint. To restore the check, load the newest checkpoint by its path before the "
    "first step, and start the job again"
)
_EVENTS = {ReplicaExit.SUCCEEDED: WorldEvent.FINISHED, ReplicaExit.FAILED: WorldEvent.LOST}


async def carry_out(action: Ordinary, it: CoordinatorState) -> None:  # noqa: C901  one case each
    match action:
        case StayAsIs() | WaitFor():
            return
        case ParkWorld():
            park(it, Mode.AT_SAVE)
        case Unpark():
            park(it, Mode.RUN)
        case HoldWorld(reason=reason):
            hold(it, reason)
        case PrepareWorld(form=formed):
            prepare(it, formed)
        case DiscardWorld(reason=reason):
            discard(it, reason)
        case Swap(planned=planned):
            await swap(it, planned=planned)
        case StopWorld(cause=cause):
            stop(it, cause)
        case Take(replica=replica):
            it.witness.take(it.witness_seen, replica)
        case FormWorld():
            await form(it, action)
        case Relabel(generation=generation, goal=goal):
            relabel(it, generation, goal)
        case Release(replicas=replicas):
            release(it, replicas)
        case Revert(reason=reason):
            revert(it, reason)
        case End():
            await end(it, action)
        case _:
            assert_never(action)


def park(it: CoordinatorState, mode: Mode) -> None:
    """Ask all workers to park (to pause between two steps), or to continue."""
    monitor = it.running
    if mode is Mode.RUN:
        monitor.saves.unpark()
    else:
        monitor.saves.park(it.clock())
    for peer in it.members:
        peer.connection.send(messages.Parked(epoch=monitor.document.epoch, mode=mode))


def prepare(it: CoordinatorState, formed: FormWorld) -> None:
    """Let agents start the workers of the next world and hold them, while the present world
    trains.
    """
    document = document_of(it, formed)
    it.prepared_epoch = document.epoch
    it.preparation = Preparation(formed, document, since=it.clock())
    order = messages.encoded(messages.Prepare(world=document))
    for peer in _peers_of(it, document):
        peer.connection.send(order)


def discard(it: CoordinatorState, reason: str | None) -> None:
    """End the prepared world. If a reason is given, print it, and do not prepare this change
    again.
    """
    preparation = it.preparation
    if preparation is None:
        return
    if reason is None:
        it.preparation = None
    else:
        preparation.failed = preparation.failed or reason
        it.say(f"nothing is prepared: {preparation.failed}")
    order = messages.Discard(epoch=preparation.document.epoch)
    for replica in preparation.involved:
        if peer := it.peers.get(replica):
            peer.connection.send(order)


def hold(it: CoordinatorState, reason: str) -> None:
    """Abandon the planned change, and report ``reason`` to Brain."""
    monitor, desired = it.running, it.desired
    assert desired is not None
    park(it, Mode.RUN)
    if it.preparation is not None and it.preparation.in_process:
        it.build_after = it.clock() + _BUILD_AGAIN_SECONDS
    discard(it, None)
    held = HeldWorld(generation=desired.generation, saves=monitor.seen().saves.count)
    it.journal.note(held=held)
    it.journal.tell(WorldEvent.HELD, monitor, generation=desired.generation, detail=reason)


async def swap(it: CoordinatorState, *, planned: bool) -> None:
    """At the safe point, pin the checkpoint (see ``pins``), then stop the workers."""
    monitor, desired = it.running, it.desired
    if it.journal.ledger.unchecked and not planned:
        return stop(it, Cause.MEMBERSHIP, quietly=True)
    checkpoints = monitor.saves.checkpoints()
    it.journal.note(folders=tuple(checkpoints) or it.journal.ledger.folders)
    try:
        kept = await asyncio.to_thread(pins.pin_all, checkpoints, job=it.terms.job)
    except pins.CannotPin as cannot:
        hold(it, str(cannot))
        return
    monitor.change = WorldChange(
        from_goal=len(monitor.document.members) if planned else monitor.goal,
        from_generation=monitor.generation,
        from_roles=roles_in(monitor.document.members),
        to_generation=desired.generation if desired is not None else monitor.generation,
    )
    it.journal.note(change=monitor.change, pins=kept, pinned_epoch=monitor.document.epoch)
    stop(it, Cause.PLAN if planned else Cause.MEMBERSHIP, quietly=True)


def stop(it: CoordinatorState, cause: Cause | None, *, quietly: bool = False) -> None:
    """Stop the workers; report the loss of the world, unless ``quietly``.

    The workers are stopped before the ledger is written. If this process dies in between, its
    successor sees ended workers, and this failure is not counted.
    """
    monitor = it.running
    monitor.phase, monitor.ended_by = WorldPhase.STOPPING, cause
    lost = cause in (Cause.FAILURE, Cause.MEMBERSHIP) and not quietly
    grace = it.terms.grace_seconds
    order = messages.Halt(epoch=monitor.document.epoch, grace_seconds=grace, lost=lost)
    halt = messages.encoded(order)
    for replica in monitor.still:
        if peer := it.peers.get(replica):
            peer.connection.send(halt)
        else:
            monitor.stopped(replica)
    if cause is Cause.FAILURE:
        ledger, code = it.journal.ledger, monitor.seen().failed
        barren = ledger.barren if code is None else (*ledger.barren, code)
        it.journal.note(failures=ledger.failures + 1, barren=barren)
    # Told once all its workers' ends are known: only then can it be said who was the first.
    monitor.untold = cause if lost else None


async def form(it: CoordinatorState, formed: FormWorld) -> None:
    """Start the workers of the next world; if these are prepared already, let them continue."""
    try:
        await _put_back(it, formed.cause is Cause.REVERT)
    except pins.CannotPin as cannot:
        it.say(str(cannot))
        await asyncio.sleep(_RETRY_SECONDS)
        return
    document = _prepared(it, formed) or document_of(it, formed)
    it.begin(document, formed.goal)
    held = [part for peer in it.peers for part in peer.held]
    order = messages.encoded(messages.Run(world=document, memory=parts.complete(held)))
    for peer in it.members:
        peer.connection.send(order)
    it.say(f"world {document.epoch} of {len(formed.members)} replicas, {formed.cause}")


def _prepared(it: CoordinatorState, formed: FormWorld) -> WorldDocument | None:
    """Return the prepared world if it is exactly ``formed``; else discard the preparation."""
    preparation = it.preparation
    if preparation is None or not preparation.fits(formed):
        discard(it, None)
        return None
    it.preparation = None
    return preparation.document


def _peers_of(it: CoordinatorState, document: WorldDocument) -> list[Peer]:
    found = (it.peers.get(member.replica) for member in document.members)
    return [peer for peer in found if peer is not None]


async def _put_back(it: CoordinatorState, revert: bool) -> None:
    """Put back the checkpoint that was kept for the next world."""
    ledger, job = it.journal.ledger, it.terms.job
    if not ledger.pins and not revert:
        return
    if ledger.pins and ledger.pinned_epoch == ledger.epoch:
        renewed = await asyncio.to_thread(pins.renew_all, ledger.pins, job=job)
        it.journal.note(pins=renewed)
    await asyncio.to_thread(pins.put_back, it.journal.ledger.pins, job=job, keep=not revert)
    if revert:
        it.confirm()


def document_of(it: CoordinatorState, formed: FormWorld) -> WorldDocument:
    """Return the next world, with an epoch that no agent has received yet."""
    terms, ledger = it.terms, it.journal.ledger
    first = it.peers.get(formed.members[0].replica)
    assert first is not None
    host = formed.members[0].address.rpartition(":")[0]
    return WorldDocument(
        job=terms.job,
        epoch=next_epoch(
            [ledger.epoch, it.prepared_epoch, *(peer.hello.last_epoch for peer in it.peers)]
        ),
        generation=formed.generation,
        cause=formed.cause,
        members=formed.members,
        master_addr=terms.master_addr or host.strip("[]"),
        master_port=terms.master_port or first.port,
        run_id=terms.run_id,
        coordinator=terms.address,
        lease_seconds=terms.lease_seconds if terms.replaceable else 0.0,
        holds=terms.replaceable and (terms.by_hand or terms.asks or _near(formed.members)),
        restart_count=ledger.failures,
        unchecked=ledger.unchecked,
        max_restarts=it.desired.restart_limit if it.desired is not None else 0,
    )


def _near(members: Iterable[Member]) -> bool:
    """True if the members meet over loopback, with no network between them."""
    return all(on_loopback(member.address) for member in members)


async def _all_ended(it: CoordinatorState) -> None:
    """End all running workers and wait for their exits, since one may have failed first."""
    monitor = it.monitor
    if monitor is None or monitor.phase is not WorldPhase.RUNNING or not monitor.still:
        return
    order = messages.Halt(epoch=monitor.document.epoch, grace_seconds=it.terms.grace_seconds)
    halt = messages.encoded(order)
    for peer in it.members:
        peer.connection.send(halt)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(it.terms.grace_seconds + _LAST_SECONDS):
            while {each.replica for each in it.members} & monitor.still:
                await asyncio.sleep(_LOOK_SECONDS)


def relabel(it: CoordinatorState, generation: int, goal: int) -> None:
    """Assign another generation to the present world."""
    monitor = it.running
    monitor.generation, monitor.goal = generation, goal
    monitor.document = replace(monitor.document, generation=generation)
    it.journal.world(monitor.document)
    it.journal.note(goal=goal)
    if monitor.stepping:
        it.journal.tell(WorldEvent.STEPPING, monitor, detail="the world already had this size")


def release(it: CoordinatorState, replicas: tuple[int, ...]) -> None:
    it.gone.update(replicas)
    for replica in replicas:
        peer = it.peers.get(replica)
        unfit = "" if peer is None else peer.unfit
        why = unfit or "released by the coordinator"
        bye = messages.Bye(exit=ReplicaExit.LEFT, exit_code=0, detail=why, unfit=unfit)
        it.peers.release(replica, bye)


def revert(it: CoordinatorState, reason: str) -> None:
    """Begin the change from the new size back to the old size."""
    monitor = it.running
    assert monitor.change is not None
    generation = monitor.change.to_generation
    failed = monitor.seen().failed is not None
    held = HeldWorld(generation=generation, saves=0)
    if monitor.unloaded and not it.journal.ledger.unchecked:
        it.journal.note(unchecked=True)
        say(_UNLOADED % ", ".join(pin.path for pin in monitor.pins))
    it.journal.note(held=held, failures=it.journal.ledger.failures + failed)
    it.journal.tell(WorldEvent.CHANGE_FAILED, monitor, generation=generation, detail=reason)
    stop(it, Cause.REVERT)


async def end(it: CoordinatorState, ended: End) -> None:
    """End the job; nothing is decided afterwards."""
    event = _EVENTS.get(ended.exit, WorldEvent.STOPPED)
    failed, code = event is WorldEvent.LOST, ended.exit_code
    if failed:
        await _all_ended(it)
        code = _code(it, code)
    lost = it.loss(Cause.FAILURE) if failed else ""
    found = it.found(Cause.FAILURE) if failed else None
    reason = "; ".join(filter(None, (lost, ended.reason)))
    it.journal.tell(
        event,
        it.monitor,
        cause=Cause.FAILURE if event is WorldEvent.LOST else None,
        exit_code=code,
        final=ended.exit is not ReplicaExit.LEFT,
        detail=reason,
        diagnosis=None if found is None else then(found, f"the job ends: {ended.reason}"),
    )
    it.confirm()
    it.journal.note(over=ended.exit, exit_code=code, reason=reason, ended=True, ended_by=None)


def _code(it: CoordinatorState, code: int) -> int:
    """Return the job's exit code.

    If a worker only announced its failure, its real exit is known by now and counts instead.
    """
    monitor = it.monitor
    known = None if monitor is None or not monitor.failing else monitor.seen().failed
    return code if known is None else known
