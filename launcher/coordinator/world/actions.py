"""Carries out one action of ``membership``; what a successor needs is written first."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from brain.types.world import Cause, Member, ReplicaExit, WorldEvent
from launcher import messages
from launcher.coordinator import pins
from launcher.coordinator.membership import next_epoch
from launcher.coordinator.world.peers import Peer
from launcher.coordinator.world.preparation import Preparation
from launcher.coordinator.world.state import Standing
from launcher.values import observation
from launcher.values.config import WorldDocument, on_loopback
from launcher.values.console import say
from launcher.values.diagnosis.first import then
from launcher.values.ram_checkpoint import parts
from launcher.values.workers import Park as Mode

#: Seconds until a world that could not be built in process is tried again.
_BUILD_AGAIN_SECONDS = 30.0
#: Seconds until a checkpoint that could not be put back is tried again.
_RETRY_SECONDS = 1.0
#: Seconds beyond their grace that the last workers of a job may take, and between looks at them.
_LAST_SECONDS, _LOOK_SECONDS = 2.0, 0.005
#: Said once, by hand too: a person can change the script.
_UNLOADED = (
    "a change is taken back: the script stepped without loading %s, which it had just saved. "
    "Further agents that come or go cost one start each, and nobody looks again whether it loads. "
    "To have that back: load the newest checkpoint by its path before the first step, and start "
    "the job again"
)
_EVENTS = {ReplicaExit.SUCCEEDED: WorldEvent.FINISHED, ReplicaExit.FAILED: WorldEvent.LOST}


async def carry_out(action: observation.Ordinary, it: Standing) -> None:  # noqa: C901  one case each
    """Do it."""
    match action:
        case observation.Stay() | observation.Wait():
            return
        case observation.Park():
            park(it, Mode.AT_SAVE)
        case observation.Unpark():
            park(it, Mode.RUN)
        case observation.Hold(reason=reason):
            hold(it, reason)
        case observation.Prepare(form=formed):
            prepare(it, formed)
        case observation.Discard(reason=reason):
            discard(it, reason)
        case observation.Swap(planned=planned):
            await swap(it, planned=planned)
        case observation.Stop(cause=cause):
            stop(it, cause)
        case observation.Take(replica=replica):
            it.witness.take(it.witness_seen, replica)
        case observation.Form():
            await form(it, action)
        case observation.Relabel(generation=generation, goal=goal):
            relabel(it, generation, goal)
        case observation.Release(replicas=replicas):
            release(it, replicas)
        case observation.Revert(reason=reason):
            revert(it, reason)
        case observation.End():
            await end(it, action)
        case _:
            assert_never(action)


def park(it: Standing, mode: Mode) -> None:
    """Ask all workers to park, or to run on."""
    watch = it.running
    if mode is Mode.RUN:
        watch.unpark()
    else:
        watch.park(it.clock())
    for peer in it.members:
        peer.connection.send(messages.Parked(epoch=watch.document.epoch, mode=mode))


def prepare(it: Standing, formed: observation.Form) -> None:
    """Have the workers of the next world started and held, while this one trains."""
    document = document_of(it, formed)
    it.prepared_epoch = document.epoch
    it.preparation = Preparation(formed, document, since=it.clock())
    order = messages.encoded(messages.Prepare(world=document))
    for peer in _peers_of(it, document):
        peer.connection.send(order)


def discard(it: Standing, reason: str | None) -> None:
    """End what was prepared; with a reason it is not tried again for this change."""
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


def hold(it: Standing, reason: str) -> None:
    """Give the change up."""
    watch, wish = it.running, it.wish
    assert wish is not None
    park(it, Mode.RUN)
    if it.preparation is not None and it.preparation.in_process:
        it.build_after = it.clock() + _BUILD_AGAIN_SECONDS
    discard(it, None)
    held = observation.Held(generation=wish.generation, saves=watch.seen().saves.count)
    it.books.note(held=held)
    it.books.tell(WorldEvent.HELD, watch, generation=wish.generation, detail=reason)


async def swap(it: Standing, *, planned: bool) -> None:
    """At the safe point: keep the checkpoint, then stop the workers."""
    watch, wish = it.running, it.wish
    if it.books.ledger.unchecked and not planned:
        return stop(it, Cause.MEMBERSHIP, quietly=True)
    checkpoints = watch.checkpoints()
    it.books.note(folders=tuple(checkpoints) or it.books.ledger.folders)
    try:
        kept = await asyncio.to_thread(pins.pin_all, checkpoints, job=it.terms.job)
    except pins.CannotPin as cannot:
        hold(it, f"I will not resize this job now: {cannot}")
        return
    watch.change = observation.Change(
        from_goal=len(watch.document.members) if planned else watch.goal,
        from_generation=watch.generation,
        to_generation=wish.generation if wish is not None else watch.generation,
    )
    it.books.note(change=watch.change, pins=kept, pinned_epoch=watch.document.epoch)
    stop(it, Cause.PLAN if planned else Cause.MEMBERSHIP, quietly=True)


def stop(it: Standing, cause: Cause | None, *, quietly: bool = False) -> None:
    """Stop the workers; a world that was lost is told of, unless ``quietly``.

    They are told before it is written down: should this process die in between, its successor sees
    workers that have ended, and one failure is not counted.
    """
    watch = it.running
    watch.phase, watch.ended_by = observation.Phase.STOPPING, cause
    lost = cause in (Cause.FAILURE, Cause.MEMBERSHIP) and not quietly
    grace = it.terms.grace_seconds
    order = messages.Halt(epoch=watch.document.epoch, grace_seconds=grace, lost=lost)
    halt = messages.encoded(order)
    for replica in watch.still:
        if peer := it.peers.get(replica):
            peer.connection.send(halt)
        else:
            watch.stopped(replica)
    if cause is Cause.FAILURE:
        ledger, code = it.books.ledger, watch.seen().failed
        barren = ledger.barren if code is None else (*ledger.barren, code)
        it.books.note(failures=ledger.failures + 1, barren=barren)
    # Told once all its workers' ends are known: only then can it be said who was the first.
    watch.untold = cause if lost else None


async def form(it: Standing, formed: observation.Form) -> None:
    """Start the workers of the next world, or let go of those that wait for it at the gate."""
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


def _prepared(it: Standing, formed: observation.Form) -> WorldDocument | None:
    """What was prepared, where it is exactly this; else it is ended."""
    preparation = it.preparation
    if preparation is None or not preparation.fits(formed):
        discard(it, None)
        return None
    it.preparation = None
    return preparation.document


def _peers_of(it: Standing, document: WorldDocument) -> list[Peer]:
    found = (it.peers.get(member.replica) for member in document.members)
    return [peer for peer in found if peer is not None]


async def _put_back(it: Standing, revert: bool) -> None:
    """Make sure that the next world finds the checkpoint that was kept for it."""
    ledger, job = it.books.ledger, it.terms.job
    if not ledger.pins and not revert:
        return
    if ledger.pins and ledger.pinned_epoch == ledger.epoch:
        renewed = await asyncio.to_thread(pins.renew_all, ledger.pins, job=job)
        it.books.note(pins=renewed)
    await asyncio.to_thread(pins.put_back, it.books.ledger.pins, job=job, keep=not revert)
    if revert:
        it.confirm()


def document_of(it: Standing, formed: observation.Form) -> WorldDocument:
    """The next world, with an epoch that nobody has heard of."""
    terms, ledger = it.terms, it.books.ledger
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
        holds=terms.replaceable and (terms.by_hand or _near(formed.members)),
        restart_count=ledger.failures,
        unchecked=ledger.unchecked,
        max_restarts=it.wish.restart_limit if it.wish is not None else 0,
    )


def _near(members: Iterable[Member]) -> bool:
    """Whether no network comes between them: they meet over loopback."""
    return all(on_loopback(member.address) for member in members)


async def _all_ended(it: Standing) -> None:
    """Have workers that still run ended, and hear how: one of them may have failed first."""
    watch = it.watch
    if watch is None or watch.phase is not observation.Phase.RUNNING or not watch.still:
        return
    order = messages.Halt(epoch=watch.document.epoch, grace_seconds=it.terms.grace_seconds)
    halt = messages.encoded(order)
    for peer in it.members:
        peer.connection.send(halt)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(it.terms.grace_seconds + _LAST_SECONDS):
            while {each.replica for each in it.members} & watch.still:
                await asyncio.sleep(_LOOK_SECONDS)


def relabel(it: Standing, generation: int, goal: int) -> None:
    """Answer another generation with the world as it is."""
    watch = it.running
    watch.generation, watch.goal = generation, goal
    watch.document = replace(watch.document, generation=generation)
    it.books.world(watch.document)
    it.books.note(goal=goal)
    if watch.stepping:
        it.books.tell(WorldEvent.STEPPING, watch, detail="the world already had this size")


def release(it: Standing, replicas: tuple[int, ...]) -> None:
    """Let agents go."""
    it.gone.update(replicas)
    for replica in replicas:
        peer = it.peers.get(replica)
        unfit = "" if peer is None else peer.unfit
        why = unfit or "let go by the coordinator"
        bye = messages.Bye(exit=ReplicaExit.LEFT, exit_code=0, detail=why, unfit=unfit)
        it.peers.release(replica, bye)


def revert(it: Standing, reason: str) -> None:
    """Begin the way back to the old size."""
    watch = it.running
    assert watch.change is not None
    generation = watch.change.to_generation
    failed = watch.seen().failed is not None
    held = observation.Held(generation=generation, saves=0)
    if watch.unloaded and not it.books.ledger.unchecked:
        it.books.note(unchecked=True)
        say(_UNLOADED % ", ".join(pin.path for pin in watch.pins))
    it.books.note(held=held, failures=it.books.ledger.failures + failed)
    it.books.tell(WorldEvent.CHANGE_FAILED, watch, generation=generation, detail=reason)
    stop(it, Cause.REVERT)


async def end(it: Standing, ended: observation.End) -> None:
    """The job is over; from here on there is nothing to decide."""
    event = _EVENTS.get(ended.exit, WorldEvent.STOPPED)
    failed, code = event is WorldEvent.LOST, ended.exit_code
    if failed:
        await _all_ended(it)
        code = _code(it, code)
    lost = it.loss(Cause.FAILURE) if failed else ""
    found = it.found(Cause.FAILURE) if failed else None
    reason = "; ".join(filter(None, (lost, ended.reason)))
    it.books.tell(
        event,
        it.watch,
        cause=Cause.FAILURE if event is WorldEvent.LOST else None,
        exit_code=code,
        final=ended.exit is not ReplicaExit.LEFT,
        detail=reason,
        diagnosis=None if found is None else then(found, f"the job ends: {ended.reason}"),
    )
    it.confirm()
    it.books.note(over=ended.exit, exit_code=code, reason=reason, ended=True, ended_by=None)


def _code(it: Standing, code: int) -> int:
    """What the job ends with: of a worker that only said that it fails, the end is heard by now."""
    watch = it.watch
    known = None if watch is None or not watch.failing else watch.seen().failed
    return code if known is None else known
