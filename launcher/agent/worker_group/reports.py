"""Reports about this agent's workers to the coordinator; they are repeated to a new coordinator."""

import signal
import time
from collections.abc import Callable

from launcher import messages
from launcher.ram_checkpoint.agent import RamCheckpoint
from launcher.values.config import WorldDocument
from launcher.values.workers import ProbeEvent, Progress, WorkerExit
from launcher.workers.processes.process import free_port, port_taken

#: Announcements that still matter to a coordinator which did not hear them, and how many.
_LASTING = frozenset({"loaded", "saved", "stepping"})
_LASTING_LOADS, _LASTING_SAVES = 100, 20


class WorkerReports:
    """Reports to the coordinator; ``tell`` drops messages while no agent coordinates."""

    def __init__(
        self, tell: Callable[[messages.Message], None], *, memory: RamCheckpoint, host: str
    ) -> None:
        self._tell, self._memory, self._host = tell, memory, host
        #: Announcements of probes in the running world, as far as they still hold.
        self._said: list[ProbeEvent] = []

    def announced(self, event: ProbeEvent, epoch: int, progress: tuple[Progress, ...]) -> None:
        """Forward an event of a probe, and the progress of the workers of ``epoch`` at that
        moment.
        """
        self._remember(event)
        self.beat(epoch, progress)
        self._tell(messages.Said(event=event))

    def again(self) -> None:
        """Repeat probes' events to a new coordinator, because the previous coordinator may not have
        received them.
        """
        for event in self._said:
            self._tell(messages.Said(event=event))

    def beat(self, epoch: int, progress: tuple[Progress, ...], heard: float = 0.0) -> None:
        """Send a heartbeat with the workers' progress, and with ``heard``, the time of the
        coordinator's last answer.
        """
        beat = messages.Heartbeat(
            epoch=epoch,
            now_ns=time.monotonic_ns(),
            heard=heard,
            progress=progress,
            memory=self._memory.state,
        )
        self._tell(beat)

    def exited(
        self, world: WorldDocument, exit: WorkerExit, progress: tuple[Progress, ...]
    ) -> None:
        """Report the end of a worker of the running world, once its saves are on storage."""
        taken = _lost_its_port(world, exit, progress)

        def tell(stored: WorkerExit) -> None:
            self._tell(messages.Exited(epoch=world.epoch, exit=stored, port_taken=taken))

        self._memory.stored(exit, tell)

    def stopped(self, epoch: int, progress: tuple[Progress, ...]) -> None:
        """Report that no worker of ``epoch`` runs on this agent any more."""
        now_ns, port = time.monotonic_ns(), free_port(self._host)
        self._tell(
            messages.Stopped(
                epoch=epoch, now_ns=now_ns, progress=progress, port=port, held=self._memory.held
            )
        )

    def refused(self, epoch: int, reason: str) -> None:
        """Report that workers of a prepared world cannot wait on this agent."""
        self._tell(messages.Prepared(epoch=epoch, ok=False, reason=reason))

    def _remember(self, event: ProbeEvent) -> None:
        here = [each for each in self._said if each.epoch == event.epoch]
        saves = [each for each in here if each.event == "saved"]
        if event.event in _LASTING:
            kept = [each for each in here if each.event != "saved"][-_LASTING_LOADS:]
            self._said = [*kept, *saves[-_LASTING_SAVES:], event]


def grace_told(signum: signal.Signals, grace_seconds: float, *, by_hand: bool) -> str:
    """Return a sentence that states the workers' grace period in seconds and the setting that
    determines it.

    >>> grace_told(signal.SIGTERM, 30.0, by_hand=True)
    'waiting: workers that handle SIGTERM have 30 s to save and end (--shutdown-timeout)'
    """
    setting = "--shutdown-timeout" if by_hand else "checkpoint.graceSeconds"
    given = f"have {grace_seconds:g} s to save and end ({setting})"
    return f"waiting: workers that handle {signal.Signals(signum).name} {given}"


def _lost_its_port(world: WorldDocument, exit: WorkerExit, progress: tuple[Progress, ...]) -> bool:
    """True if rank 0 failed before any step because another program took the port chosen for it:
    minutes may lie between the choice of a port and its use.
    """
    failed = exit.rank == 0 and exit.code != 0 and not exit.stopped
    early = all(each.steps == 0 for each in progress)
    return failed and early and port_taken(world.master_addr, world.master_port)
