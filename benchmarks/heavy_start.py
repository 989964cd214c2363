"""``make bench-heavy-start BASE=…``: measures a start with heavy imports, here and with an older
commit.

    git worktree add --detach ../base 65270bc && make -C ../base .venv/.ready
    make bench-heavy-start BASE=../base
    git worktree remove --force ../base

``BASE`` is a checkout of the older commit with an environment of its own, which its own Makefile
creates. The two commits take turns: first the first start of a script, when its imports are not
known yet, then later starts.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.elastic import launchers, table
from benchmarks.elastic.job import running
from benchmarks.elastic.launchers import Launcher
from benchmarks.report import Row, publish

TITLE = "A start with heavy imports, beside an older commit"
#: Homes that know nothing, and starts after the first in each of them.
HOMES, LATER = 4, 3
#: How much slower than the base's, at most.
_SLOWER = 1.1
_START_SECONDS = 120.0


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    parser = argparse.ArgumentParser(prog="benchmarks.heavy_start", description=TITLE)
    parser.add_argument("base", type=Path, help="a checkout that has .venv/bin/brain-run")
    parser.add_argument("--homes", type=int, default=HOMES)
    given = parser.parse_args()
    theirs = given.base.resolve() / ".venv" / "bin" / "brain-run"
    if not theirs.exists():
        sys.exit(f"no {theirs}: make -C {given.base} .venv/.ready")
    first: dict[str, list[float]] = {"ours": [], "base": []}
    later: dict[str, list[float]] = {"ours": [], "base": []}
    for turn in range(given.homes):
        with tempfile.TemporaryDirectory(prefix="brain-bench-home-") as place:
            both = _both(Path(place), str(theirs))
            for round in range(1 + LATER):
                for name in sorted(both, reverse=bool((turn + round) % 2)):
                    (later if round else first)[name].append(_start_seconds(both[name]))
    publish("heavy-start", TITLE, [row("first start", first), row("later starts", later)])


def row(which: str, seen: Mapping[str, Sequence[float]]) -> Row:
    """Return the row of one kind of start, compared with the older commit's.

    >>> row("later starts", {"ours": [2.1, 2.2], "base": [2.0, 2.1]}).met
    True
    >>> row("later starts", {"ours": [2.5, 2.4], "base": [2.0, 2.1]}).met
    False
    """
    ours, base = seen["ours"], seen["base"]
    return Row(
        metric=f"one process, heavy imports, {which}: command to first step, median",
        value=statistics.median(ours),
        unit="s",
        peer="the base commit",
        peer_value=statistics.median(base),
        ratio_bar=round(1 / _SLOWER, 3),
        note=f"[{table.spread(ours)}] beside [{table.spread(base)}] n={len(ours)}",
    )


def _both(place: Path, theirs: str) -> dict[str, Launcher]:
    """Measure both checkouts, each with its own home and cache."""
    ours, base = (
        replace(
            launchers.known(place / name)["brain-run, heavy imports"], name=f"heavy-start-{name}"
        )
        for name in ("ours", "base")
    )
    return {"ours": ours, "base": replace(base, program=theirs)}


def _start_seconds(launcher: Launcher) -> float:
    command = [launcher.program, "--standalone", "--nproc-per-node=1", launcher.script]
    with running(lambda _: command, launchers.environment(launcher), launcher.name) as job:
        began = time.monotonic()
        job.start()
        pids = job.world(1, 1, _START_SECONDS)
        return next(w.steps[0].at for w in job.workers() if w.pid in pids) - began


if __name__ == "__main__":
    main()
