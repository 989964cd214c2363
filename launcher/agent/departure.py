"""Lets an agent end before its job ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from brain.types.world import ReplicaEnd, ReplicaExit
from launcher.coordinator.continuity import Continuity


class Departure:
    """The request that an agent end before its job, because a signal asked for this or because
    other agents have replaced it.
    """

    def __init__(self, continuity: Continuity, say: Callable[[str], None]) -> None:
        self._continuity, self._say = continuity, say
        #: The signal that asked to end; asked twice, the agent hurries.
        self.leaving: signal.Signals | None = None
        #: Set once a signal asked the agent to end.
        self.asked = asyncio.Event()
        self._hurry = asyncio.Event()

    def ask(self, signum: signal.Signals) -> None:
        """Store that a signal asked the agent to end; after a second one the agent hurries."""
        if self.leaving is not None:
            self._hurry.set()
        self.leaving = signum
        self.asked.set()

    async def until_hurried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do ``work`` unless the agent hurries: it was asked twice to end, or was replaced. Leave
        the work as soon as that happens.
        """
        if self._hurry.is_set() or self._continuity.denied.is_set():
            return
        hurry = asyncio.ensure_future(self._hurry.wait())
        denied = asyncio.ensure_future(self._continuity.denied.wait())
        task = asyncio.create_task(work())
        try:
            await asyncio.wait([task, hurry, denied], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for each in (task, hurry, denied):
                each.cancel()

    async def until_ended(
        self,
        serving: "asyncio.Task[ReplicaEnd]",
        background: "list[asyncio.Task[None]]",
        kill: Callable[[], Awaitable[None]],
    ) -> ReplicaEnd:
        """Wait for the job's end, for a second signal, or until other agents have replaced this
        agent; return how the replica ended.

        If other agents have replaced this agent, ``kill`` first ends the workers. If a background
        task crashes, raise its error.
        """
        hurry = asyncio.ensure_future(self._hurry.wait())
        denied = asyncio.ensure_future(self._continuity.denied.wait())
        ends = (serving, hurry, denied)
        try:
            await asyncio.wait([*ends, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    task.result()
            if denied.done():
                self._say(
                    f"{self._continuity.detail}; this agent ends its workers without another save"
                )
                await kill()
                return gone(self._continuity.detail)
            if serving.done():
                return serving.result()
            return gone("a second signal asked the agent to end")
        finally:
            hurry.cancel()
            denied.cancel()


def gone(why: str) -> ReplicaEnd:
    """Return the end of a replica whose agent left its job, with ``why`` as the reason."""
    return ReplicaEnd(exit=ReplicaExit.LEFT, exit_code=0, detail=why)
