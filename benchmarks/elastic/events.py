"""The changes of the world that the benchmark causes, in the order of a round, and the cost of
each.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.elastic import trace
from benchmarks.elastic.job import Job, Stuck, running
from benchmarks.elastic.launchers import Launcher, environment, free_port, listening

#: A world has surely saved after so many steps; the change then comes at any moment of the 20
#: steps to the next save.
_SETTLED_STEPS, _SAVE_EVERY = 25, 20
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of the world that the benchmark causes."""

    name: str
    #: Size of the world after it.
    size: int
    #: Whether nobody could know of it before.
    sudden: bool
    act: Callable[[Job], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One caused change, with its cost, or the reason why the cost is unknown."""

    launcher: str
    event: str
    round: int
    change: trace.Change | None
    failure: str = ""


def _join(job: Job) -> None:
    job.start()


def _leave(job: Job) -> None:
    job.agents[-1].process.send_signal(signal.SIGTERM)


def _kill(job: Job) -> None:
    job.kill_node(-1)


def _crash(job: Job) -> None:
    (job.traces / "crash-1").touch()


def _nothing(job: Job) -> None:
    """Do nothing, because a crashed worker is restarted by its launcher."""


JOIN = Event(name="join", size=3, sudden=False, act=_join)
LEAVE = Event(name="leave", size=2, sudden=False, act=_leave)
KILL = Event(name="kill", size=2, sudden=True, act=_kill)
CRASH = Event(name="crash", size=2, sudden=True, act=_crash)
#: Where a crash takes one process only: the world that has it again.
BACK = Event(name="back", size=2, sudden=True, act=_nothing)
EVENTS = (JOIN, LEAVE, KILL, CRASH, BACK)
#: From a world of two, and back to it.
ROUND = (JOIN, LEAVE, JOIN, KILL, CRASH)
SHORT_ROUND = (JOIN, KILL, CRASH)
#: Of processes that stay: one that crashes makes the world smaller at once, and larger again.
STAYING_ROUND = (JOIN, LEAVE, JOIN, KILL, replace(CRASH, size=1), BACK)


def play(launcher: Launcher, round: int, events: tuple[Event, ...]) -> Iterator[Outcome]:
    """Run one job of two agents through the events of a round; yield each outcome once known."""
    chance = random.Random(round)
    old: list[int] = []
    asked_at, shrunk = 0.0, None
    with begun(launcher, 2) as job:
        for event in events:
            if event is BACK and shrunk is not None:
                yield back(job, launcher, round, old[:1], asked_at, shrunk)
                continue
            settled = _SETTLED_STEPS + chance.randrange(_SAVE_EVERY)
            size = 3 if event in (LEAVE, KILL) else 2
            old = job.world(size, settled, _START_SECONDS)
            asked_at = time.monotonic()
            outcome = stage(job, launcher, event, round, old)
            shrunk = outcome.change
            yield outcome


@contextmanager
def begun(launcher: Launcher, agents: int) -> Iterator[Job]:
    """Start the first agents of a job. If the launcher needs no separate master, the other agents
    connect to the first one.
    """
    port = free_port()
    slug = "".join(c if c.isalnum() else "-" for c in launcher.name)
    told = partial(launcher.told, port)
    try:
        with running(partial(launcher.agent, port), environment(launcher), slug, told) as job:
            if launcher.master:
                job.master([part.format(port=port) for part in launcher.master])
            else:
                job.start()
            job.until("somebody to listen", 60, lambda: listening(port))
            for _ in range(agents - len(job.agents)):
                job.start()
            yield job
    finally:
        # A host that loses its power takes its memory along; here somebody has to.
        for left in Path("/dev/shm").glob(f"brain-*-bench[_-]{port}-*"):
            shutil.rmtree(left, ignore_errors=True)


def stage(job: Job, launcher: Launcher, event: Event, round: int, old: list[int]) -> Outcome:
    """Cause a change in the world of the processes ``old``; wait until the job has caught up."""
    asked_at = time.monotonic()
    event.act(job)

    def look() -> trace.Change | None:
        if launcher.in_process:
            ended = [pid for pid in old if pid in job.ended]
            if len(ended) > max(0, len(old) - event.size):  # it was no change in process
                raise Stuck(f"{event.name}: of {old} ended {ended}\n{job.last_words()}")
            return trace.switched(job.workers(), old, event.size, asked_at=asked_at)
        if not launcher.restarts:
            return trace.reshaped(job.workers(), old, event.size, asked_at=asked_at)
        return trace.change(
            job.workers(),
            old,
            event.size,
            asked_at=asked_at,
            ended=job.ended,
            started=job.started,
        )

    found = job.until(f"the world after {event.name}", launcher.patience_seconds, look)
    return Outcome(launcher=launcher.name, event=event.name, round=round, change=found)


def back(
    job: Job, launcher: Launcher, round: int, stayed: list[int], since: float, shrunk: trace.Change
) -> Outcome:
    """Wait until the crashed worker has rejoined the world; return the cost of both changes
    together.
    """

    def look() -> trace.Change | None:
        return trace.switched(job.workers(), stayed, BACK.size, asked_at=since)

    found = job.until("the world with who came back", launcher.patience_seconds, look)
    change = trace.both(shrunk, found)
    return Outcome(launcher=launcher.name, event=BACK.name, round=round, change=change)
