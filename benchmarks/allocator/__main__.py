"""Measures how long it takes to divide a cluster, and how far the division is from the best one.

    make bench-allocator

Jobs have the measured curves of Pollux's applications: on all four types if Sia's tables are
present, otherwise scaled to the four types (``problems``). A *division* is the part of ``allocate``
before the choice of nodes: from job views to a configuration for each job, without prices of an
earlier round. A *round* also chooses nodes, reasons and the order of moves, for all jobs at once,
as after an outage. A *warm* round is the round a minute later, in which one job in ten is new. The
gap is the bound that the round itself computes; the table also shows the linear relaxation of
HiGHS. Times are medians of CPU milliseconds on one core.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeVar

import numpy as np

from benchmarks.allocator import peers, problems
from benchmarks.allocator.problems import on_all_types
from benchmarks.models.data import Task, tasks
from benchmarks.published import sia_tables
from benchmarks.report import Row, publish
from brain.pool.allocator import ClusterView, PoolJob, Round, Weights, allocate
from brain.pool.allocator.packing import worth
from brain.pool.allocator.solver import divide, question
from brain.typeset import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One size of the cluster, and the allowed times for it."""

    jobs: int
    accelerators: int
    tenants: int = 0
    #: Milliseconds of a division, and its gap in percent.
    bar_ms: float | None = None
    bar_gap: float | None = None
    #: Seconds that branch and bound may take; None: it is not asked.
    patience: float | None = 60.0
    times: int = 5

    @property
    def name(self) -> str:
        """Return the case's name as it is printed."""
        of = f", {self.tenants} tenants" if self.tenants else ""
        return f"{self.jobs:,} × {self.accelerators:,}{of}"


CASES = (
    Case(jobs=100, accelerators=64),
    Case(jobs=1000, accelerators=1024),
    Case(jobs=2000, accelerators=4096, bar_ms=60.0, bar_gap=0.05),
    Case(jobs=2000, accelerators=4096, tenants=20, bar_ms=60.0, bar_gap=0.05, patience=None),
    Case(jobs=10_000, accelerators=16_384, bar_ms=400.0, patience=None, times=3),
)
T = TypeVar("T")
#: A round may take this many times as long as its division.
_WITH_NODES = 2.0


def milliseconds(work: Callable[[], T], times: int) -> tuple[float, T]:
    """Return the median CPU time of ``work`` in milliseconds, and the result of ``work``."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        found = work()
        spent.append(1e3 * (time.process_time() - start))
    return median(spent), found


def measure(case: Case, found: Sequence[Task]) -> list[Row]:
    """Return all rows for one size of the cluster."""
    random = np.random.default_rng([case.jobs, case.accelerators, case.tenants])
    cluster = problems.cluster(case.accelerators, case.tenants)
    jobs = problems.jobs(found, case.jobs, random, case.tenants)
    weights = Weights()

    def division() -> tuple[float, float]:
        asked = question(jobs, cluster, weights)
        market, choice = divide(asked.problem, None, weights)
        return worth(asked.problem, choice), market.bound

    allocate(jobs[:10], cluster)
    division_ms, (value, bound) = milliseconds(division, case.times)
    round_ms, first = milliseconds(lambda: allocate(jobs, cluster), case.times)
    asked = question(jobs, cluster, weights).problem
    rows = peers.rules(asked)
    relaxed_ms, relaxed = milliseconds(lambda: peers.relaxation(rows), 1)
    greedy_ms, greedy = milliseconds(lambda: peers.greedy(asked), 1)
    best = min(relaxed, bound)
    table = [
        Row(
            metric=f"{case.name}: a division",
            value=division_ms,
            unit="ms",
            peer="relaxation by HiGHS",
            peer_value=relaxed_ms,
            bar=case.bar_ms,
        ),
        Row(
            metric=f"{case.name}: its certified gap",
            value=100 * max(0.0, 1 - value / bound),
            unit="%",
            peer="greedy heap",
            peer_value=100 * (1 - greedy / best),
            bar=case.bar_gap,
            note=f"to the relaxation {100 * max(0.0, 1 - value / relaxed):.2g} %; "
            f"the heap takes {number(greedy_ms)} ms",
        ),
        Row(
            metric=f"{case.name}: the round, nodes, reasons and moves included",
            value=round_ms,
            unit="ms",
            bar=None if case.bar_ms is None else _WITH_NODES * case.bar_ms,
            note=f"gap {100 * first.gap:.2g} % once everybody has nodes",
        ),
        _warm(case, found, cluster, jobs, first),
    ]
    if case.patience is not None:
        table.append(_exact(case, rows, division_ms, value, best))
    return table


def _warm(
    case: Case, found: Sequence[Task], cluster: ClusterView, jobs: Sequence[PoolJob], last: Round
) -> Row:
    """Return the round after a tenth of the jobs ended and the same number of new jobs came."""
    random = np.random.default_rng([1, case.jobs])
    fresh = problems.jobs(found, case.jobs, random, case.tenants)
    now = [
        replace(fresh[index], key=f"new-{index}")
        if index % 10 == 0
        else replace(job, current=last.grants[job.key].placement)
        for index, job in enumerate(jobs)
    ]
    spent, after = milliseconds(lambda: allocate(now, cluster, prices=last.prices), case.times)
    return Row(
        metric=f"{case.name}: the next round, a tenth of the jobs new",
        value=spent,
        unit="ms",
        note=f"gap {100 * after.gap:.2g} %, {len(after.moves)} moves",
    )


def _exact(case: Case, rows: peers.Rules, ours_ms: float, value: float, best: float) -> Row:
    assert case.patience is not None
    spent, found = milliseconds(lambda: peers.branch_and_bound(rows, case.patience or 0), 1)
    gap = "no division found" if found is None else f"its gap {100 * (1 - found / best):.2g} %"
    return Row(
        metric=f"{case.name}: beside branch and bound to 0.1 %",
        value=ours_ms,
        unit="ms",
        peer="HiGHS",
        peer_value=spent,
        note=f"{gap}, ours {100 * max(0.0, 1 - value / best):.2g} %",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, help="only the cases of so many jobs")
    arguments = parser.parse_args()
    sia = sia_tables()
    found = tasks(sia) if sia else on_all_types(tasks(None))
    chosen = [case for case in CASES if arguments.jobs in (None, case.jobs)]
    table = [row for case in chosen for row in measure(case, found)]
    title = "A cluster divided among jobs"
    publish("allocator", title if sia else f"{title} (curves of one type, scaled to four)", table)


if __name__ == "__main__":
    main()
