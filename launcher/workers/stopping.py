"""Ends workers: sends a signal to the workers that handle it, kills the other workers, and then
kills all remaining processes.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from launcher.values.workers import ParkRequest
from launcher.workers.fork_server.channel import Channel
from launcher.workers.processes import process, reaper

#: Seconds that the kernel may take to end what was killed; a process in the kernel's own wait can
#: be longer, then the agent goes on without it.
KILL_SECONDS = 10.0
#: Between two looks at processes that are not ours to wait for.
_LOOK_SECONDS = 0.02


def ask(workers: Sequence[process.WorkerProcess], signum: signal.Signals) -> dict[int, int]:
    """Send ``signum`` to workers and their process groups; a process without a handler ends.

    Returns:
        Processes (id -> start ticks) that handle the signal although their worker does not: a
        script behind a shell, or a child that saves.
    """
    deaf = {each.process.pid for each in workers if not process.catches(each.process.pid, signum)}
    inside = reaper.members(deaf, set()) if deaf else {}
    others = {pid: ticks for pid, ticks in inside.items() if process.catches(pid, signum)}
    for worker in workers:
        pid = worker.process.pid
        _signal(pid, signum)
        if pid not in deaf:
            # Its handler runs while it is parked; one that only sets a flag has to step on to
            # see it. Whoever does not catch it would make a step that is lost.
            worker.control.park(ParkRequest.RUN)
        _signal(pid, signal.SIGCONT)  # one that is stopped has its handler, or dies, as it goes on
    return others


async def wait_for(processes: Mapping[int, int], seconds: float) -> None:
    """Wait, at most ``seconds``, until processes (id -> start ticks) have ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(_lives(*each) for each in processes.items()):
        await asyncio.sleep(_LOOK_SECONDS)


class Strays:
    """Processes that workers started: those in the workers' Unix sessions, those with a worker's
    error file in their environment, descendants of both, and orphans that the fork server adopted.

    A worker that ended with 0 may have left a process in another Unix session, an upload for
    example. Such a process is allowed to finish.
    """

    def __init__(
        self,
        workers: Sequence[process.WorkerProcess],
        marks: set[bytes],
        channels: "set[Channel] | None",
    ) -> None:
        """Create it before the workers end: their descendants can be found only while they live,
        unless all workers come from fork servers (``channels``), which adopt orphans.
        """
        self._sessions = {worker.process.pid for worker in workers}
        self._marks, self._channels = marks, channels
        tell = workers if channels is None else ()
        self._followers = {
            worker.process.pid: reaper.members({worker.process.pid}, {worker.mark})
            for worker in tell
        }

    async def end(
        self,
        running: Callable[[], Iterable[process.WorkerProcess]],
        ended: asyncio.Event,
        well: Callable[[], Iterable[process.WorkerProcess]],
    ) -> None:
        """Kill running workers and all strays; return when none is left, or after ``KILL_SECONDS``.

        ``well`` returns the workers that have ended with 0, whose strays are allowed to finish.
        """
        deadline = time.monotonic() + KILL_SECONDS
        for worker in running():
            _signal(worker.process.pid, signal.SIGKILL)
        if any(running()):
            await wait_at_most(ended, KILL_SECONDS)
        if self._channels and all([await channel.alone() for channel in self._channels]):
            return
        spared = list(well())
        marks = self._marks - {worker.mark for worker in spared}
        followers = dict(self._followers)
        for worker in spared:
            followers.pop(worker.process.pid, None)
        known = {pid: start for each in followers.values() for pid, start in each.items()}
        while reaper.kill(known | self._members(marks)) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    def _members(self, marks: set[bytes]) -> dict[int, int]:
        channels = (self._channels or ()) if marks else ()
        adopters = {channel.process.pid for channel in channels}
        keep = {pid for channel in channels for pid in channel.pids}
        return reaper.members(self._sessions, marks, adopters, keep)


async def wait_at_most(ended: asyncio.Event, seconds: float) -> None:
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the event.
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return


def _lives(pid: int, ticks: int) -> bool:
    stat = reaper.read_stat(pid)
    return stat is not None and stat[2] == ticks


def _signal(pid: int, signum: signal.Signals) -> None:
    """Signal a worker's whole process group; the worker alone if it has no group yet."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
