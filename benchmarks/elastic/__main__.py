"""``make bench-elastic``: cause changes of the world under all launchers in turn, and measure their
costs.

    python -m benchmarks.elastic                      everything, into RESULTS.md
    python -m benchmarks.elastic --quick              two rounds of the main launchers, printed only
    python -m benchmarks.elastic --only 'brain-run;join' --rounds 3

Launchers take turns in each round, so that other load on the machine affects all of them equally.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.elastic import further, guests, launchers, table
from benchmarks.elastic.events import (
    EVENTS,
    ROUND,
    SHORT_ROUND,
    STAYING_ROUND,
    Event,
    Outcome,
    play,
)
from benchmarks.elastic.job import Stuck
from benchmarks.elastic.launchers import Launcher
from benchmarks.report import Row, markdown, publish

TITLE = "What a change of the world costs"
ROUNDS = 5
#: Of launchers that take 10 to 50 s a change.
SLOW_ROUNDS = 1
QUICK = ("torchrun tuned", "brain-run", "brain-run memory", "brain-run in process")
GUESTS = {
    "dlrover-run 0.6.1": guests.dlrover,
    "torchft 0.2, script rewritten": guests.torchft,
    "ft_launcher 0.4.1": guests.ft_launcher,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One job of one launcher, with its events."""

    launcher: Launcher
    round: int
    events: tuple[Event, ...]


def main() -> int:
    """Measure all rows; return 1 if a bar is not met."""
    given = _arguments()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    home = Path(tempfile.mkdtemp(prefix="brain-bench-home-"))
    try:
        chosen = [each for each in _candidates(home, given) if _chosen(each.name, given)]
        outcomes = list(_played(_turns(chosen, given)))
        rows = table.rows(outcomes, chosen)
        for name, measure in further.MEASUREMENTS.items():
            if _measured(name, given):
                rows += _further(name, measure, home, outcomes)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    more = f"{table.summary(outcomes)}\n\nMilliseconds by phase:\n\n{table.phases(outcomes)}"
    print(f"\n{time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}\n")
    if given.notes:
        with given.notes.open("a") as notes:
            notes.write(f"\n## {time.strftime('%H:%M')}, load {os.getloadavg()[0]:.1f}\n\n")
            notes.write(f"{more}\n\n{markdown(rows)}\n")
    if given.only or given.quick:  # half a measurement is printed, never published
        print(f"{markdown(rows)}\n\n{more}")
        return 0 if all(row.met for row in rows) else 1
    publish("elastic", TITLE, rows, more)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.elastic", description=TITLE)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="jobs of each launcher")
    parser.add_argument("--slow-rounds", type=int, default=SLOW_ROUNDS, help="jobs of slow ones")
    parser.add_argument(
        "--only",
        default="",
        metavar="NAMES",
        help="launchers and events, by name, and further measurements, with semicolons; "
        f"further: {', '.join(further.MEASUREMENTS)}",
    )
    parser.add_argument("--quick", action="store_true", help="two rounds, the main launchers")
    parser.add_argument("--notes", type=Path, help="append what was seen to this file")
    given = parser.parse_args()
    given.names = frozenset(filter(None, given.only.split(";")))
    if given.quick:
        given.rounds = min(given.rounds, 2)
    return given


def _candidates(home: Path, given: argparse.Namespace) -> list[Launcher]:
    """Return all launchers; those that need their own environment only if they are requested."""
    known = list(launchers.known(home).values())
    quick = given.quick or (given.names and not given.names & set(GUESTS))
    return (
        known
        if quick
        else [*known, *(make() for name, make in GUESTS.items() if _chosen(name, given))]
    )


def _chosen(launcher: str, given: argparse.Namespace) -> bool:
    if given.names:
        return launcher in given.names
    return not given.quick or launcher in QUICK


def _measured(name: str, given: argparse.Namespace) -> bool:
    return name in given.names or (not given.names and not given.quick)


def _turns(chosen: Sequence[Launcher], given: argparse.Namespace) -> Iterator[Turn]:
    """Yield every launcher once per round, each round in another order."""
    wanted = {event.name for event in EVENTS} & given.names
    able = [launcher for launcher in chosen if not launcher.absent]
    for round in range(given.rounds):
        for launcher in random.Random(round).sample(able, len(able)):
            if launcher.slow and round >= given.slow_rounds:
                continue
            yield Turn(launcher, round, _needed(_events(launcher), wanted))


def _events(launcher: Launcher) -> tuple[Event, ...]:
    if launcher.in_process:
        return STAYING_ROUND
    if not launcher.restarts:  # a process that crashes leaves the others one fewer, as a node does
        return ROUND[:-1]
    return SHORT_ROUND if launcher.script == launchers.HEAVY else ROUND


def _needed(events: tuple[Event, ...], wanted: set[str]) -> tuple[Event, ...]:
    """Return the events up to the last requested one, because each needs the world that the event
    before it leaves.
    """
    if not wanted:
        return events
    last = max(at for at, event in enumerate(events) if event.name in wanted)
    return events[: last + 1]


def _played(turns: Iterator[Turn]) -> Iterator[Outcome]:
    for turn in turns:
        done = 0
        try:
            for outcome in play(turn.launcher, turn.round, turn.events):
                done += 1
                _tell(outcome)
                yield outcome
        except Stuck as stuck:
            missed = turn.events[done] if done < len(turn.events) else turn.events[-1]
            outcome = Outcome(
                launcher=turn.launcher.name,
                event=missed.name,
                round=turn.round,
                change=None,
                failure=str(stuck),
            )
            _tell(outcome)
            yield outcome


def _tell(outcome: Outcome) -> None:
    head = f"{outcome.round} {outcome.launcher:<32} {outcome.event:<6}"
    change = outcome.change
    if change is None:
        print(f"{head} FAILED: {outcome.failure}", flush=True)
        return
    phases = " ".join(f"{name} {1000 * took:.0f}" for name, took in change.phases.items())
    print(
        f"{head} gap {change.gap_seconds:6.3f} idle {change.idle_seconds:6.3f} "
        f"further {change.effective_seconds:6.3f} lost {change.steps_lost:2} | {phases}",
        flush=True,
    )


def _further(
    name: str, measure: further.Measurement, home: Path, outcomes: Sequence[Outcome]
) -> list[Row]:
    began = time.monotonic()
    try:
        rows = measure(home, outcomes)
    except Stuck as stuck:
        print(f"{name} FAILED: {stuck}", flush=True)
        why = f"failed: {str(stuck).partition(chr(10))[0]}"
        return [Row(metric=name, value=None, unit="s", bar=0, note=why)]
    for row in rows:
        print(f"{row.metric}: {row.value} {row.unit} {row.bars} {row.note}", flush=True)
    print(f"  {name}: {time.monotonic() - began:.0f} s", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
