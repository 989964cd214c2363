"""Measures how saves and changes interact: saves in the background, and the wait for the next save.

A request for a change is a SIGTERM to one node of two, because it happens at one instant, and no
process has to start for it. The safe point is the completed save at which the old world stops. The
formula is

    request to safe point = the rest of the interval between saves + the save

which is on average half an interval and a save; requests are spread evenly over an interval.
Intervals are scaled down from minutes to seconds. Before the launcher looks for a safe point, it
prepares the next world for some tenths of a second, so a request shortly before a save waits for
the save after it. This matters if saves are frequent, so the bar applies to the longest interval.
"""

import random
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.elastic import launchers, table
from benchmarks.elastic.events import JOIN, KILL, LEAVE, Outcome, begun, stage
from benchmarks.elastic.job import Job
from benchmarks.elastic.launchers import Launcher
from benchmarks.elastic.trace import Worker
from benchmarks.report import Row

OURS = "brain-run"
#: Steps of 50 ms between two saves, and wishes at each of them.
INTERVALS, WISHES = (20, 40, 80), 3
#: How much longer than by the formula the longest wait may take, as the smallest ratio.
_OF_FORMULA = 0.8
ASYNC_ROUNDS = 2
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The time from one request for a change to its safe point."""

    #: From the wish until a save was complete after which the old world made no step.
    seconds: float
    #: The same by the formula.
    expected_seconds: float
    #: Steps that the next world made again.
    steps_lost: int
    #: Those of them that a checkpoint had which was complete when the old world ended.
    saved_lost: int


def waited(workers: Sequence[Worker], old: Sequence[int], asked_at: float, every: int) -> Wait:
    """Return the wait that the traces show for a change of the world ``old``, which saved every
    ``every`` steps.
    """
    before = [w for w in workers if w.pid in old]
    first = next(w for w in before if w.steps and w.steps[0].rank == 0)
    after = [w for w in workers if w.pid not in old and w.steps and w.steps[0].at > asked_at]
    began = min(w.steps[0].step for w in after)
    saves = [mark for mark in first.marks if mark.what == "saved"]
    known = [mark for mark in first.steps if mark.at <= asked_at][-1]
    took = statistics.median(_save_seconds(first))
    rest = (every - known.step % every) * _step_seconds(first) - (asked_at - known.at)
    return Wait(
        seconds=saves[-1].at - asked_at,
        expected_seconds=rest + took,
        steps_lost=max(0, first.steps[-1].step - (began - 1)),
        saved_lost=max(0, saves[-1].step - (began - 1)),
    )


def _save_seconds(worker: Worker) -> Iterable[float]:
    """Return the seconds from a step to the end of the save after it."""
    done = {mark.step: mark.at for mark in worker.steps}
    return [mark.at - done[mark.step] for mark in worker.marks if mark.what == "saved"]


def _step_seconds(worker: Worker) -> float:
    """Return the mean seconds of a step without a save; saves are part of an interval, too."""
    steps = worker.steps
    return (steps[-1].at - steps[0].at) / (steps[-1].step - steps[0].step)


def save_intervals(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Let a node of two leave, with several intervals between saves."""
    script = str(launchers.SCRIPTS / "train_interval.py")
    known = launchers.known(home)[OURS]
    rows = []
    for every in INTERVALS:
        launcher = replace(known, script=script, arguments=(str(every),))
        rows += interval_rows(every, _leaves(launcher, every))
    return rows


def interval_rows(every: int, waits: Sequence[Wait]) -> list[Row]:
    """Return rows that compare the measured wait with the formula."""
    seconds = [wait.seconds for wait in waits]
    return [
        Row(
            metric=f"wish to safe point, a save every {every} steps: mean",
            value=statistics.mean(seconds),
            unit="s",
            peer="formula: rest of the interval + save",
            peer_value=statistics.mean(wait.expected_seconds for wait in waits),
            ratio_bar=_OF_FORMULA if every == INTERVALS[-1] else None,
            note=f"[{table.spread(seconds)}] n={len(seconds)}",
        ),
        Row(
            metric=f"steps lost, a save every {every} steps: worst",
            value=max(wait.steps_lost for wait in waits),
            unit="steps",
            bar=0,
        ),
    ]


def _leaves(launcher: Launcher, every: int) -> list[Wait]:
    waits = []
    with begun(launcher, 2) as job:
        for turn in range(WISHES):
            settled = every + round(every * (turn + 0.5) / WISHES)
            old = job.world(2, settled, _PATIENCE_SECONDS)
            waits.append(_change(job, launcher, old, every, LEAVE.name))
            job.start()
        return waits


def _change(job: Job, launcher: Launcher, old: list[int], every: int, event: str) -> Wait:
    asked_at = time.monotonic()
    chosen = {each.name: each for each in (JOIN, LEAVE, KILL)}[event]
    size = {"join": len(old) + 1}.get(event, len(old) - 1)
    stage(job, launcher, replace(chosen, size=size), 0, old)
    return waited(job.workers(), old, asked_at, every)


def async_save(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Cause a join, a leave and a kill under both launchers, with ``fully_shard`` and
    ``dcp.async_save``.
    """
    known = launchers.known(home)
    script = str(launchers.SCRIPTS / "train_async.py")
    seen = {}
    for name, rounds in ((OURS, ASYNC_ROUNDS), (table.TUNED, 1)):
        launcher = replace(known[name], script=script)
        seen[name] = [_resized(launcher, round) for round in range(rounds)]
    return [row for event in ("join", "leave", "kill") for row in async_rows(event, seen)]


def async_rows(event: str, seen: dict[str, list[dict[str, Wait]]]) -> list[Row]:
    """Return the steps that one kind of event lost, and the wait of a planned event."""
    ours = [each[event] for each in seen[OURS]]
    theirs = [each[event] for each in seen[table.TUNED]]
    note = f"n={len(ours)}"
    lost = Row(
        metric=f"dcp.async_save, {event}: steps lost, worst",
        value=max(wait.steps_lost for wait in ours),
        unit="steps",
        peer=table.TUNED,
        peer_value=max(wait.steps_lost for wait in theirs),
        bar=None if event == "kill" else 0,
        note=note,
    )
    saved = Row(
        metric=f"dcp.async_save, {event}: steps lost of the last completed save, worst",
        value=max(wait.saved_lost for wait in ours),
        unit="steps",
        peer=table.TUNED,
        peer_value=max(wait.saved_lost for wait in theirs),
        bar=0,
        note=note,
    )
    if event != "leave":
        return [lost, saved]
    seconds = [wait.seconds for wait in ours]
    wish = Row(
        metric="dcp.async_save, leave: wish to safe point, mean",
        value=statistics.mean(seconds),
        unit="s",
        peer="formula: rest of the interval + save",
        peer_value=statistics.mean(wait.expected_seconds for wait in ours),
        note=f"[{table.spread(seconds)}] n={len(seconds)}; storage takes ten steps",
    )
    return [lost, saved, wish]


def _resized(launcher: Launcher, round: int) -> dict[str, Wait]:
    chance, every = random.Random(round), 20
    with begun(launcher, 2) as job:
        waits = {}
        for event, size in (("join", 2), ("leave", 3), ("join", 2), ("kill", 3)):
            old = job.world(size, 2 * every + chance.randrange(every), _PATIENCE_SECONDS)
            waits[event] = _change(job, launcher, old, every, event)
        return waits
