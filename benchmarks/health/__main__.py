"""Measures if the launcher finds bad nodes, hangs and failures, and reports nothing else.

    make bench-health

The check before training and the hang detection are the launcher's own rules, applied to simulated
nodes and worlds. The staged failures are real processes under ``brain-run``. Failures that this
machine cannot cause (a lost GPU, an Xid, a kill by the kernel's OOM killer) are recorded.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.health import hangs, nodes, staged
from benchmarks.report import Row, publish
from launcher.values.hang.rules import QuietPhase

SIZES = (2, 3, 8, 64)
#: Trials of each fault on each size: every node, so many times over.
TIMES = {2: 100, 3: 100, 8: 30, 64: 3}
HEALTHY = 1000
WORLDS = 200


def node_rows() -> list[Row]:
    """Return the rows of the check before training."""
    found = []
    for name, fault in nodes.FAULTS.items():
        # Which end of one link is slow or dead cannot be told by the two of them.
        pairs = "exchanges" in name or "link" in name
        for size in SIZES:
            if size == 2 and pairs:
                continue
            came = nodes.faults(size, name, fault, TIMES[size])
            found.append(
                Row(
                    metric=f"one of {size} nodes {name}: not found, or another one named",
                    value=came.trials - came.right,
                    unit=f"of {came.trials}",
                    bar=0,
                    note=f"at most {came.rounds} rounds",
                )
            )
    for size in (4, 64):
        came = nodes.half_slow(size, 100)
        found.append(
            Row(
                metric=f"half and all but one of {size} nodes slow (1.15 ×), history known: wrong",
                value=came.trials - came.right,
                unit=f"of {came.trials}",
                bar=0,
            )
        )
    for size in SIZES:
        found.append(
            Row(
                metric=f"{HEALTHY} checks of {size} healthy nodes, 5 % noise: false alarms",
                value=nodes.alarms(size, HEALTHY),
                unit="checks",
                bar=0,
            )
        )
    return found


def hang_rows() -> list[Row]:
    """Return the rows of hang detection."""
    found = []
    quiet = [hangs.world(seed, None) for seed in range(WORLDS)]
    found.append(
        Row(
            metric=f"{WORLDS} healthy worlds with evaluations and checkpoints of 10 steps, half of "
            "them unseen: false alarms",
            value=sum(each.found_at is not None for each in quiet),
            unit="worlds",
            bar=0,
        )
    )
    for phase in QuietPhase:
        came = [hangs.world(seed, phase) for seed in range(WORLDS // 4)]
        late = [_late(each) for each in came]
        found.append(
            Row(
                metric=f"a world that stops in {phase}: not found within its budget and a second",
                value=sum(each is None or each > 1.0 for each in late),
                unit=f"of {len(came)}",
                bar=0,
                note=f"budget {max(each.budget_seconds for each in came):.3g} s at most",
            )
        )
    return found


def _late(each: hangs.Outcome) -> float | None:
    """Return the seconds beyond its budget after which a hang was found; None if it was never
    found, or too early.
    """
    if each.stopped_at is None or each.found_at is None or each.found_at < each.stopped_at:
        return None
    return each.found_at - each.stopped_at - each.budget_seconds


def staged_rows(cases: Sequence[staged.Case]) -> list[Row]:
    """Return the rows of the staged failures."""
    wrong, began = [], time.monotonic()
    for case in cases:
        told = staged.play(case)
        right = told is not None and (told.kind, told.rank) == (case.kind, case.rank)
        sys.stdout.write(f"{'right' if right else 'WRONG'}  {case.name}: {staged.said(told)}\n")
        sys.stdout.flush()
        if not right:
            wrong.append(case.name)
    spent = time.monotonic() - began
    real = sum(case.real for case in cases)
    return [
        Row(
            metric=f"{len(cases)} staged failures: first failing rank or kind named wrong",
            value=len(wrong),
            unit=f"of {len(cases)}",
            bar=0,
            note=f"{real} with real processes, {len(cases) - real} recorded, {spent:.0f} s"
            + (f"; wrong: {', '.join(wrong)}" if wrong else ""),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=("nodes", "hangs", "staged"))
    only = parser.parse_args().only
    rows: list[Row] = []
    if only in (None, "nodes"):
        rows += node_rows()
    if only in (None, "hangs"):
        rows += hang_rows()
    if only in (None, "staged"):
        rows += staged_rows(staged.CASES)
    publish("health", "Bad nodes, hangs and failures found", rows)


if __name__ == "__main__":
    main()
