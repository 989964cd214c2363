"""Lets an agent begin to coordinate, publish its address, and stop coordinating."""

import asyncio
from collections.abc import Awaitable, Callable

from launcher import messages
from launcher.agent.search import Search
from launcher.coordinator.coordinator import Coordinator

#: Seconds between two looks at the address where new agents look for the coordinator.
_HOME_SECONDS = 0.25
#: Seconds in which an agent that is asked to end still tries to report the end of its job.
_LAST_SECONDS = 2.0


class CoordinatorRole:
    """An agent's role as coordinator; ``coordinator`` is None while another agent coordinates."""

    def __init__(
        self,
        search: Search,
        *,
        coordinate: Callable[[], Coordinator],
        listen: Callable[[str | None, int], Awaitable[object]],
    ) -> None:
        """``listen`` makes the agent answer at one more address."""
        self._search, self._coordinate, self._listen = search, coordinate, listen
        self.coordinator: Coordinator | None = None
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> bool:
        """Start to coordinate if it is this agent's turn; return True if this agent starts now."""
        if self.coordinator is not None or not self._search.claim():
            return False
        self.coordinator = self._coordinate()
        self._running = asyncio.create_task(self.coordinator.run())
        return True

    def led(self, lead: messages.Lead) -> None:
        """Follow another coordinator of the same job if its world has a higher epoch."""
        if self.coordinator is not None and self.coordinator.yields_to(lead):
            self._search.leader = lead.coordinator

    def stand_down(self) -> None:
        """Forget a coordinator that has stopped; raise the error if it crashed."""
        if self._running is not None and self._running.done():
            self._running.result()
            self.coordinator = self._running = None
            self._search.stood_down()

    async def let_go(self, asked: asyncio.Event) -> None:
        """Stop coordinating, because the job is over or another agent takes over.

        A coordinator whose job is over waits for an unreachable Brain, until a signal has ``asked``
        its agent to end.
        """
        if self.coordinator is None or self._running is None:
            return
        if self.coordinator.over:
            waiting = asyncio.create_task(asked.wait())
            await asyncio.wait([self._running, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            done, _ = await asyncio.wait([self._running], timeout=_LAST_SECONDS)
            for task in done:
                task.result()
        self._running.cancel()
        await asyncio.wait([self._running])
        self._search.leadership.leave()

    async def keep_home(self, lead: Callable[[], messages.Lead | None]) -> None:
        """Make sure that new agents can find this agent while it coordinates.

        The agent listens where new agents look, or else sends its address to the agent that listens
        there. Otherwise an agent that restarts at that address would start the job again. ``lead``
        returns the message for new agents; None while there is no world yet.
        """
        while True:
            await asyncio.sleep(_HOME_SECONDS)
            if self.coordinator is None or not self._search.leadership.home:
                continue
            told = lead()
            if told is not None and not await self.listen_at_home():
                await self._search.tell_home(told)

    async def listen_at_home(self) -> bool:
        """Listen at the address where new agents look; return False if that address belongs to
        another machine or is taken.
        """
        host, _, port = self._search.leadership.home.rpartition(":")
        try:
            await self._listen(host.strip("[]") or None, int(port))
        except (OSError, ValueError):
            return False
        self._search.leadership.settle()
        return True
