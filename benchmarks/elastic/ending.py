"""Measures a script that saves when it receives SIGTERM: whether it can finish the save, and how
much time the launcher adds.
"""

import signal
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.elastic import launchers, table
from benchmarks.elastic.events import Outcome, begun
from benchmarks.elastic.job import Job
from benchmarks.elastic.launchers import Launcher
from benchmarks.report import Row

OURS = "brain-run"
ROUNDS = 2
#: A leave takes a second world, and torchrun some 25 s to find it.
LEAVE_ROUNDS = 1
#: What the script's handler takes (``train_slow_end.py``).
HANDLER_SECONDS = 10
_SETTLED_STEPS = 25
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One stop of a script that saves."""

    #: Handlers that began, and those of them that did not come to their end.
    begun: int
    cut_short: int
    #: From the signal to what was waited for.
    seconds: float


def slow_end(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Stop the launcher of a script whose SIGTERM handler takes 10 s; then stop one node of two."""
    known = launchers.known(home)
    names = (OURS, table.TUNED)
    script = str(launchers.SCRIPTS / "train_slow_end.py")
    slow = {name: replace(known[name], script=script) for name in names}
    return [
        *_rows("launcher asked to end", "the launcher's end", _alone, slow, ROUNDS),
        *_rows("leave of one of two nodes", "the next world steps", _leave, slow, LEAVE_ROUNDS),
    ]


def _rows(
    event: str,
    until: str,
    measure: Callable[[Launcher], Stop],
    slow: dict[str, Launcher],
    rounds: int,
) -> list[Row]:
    seen = {name: [measure(launcher) for _ in range(rounds)] for name, launcher in slow.items()}
    ours, theirs = seen[OURS], seen[table.TUNED]
    begun = sum(stop.begun for stop in ours)
    return [
        Row(
            metric=f"{HANDLER_SECONDS} s SIGTERM handler, {event}: saves cut short",
            # A handler that never began has saved nothing either.
            value=sum(stop.cut_short for stop in ours) if begun else None,
            unit="saves",
            bar=0,
            note=f"of {begun}; {table.TUNED}: {sum(stop.cut_short for stop in theirs)} "
            f"of {sum(stop.begun for stop in theirs)}",
        ),
        Row(
            metric=f"{HANDLER_SECONDS} s SIGTERM handler, {event}: until {until}",
            value=_median(ours),
            unit="s",
            peer=table.TUNED,
            peer_value=_median(theirs),
            note=f"[{table.spread(stop.seconds for stop in ours)}] n={len(ours)}",
        ),
    ]


def _median(stops: Iterable[Stop]) -> float:
    return statistics.median(stop.seconds for stop in stops)


def _alone(launcher: Launcher) -> Stop:
    with begun(launcher, 1) as job:
        old = job.world(1, _SETTLED_STEPS, _PATIENCE_SECONDS)
        asked_at = time.monotonic()
        job.agents[0].process.send_signal(signal.SIGTERM)
        job.agents[0].process.wait(_PATIENCE_SECONDS)
        return _stop(job, old, time.monotonic() - asked_at)


def _leave(launcher: Launcher) -> Stop:
    with begun(launcher, 2) as job:
        old = job.world(2, _SETTLED_STEPS, _PATIENCE_SECONDS)
        asked_at = time.monotonic()
        job.agents[-1].process.send_signal(signal.SIGTERM)
        job.world(1, 1, _PATIENCE_SECONDS)
        return _stop(job, old, time.monotonic() - asked_at)


def _stop(job: Job, old: Sequence[int], seconds: float) -> Stop:
    workers = [worker for worker in job.workers() if worker.pid in old]
    begun = [worker for worker in workers if worker.first("ending") is not None]
    return Stop(
        begun=len(begun),
        cut_short=sum(worker.first("ended") is None for worker in begun),
        seconds=seconds,
    )
