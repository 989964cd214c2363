"""Handles members' messages about the present world and about the prepared world."""

from launcher import messages
from launcher.coordinator.world import actions, in_process
from launcher.coordinator.world.heartbeats import Heartbeats
from launcher.coordinator.world.peers import Peer
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.observation import WorldPhase


def compare(it: CoordinatorState, peer: Peer) -> None:
    """Find out if the workers that an agent runs belong to the present world; end the workers that
    do not.
    """
    hello, monitor = peer.hello, it.monitor
    if monitor is not None and hello.epoch == monitor.document.epoch:
        monitor.started(hello.replica)
        if hello.elastic:
            in_process.known(it, hello.replica)
        for exit in hello.exits:
            monitor.exited(hello.replica, exit, it.clock())
        monitor.again(hello.replica)
        if monitor.phase is WorldPhase.RUNNING:
            return
    elif monitor is not None and hello.replica in monitor.still:
        monitor.without(hello.replica)
    if hello.epoch:
        peer.connection.send(messages.Halt(epoch=hello.epoch, grace_seconds=0))


def note(
    it: CoordinatorState, heartbeats: Heartbeats, peer: Peer, message: messages.Message
) -> bool:
    """Note a message about the present world; a message about another world is outdated. Return
    True if it may change a decision.
    """
    monitor = it.monitor
    if monitor is None:
        return False
    epoch, replica, fallen = monitor.document.epoch, peer.replica, it.fallen
    match message:
        case messages.Started(epoch=at) if at == epoch:
            return monitor.started(replica)
        case messages.Elastic(epoch=at) if at == epoch:
            in_process.known(it, replica)
            return True
        case messages.Torn(epoch=at, reason=reason, unbuilt=unbuilt) if at == epoch:
            it.say(f"replica {replica} cannot reach its peers: {reason}")
            monitor.torn(reason, unbuilt=unbuilt, now=it.clock())
            return True
        case messages.Failing(epoch=at) if at == epoch:
            monitor.fails(replica)
            return True
        case messages.Exited(epoch=at, exit=exit) if fallen and at == fallen.document.epoch:
            return fallen.exited(replica, exit, it.clock())
        case messages.Exited(epoch=at, exit=exit, port_taken=taken) if at == epoch:
            monitor.port_taken |= taken and it.terms.master_port is None
            return monitor.exited(replica, exit, it.clock())
        case messages.Said(event=event) if event.epoch == epoch:
            return monitor.heard(event, it.clock())
        case messages.Stopped(epoch=at) if at == epoch:
            peer.port, peer.held = message.port, message.held
            monitor.went(message.progress, heartbeats.offset(peer, message.now_ns))
            return monitor.stopped(replica)
    return False


def prepared(it: CoordinatorState, replica: int, answer: messages.Prepared) -> bool:
    """Note that an agent's workers wait for the next world, or that they cannot wait for it. Return
    True if no answer is outstanding.
    """
    preparation = it.preparation
    if preparation is None or preparation.document.epoch != answer.epoch:
        return False
    preparation.answered(replica)
    in_process.answered(it, preparation)
    if not answer.ok and preparation.failed is None:
        actions.discard(it, f"replica {replica}: {answer.reason}")
    return preparation.settled
