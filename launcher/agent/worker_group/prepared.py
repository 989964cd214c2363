"""The workers that wait for the next world, in addition to those that train."""

import time
from collections.abc import Awaitable, Callable

from brain.errors import BadInput
from launcher import messages
from launcher.agent.worker_group.reports import WorkerReports
from launcher.values.config import WorldDocument
from launcher.values.workers import ProbeEvent
from launcher.workers.workers import Workers


class PreparedWorkers:
    """Workers that were started for a world that has not begun; one set at most."""

    def __init__(self, tell: Callable[[messages.Message], None], reports: WorkerReports) -> None:
        self._tell, self._reports = tell, reports
        #: None if no worker waits.
        self.workers: Workers | None = None

    async def start(self, epoch: int, starting: Awaitable[Workers]) -> None:
        """Keep the workers that are started for the world of ``epoch``. If they cannot be started,
        report this to the coordinator.
        """
        try:
            self.workers = await starting
        except (BadInput, OSError) as cannot:  # a full disk, too: the world that trains goes on
            self._reports.refused(epoch, str(cannot))

    def extend_lease(self) -> None:
        """Extend the lease of the waiting workers."""
        if self.workers is not None and (seconds := self.workers.world.lease_seconds):
            self.workers.extend_lease(time.monotonic_ns() + int(seconds * 1e9))

    def heard(self, event: ProbeEvent) -> bool:
        """Handle an event; return True if a waiting worker sent it."""
        if self.workers is None or event.epoch != self.workers.world.epoch:
            return False
        if event.event == "gated":
            self.report_gated()
        return True

    def report_gated(self) -> None:
        """Report to the coordinator if all workers wait at the gate."""
        if self.workers is not None and self.workers.gated:
            self._tell(messages.Prepared(epoch=self.workers.world.epoch, ok=True))

    async def release(self, world: WorldDocument) -> Workers | None:
        """Release the workers at the gate, and return them, if they were started for exactly this
        world. Otherwise end the waiting workers and return None.
        """
        waiting = self.workers
        if waiting is None or waiting.world != world or not waiting.gated:
            await self.discard()
            return None
        self.extend_lease()
        self.workers = None
        waiting.release()
        return waiting

    def take(self) -> Workers | None:
        """Return the workers, which belong to a world from now on; None if there are none."""
        waiting, self.workers = self.workers, None
        return waiting

    async def discard(self, epoch: int = 0) -> None:
        """End the workers if they were started for the world of ``epoch``, or if ``epoch`` is 0."""
        if self.workers is not None and epoch in (0, self.workers.world.epoch):
            waiting, self.workers = self.workers, None
            await waiting.stop(0)
