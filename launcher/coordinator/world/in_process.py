"""Carries out changes that end no process; facts that a successor needs are written first."""

from collections.abc import Iterable
from dataclasses import replace

from brain.types.world import Cause
from launcher import messages
from launcher.coordinator.world import actions
from launcher.coordinator.world.peers import Peer
from launcher.coordinator.world.preparation import Preparation
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.action import Action, FormWorld, Heal, PrepareWorld, Switch
from launcher.values.config import WorldDocument


async def carry_out(action: Action, it: CoordinatorState) -> None:
    match action:
        case PrepareWorld(form=formed, in_process=True):
            prepare(it, formed)
        case Switch(form=formed):
            switch(it, formed)
        case Heal(form=formed):
            heal(it, formed)
        case _:
            await actions.carry_out(action, it)


def prepare(it: CoordinatorState, formed: FormWorld) -> None:
    """Let members build the next world's process group, start newcomers, and prepare leaving
    workers.
    """
    document = replace(actions.document_of(it, formed), elastic=True)
    last = it.running.document.members
    it.prepared_epoch = document.epoch
    it.preparation = Preparation(
        formed,
        document,
        since=it.clock(),
        involved=[member.replica for member in last],
        first=last[0].replica,
    )
    stay = tuple(sorted(it.running.replicas & {m.replica for m in document.members}))
    order = messages.Prepare(world=document, in_process=True, staying=stay)
    _send(it, it.preparation.involved, order)


def answered(it: CoordinatorState, preparation: Preparation) -> None:
    """If everything is built, ask the first member to choose the step of the change."""
    if preparation.in_process and preparation.built and preparation.first is not None:
        _send(it, [preparation.first], messages.Appoint(epoch=preparation.document.epoch))


def heard(it: CoordinatorState, peer: Peer, message: messages.Appointed | messages.Agreed) -> None:
    """Handle an answer about the step after which all members change."""
    preparation = it.preparation
    if preparation is None or message.epoch != preparation.document.epoch:
        return
    if isinstance(message, messages.Appointed):
        preparation.ask(message.step)
        _send(it, preparation.involved, messages.Agree(epoch=message.epoch, step=message.step))
    elif preparation.agreed(peer.replica, message.step, message.ok):
        answered(it, preparation)


def known(it: CoordinatorState, replica: int) -> None:
    """Store, also for a successor, that all workers of a member can change worlds in process."""
    monitor = it.running
    monitor.elastic.add(replica)
    if monitor.elastic >= monitor.replicas and not monitor.document.elastic:
        monitor.document = replace(monitor.document, elastic=True)
        it.journal.world(monitor.document)


def post(it: CoordinatorState, peer: Peer, message: messages.Post) -> None:
    """Forward a message from one member of the world being built to all its other members."""
    document = _document(it, message.epoch)
    if document is not None:
        others = [m.replica for m in document.members if m.replica != peer.replica]
        _send(it, others, message)
    # Its other workers may need it as well.
    if document is not None and peer.hello.processes > 1:
        _send(it, [peer.replica], message)


def switch(it: CoordinatorState, formed: FormWorld) -> None:
    """Make the next world the present one; its members change at the agreed step."""
    preparation, before = it.preparation, it.running
    assert preparation is not None
    it.preparation = None
    _follow(it, formed, preparation.document)
    gone = preparation.involved - it.running.replicas
    it.running.parting |= {replica: before.document.epoch for replica in gone}
    order = messages.Run(world=preparation.document, in_process=True)
    _send(it, preparation.involved, order)
    _say(it, formed)


def heal(it: CoordinatorState, formed: FormWorld) -> None:
    """Let the remaining workers continue immediately; a failure is counted, and may end the job."""
    before = it.running
    actions.discard(it, None)
    if formed.cause is Cause.FAILURE:
        ledger, code = it.journal.ledger, before.seen().failed
        stepless = code is not None and not before.stepping and ledger.past is None
        barren = (*ledger.barren, code) if stepless and code is not None else ledger.barren
        it.journal.note(failures=ledger.failures + 1, barren=barren)
    before.untold = formed.cause
    it.fell(before)
    if it.journal.ledger.hopeless:
        actions.stop(it, formed.cause, quietly=True)  # a failure that would only come again
        return
    document = replace(actions.document_of(it, formed), elastic=True)
    _follow(it, formed, document)
    members = it.running.replicas
    outside = [m.replica for m in before.document.members if m.replica not in members]
    it.running.parting |= {replica: before.document.epoch for replica in outside}
    _send(it, members, messages.Run(world=document, in_process=True))
    part(it, outside)
    _say(it, formed)


def part(it: CoordinatorState, replicas: Iterable[int]) -> None:
    """End the remaining workers that are not in the present world."""
    grace = it.terms.grace_seconds
    for replica in list(replicas):
        epoch = it.running.parting.pop(replica, None)
        if epoch is not None:
            it.running.parted[replica] = epoch
            _send(it, [replica], messages.Halt(epoch=epoch, grace_seconds=grace))


def _follow(it: CoordinatorState, formed: FormWorld, document: WorldDocument) -> None:
    """Make another world of the same processes the present one."""
    before = it.running
    it.begin(document, formed.goal, past=before.past if before.past.steps else None)
    it.running.follow(before)


def _document(it: CoordinatorState, epoch: int) -> WorldDocument | None:
    """Return the world of an epoch, if it is the present one or is being built."""
    known = [it.monitor.document] if it.monitor is not None else []
    known += [it.preparation.document] if it.preparation is not None else []
    return next((each for each in known if each.epoch == epoch), None)


def _send(it: CoordinatorState, replicas: Iterable[int], message: messages.Message) -> None:
    content = messages.encoded(message)
    for replica in sorted(replicas):
        if peer := it.peers.get(replica):
            peer.connection.send(content)


def _say(it: CoordinatorState, formed: FormWorld) -> None:
    epoch, size = it.running.document.epoch, len(formed.members)
    it.say(f"world {epoch} of {size} replicas, {formed.cause}, in process")
