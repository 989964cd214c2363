"""The coordinator's side of the witness: the coordinator offers a witness, and puts it in force
once all members see it.

Only the member that formed a world gives it a witness, so this member is the first to know that a
witness is in force. If the world is cut into halves, a half whose members know of no witness waits.
The coordinator's half must take the witness before it continues, because the other half may know
the witness and take it.
"""

import asyncio
import os
from collections.abc import Callable

from launcher import messages
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.peers import Peer
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.observation import WorldPhase


class WitnessOffer:
    """Offers a witness: a file on the checkpoint's storage that only one half of a cut world can
    take. The witness is in force once every member sees the file.
    """

    def __init__(self, it: CoordinatorState, near: Callable[[str], bool]) -> None:
        """``near`` is True for an address that no network separates from this agent."""
        self._it, self._near = it, near
        self._offering: asyncio.Task[None] | None = None
        #: Epoch of the world, directories that were tried, and members that saw the present file.
        self._epoch = 0
        self._tried: set[str] = set()
        self._saw: set[int] = set()

    def look(self) -> None:
        """Offer a witness if the world has none and may have one."""
        monitor, seen = self._it.monitor, self._it.witness.seen
        if monitor is None or not self._due(monitor) or seen.in_force:
            return
        if self._epoch != monitor.document.epoch:
            self._epoch, self._tried = monitor.document.epoch, set()
        waits = seen.path and not seen.trouble
        if waits or (self._offering is not None and not self._offering.done()):
            return
        for checkpoint in self._checkpoints(monitor):
            directory = os.path.dirname(os.path.abspath(checkpoint))
            if directory not in self._tried:
                self._tried.add(directory)
                self._saw = set()
                self._offering = asyncio.create_task(self._offer(checkpoint))
                return

    def came(self, peer: Peer) -> None:
        """Inform a returning member of the witness."""
        seen = self._it.witness.seen
        if seen.path and peer.hello.epoch == seen.epoch:
            self._tell(peer)

    def heard(self, peer: Peer, message: messages.Witnessed) -> None:
        """Store a member's answer, which says if the member sees the witness."""
        it, seen, monitor = self._it, self._it.witness.seen, self._it.monitor
        if monitor is None or not self._due(monitor) or seen.in_force or message.path != seen.path:
            return
        if not message.seen:
            trouble = (
                f"replica {peer.replica} on {peer.hello.node} does not see the witness "
                f"{seen.path}; mount the checkpoint's storage there"
            )
            it.witness.refused(trouble)
            return
        self._saw.add(peer.replica)
        if self._saw >= monitor.replicas:
            it.witness.told(messages.Witness(epoch=seen.epoch, path=seen.path, in_force=True))
            for member in it.members:
                self._tell(member)

    def close(self) -> None:
        if self._offering is not None:
            self._offering.cancel()

    async def _offer(self, checkpoint: str) -> None:
        it, epoch = self._it, self._epoch
        try:
            await it.witness.offer(checkpoint, job=it.terms.job, epoch=epoch)
        except OSError:
            return  # the next save may be elsewhere
        if it.witness.seen.epoch == epoch and it.monitor is not None:
            for member in it.members:
                self._tell(member)

    def _due(self, monitor: WorldMonitor) -> bool:
        """True if the world is this agent's, complete, and has a network between its members."""
        document = monitor.document
        return (
            monitor.phase is WorldPhase.RUNNING
            and monitor.formed
            and monitor.coordinated is not None
            and document.coordinator == self._it.terms.address
            and self._it.witness.seen.epoch == document.epoch
            and not all(self._near(member.address) for member in document.members)
        )

    def _checkpoints(self, monitor: WorldMonitor) -> list[str]:
        past, declared = self._it.journal.ledger.past, self._it.terms.checkpoint
        before = () if past is None else past.saved
        return [*([declared] if declared else []), *monitor.saves.paths, *before]

    def _tell(self, peer: Peer) -> None:
        seen = self._it.witness.seen
        told = messages.Witness(epoch=seen.epoch, path=seen.path, in_force=seen.in_force)
        peer.connection.send(told)
