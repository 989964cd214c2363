"""Heartbeats that agents send to a coordinator, and the leases that it sends back."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from brain.types.world import MemoryCheckpoint, WorldEvent
from launcher import messages
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.membership import may_renew, quorum_at
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.peers import Peer
from launcher.coordinator.world.state import CoordinatorState

#: Seconds per member that leases are counted from the same look at them: so it costs a constant
#: share of the time, and what a beat brings counts at once where the world is small.
_QUORUM_SECONDS_PER_MEMBER = 1e-5


class Heartbeats:
    """Heartbeats of one coordinator's agents. No heartbeat triggers a decision."""

    def __init__(
        self, it: CoordinatorState, holds: Callable[[], bool], continuity: Continuity
    ) -> None:
        """``holds``: True while new agents find the coordinator where they look for it."""
        self._it, self._holds, self._continuity = it, holds, continuity
        #: Time and epoch of the last look-up of the quorum, and its result.
        self._quorum = -math.inf, 0, 0.0
        #: End and epoch of the last lease, and the count of agents lost before it.
        self._given = math.inf, 0, 0

    def answer(self, peer: Peer, beat: messages.Heartbeat) -> messages.Lease:
        """Store the progress of an agent's workers, and return their new lease."""
        it, now = self._it, self._it.clock()
        monitor = it.monitor
        peer.confirmed_at = max(peer.confirmed_at, beat.heard)
        seconds, asking = 0.0, self._continuity.broken
        if monitor is not None and beat.epoch in monitor.ending(peer.replica) and not asking:
            seconds = it.terms.lease_seconds
        if monitor is not None and beat.epoch == monitor.document.epoch:
            monitor.went(beat.progress, self.offset(peer, beat.now_ns))
            if it.terms.replaceable and not asking:
                seconds = self._lease(monitor, now)
            # Before its first step was told, the past is still that of the world before.
            if it.journal.ledger.stepped and any(each.rank == 0 for each in beat.progress):
                it.journal.note(durable=False, past=monitor.past)
            self._remember(monitor, peer.replica, beat.memory)
        batch = None if it.desired is None else it.desired.batch
        return messages.Lease(
            epoch=beat.epoch,
            sent_ns=beat.now_ns,
            seconds=seconds,
            at=now,
            asking=asking,
            batch=batch,
        )

    def _lease(self, monitor: WorldMonitor, now: float) -> float:
        """Return the seconds of the new lease; 0.0 if workers whose lease ran out must end."""
        it, epoch = self._it, monitor.document.epoch
        until, given_epoch, lost = self._given
        if epoch != given_epoch:
            # Leases of a coordinator before this one last no longer than from when this one began.
            taken_over = monitor.document.coordinator != it.terms.address
            until = (it.recovered_at or 0.0) + it.terms.lease_seconds if taken_over else math.inf
            lost = 0
        # Others have ended when their lease ran out.
        if (
            monitor.document.holds
            and now > until
            and not may_renew(
                (peer.confirmed_at for peer in it.peers),
                until,
                lost=it.peers.lost != lost or bool(it.behind),
                holds=self._holds(),
            )
        ):
            return 0.0
        end = self._quorum_at(monitor, now) + it.terms.lease_seconds
        if end <= now:
            return 0.0
        self._given = end, epoch, it.peers.lost
        return end - now

    def offset(self, peer: Peer, now_ns: int) -> float:
        """Return the seconds between an agent's clock and this machine's clock; 0.0 on one
        machine.
        """
        near = peer.hello.node == self._it.terms.node
        return 0.0 if near else self._it.clock() - now_ns / 1e9

    def _remember(
        self, monitor: WorldMonitor, replica: int, memory: MemoryCheckpoint | None
    ) -> None:
        """Report how far checkpoints in memory are ahead of storage, if that changed."""
        if memory is None or not monitor.formed:
            return
        members = monitor.remembers(replica, memory, datetime.now(UTC))
        if members is not None:
            self._it.journal.tell(WorldEvent.MEMORY, monitor, members=members)

    def _quorum_at(self, monitor: WorldMonitor, now: float) -> float:
        """Return when enough members last heard the coordinator, as looked up now and then."""
        looked_at, epoch, found = self._quorum
        members = monitor.document.members
        fresh = now - looked_at <= _QUORUM_SECONDS_PER_MEMBER * len(members)
        if epoch != monitor.document.epoch or not fresh:
            confirmed = {peer.replica: peer.confirmed_at for peer in self._it.peers}
            last = [member.replica for member in members]
            found = quorum_at(last, confirmed, self._it.gone)
            self._quorum = now, monitor.document.epoch, found
        return found
