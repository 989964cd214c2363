"""Finds out that an agent must end at once: other agents replaced it during a pause, or the
directory of its replica is gone.

A cluster may delete a paused pod by force and start other pods, or Slurm may requeue a job whose
nodes are silent. The new agents form another world; the paused agent cannot know this. So after a
pause that is longer than a lease, the agent renews no lease and forms no world until the cluster
confirms that its pod, or its job step, was not replaced.

An agent without its directory can neither report nor be found by the scaler, which may start
another agent in its place.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from brain.errors import BrainError, NotFound, UnknownJob

if TYPE_CHECKING:
    from brain.views import PodSeen

#: Seconds between two looks at the clock, and between two questions while nobody answers.
_LOOK_SECONDS = 0.5
_WAITS = "held: this agent was paused; workers wait for proof that no other world was begun: {}"


class Continuity:
    """Tracks pauses of this process, because other agents may have replaced it during a pause.

    ``denied`` is set once the cluster answers that this agent was replaced, or once ``evicted``
    gives a reason; the agent must then end immediately.
    """

    def __init__(
        self,
        ask: "Callable[[float], Awaitable[PodSeen]] | None",
        *,
        pause_seconds: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        evicted: Callable[[], str] = lambda: "",
    ) -> None:
        """``evicted`` returns why this agent has lost its place on this machine; empty if it has
        not.

        ``ask`` asks the cluster, and gets the time at which this process last ran before the
        pause, in seconds since 1970; None: nobody starts other agents in this one's place, or
        nobody can be asked.
        """
        self._ask, self._pause_seconds = ask, pause_seconds
        self._say, self._clock, self._evicted = say, clock, evicted
        self._looked_at, self._ran_at = clock(), time.time()
        #: End of the last pause that nobody was asked about yet.
        self._broken_at: float | None = None
        self.denied = asyncio.Event()
        #: Why this agent does not stay.
        self.detail = ""
        self._told = ""

    @property
    def asks(self) -> bool:
        """True if the cluster can be asked after a pause."""
        return self._ask is not None

    @property
    def broken(self) -> bool:
        """True after a pause, until the cluster confirms that this agent was not replaced."""
        now = self._clock()
        if self._ask is not None and now - self._looked_at > self._pause_seconds:
            self._broken_at = now
        self._looked_at = now
        if self._broken_at is None:
            self._ran_at = time.time()
        return self._broken_at is not None

    def followed(self, sent_at: float) -> None:
        """Store that a coordinator renewed the lease after the heartbeat sent at ``sent_at``."""
        if self.broken and self._broken_at is not None and sent_at > self._broken_at:
            self._broken_at = None

    async def keep(self, coordinates: Callable[[], bool]) -> None:
        """Watch the clock until cancelled; after a pause of a coordinating agent, ask the cluster
        whether other agents have replaced it. ``coordinates`` says whether this agent coordinates.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if why := self._evicted():
                self.detail = why
                self.denied.set()
            if self.broken and coordinates() and not self.denied.is_set():
                await self._find_out()

    async def _find_out(self) -> None:
        """Ask once. An answer from before another pause proves nothing."""
        assert self._ask is not None
        asked_at = self._clock()
        try:
            seen = await self._ask(self._ran_at)
        except UnknownJob as lost:  # Brain's database may be put back
            self._tell(_WAITS.format(lost))
        except NotFound as unasked:  # a Brain of an earlier release does not know the question
            self._deny(str(unasked))
        except BrainError as silent:
            self._tell(_WAITS.format(silent))
        else:
            self._hear(seen, asked_at)

    def _hear(self, seen: "PodSeen", asked_at: float) -> None:
        if not seen.stays:
            self._deny(seen.detail)
        elif self.broken and self._broken_at is not None and self._broken_at <= asked_at:
            self._broken_at = None
            self._tell(
                "this agent was paused, and no other agent took its place: its world goes on"
            )
            self._told = ""

    def _deny(self, why: str) -> None:
        self.detail = f"this agent was paused, and other agents may run in its place: {why}"
        self.denied.set()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._say(text)
