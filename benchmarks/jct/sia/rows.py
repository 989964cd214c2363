"""What is reported of Sia's simulator: how faithful it is, and Brain beside Sia as measured."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.jct.pollux import Outcome
from benchmarks.jct.sia.brain import Brain, Knowledge
from benchmarks.jct.sia.cluster import HETEROGENEOUS, tables, workload
from benchmarks.jct.sia.policy import Sia
from benchmarks.jct.sia.run import Policy, simulate
from benchmarks.report import Row

#: Family and number; Sia itself was measured on these.
WORKLOADS = tuple((family, number) for family in ("philly", "saturn") for number in (1, 2, 3))
#: Largest mean completion time allowed, as a share of Sia's.
BARS = {Knowledge.NONE: 1.00, Knowledge.DECLARED: 0.96, Knowledge.HISTORY: 0.88}
TOLD = {
    Knowledge.NONE: "Sia's information",
    Knowledge.DECLARED: "declared epochs",
    Knowledge.HISTORY: "declared epochs and history",
}
#: Of the 99th percentile.
_BAR_P99 = 1.0
_SIA = "sia"
_PEER = "Sia"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run: ``sia`` or a level of knowledge, on one workload."""

    policy: str
    family: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Sia in its own simulator."""

    mean_seconds: float
    p99_seconds: float
    makespan_seconds: float
    restarts_per_job: float


#: Applies a function to every task, in order; ``map``, or a pool's.
Spread = Callable[[Callable[[Task], Outcome], Sequence[Task]], Iterable[Outcome]]
Results = Mapping[str, Sequence[Outcome]]


def measured(data: Path) -> dict[tuple[str, int], Measured]:
    """``sia/measured.csv`` by family and number."""
    with (data / "sia/measured.csv").open() as lines:
        return {
            (row["family"], int(row["workload"])): Measured(
                mean_seconds=float(row["avg_jct_seconds"]),
                p99_seconds=float(row["p99_jct_seconds"]),
                makespan_seconds=float(row["makespan_seconds"]),
                restarts_per_job=float(row["restarts_per_job"]),
            )
            for row in csv.DictReader(lines)
        }


def play(data: Path, task: Task) -> Outcome:
    """Run one task."""
    arrivals = workload(data / f"sia/workloads/{task.family}/workload-{task.number}.csv")
    return simulate(arrivals, tables(data), policy(task.policy))


def policy(name: str) -> Policy:
    """A fresh policy by name."""
    return Sia() if name == _SIA else Brain(HETEROGENEOUS, Knowledge(name))


def rows(
    data: Path, spread: Spread = map, workloads: Sequence[tuple[str, int]] = WORKLOADS
) -> list[Row]:
    """All rows; ``spread`` may run tasks side by side."""
    names = (_SIA, *Knowledge)
    tasks = [Task(policy=p, family=f, number=n) for p in names for f, n in workloads]
    found = list(spread(partial(play, data), tasks))
    results = {
        name: found[index * len(workloads) : (index + 1) * len(workloads)]
        for index, name in enumerate(names)
    }
    peers = [measured(data)[one] for one in workloads]
    table = faithful(results[_SIA], peers, workloads)
    for knowledge in Knowledge:
        table += beside(knowledge, results[knowledge], peers)
    return table


def faithful(
    ours: Sequence[Outcome], peers: Sequence[Measured], workloads: Sequence[tuple[str, int]]
) -> list[Row]:
    """How far our Sia is from Sia in its own simulator; no bar, the figure is what it is."""
    table = []
    for own, peer, (family, number) in zip(ours, peers, workloads, strict=True):
        table.append(
            Row(
                metric=f"our Sia, {family} {number}: average completion",
                value=own.mean_seconds,
                unit="s",
                peer=_PEER,
                peer_value=peer.mean_seconds,
                note=f"{100 * (own.mean_seconds / peer.mean_seconds - 1):+.1f} %, "
                f"p99 {100 * (own.p99_seconds / peer.p99_seconds - 1):+.1f} %, "
                f"restarts {own.restarts_per_job:.2f} for {peer.restarts_per_job:.2f} per job",
            )
        )
    mean = float(np.mean([one.mean_seconds for one in ours]))
    peer_mean = float(np.mean([one.mean_seconds for one in peers]))
    away = 100 * abs(mean / peer_mean - 1)
    table.append(
        Row(metric="our Sia: mean of averages, away from Sia's", value=away, unit="%", bar=_AWAY)
    )
    return table


#: The re-implementation is meant to be this close, in percent.
_AWAY = 2.0


def beside(knowledge: Knowledge, ours: Sequence[Outcome], peers: Sequence[Measured]) -> list[Row]:
    """Brain's averages over the workloads beside Sia's."""
    told = TOLD[knowledge]
    ratio = ratios([(one.mean_seconds, peer.mean_seconds) for one, peer in _both(ours, peers)])
    tail = ratios([(one.p99_seconds, peer.p99_seconds) for one, peer in _both(ours, peers)])
    end = ratios([(o.makespan_seconds, peer.makespan_seconds) for o, peer in _both(ours, peers)])
    took = max(one.decision_ms_max for one in ours)
    restarts = float(np.mean([one.restarts_per_job for one in ours]))
    return [
        Row(
            metric=f"Brain with {told}: average completion as a share of Sia's",
            value=ratio.mean,
            unit="×",
            bar=BARS[knowledge],
            note=f"{ratio}; {restarts:.1f} restarts per job",
        ),
        Row(
            metric=f"Brain with {told}: 99th percentile as a share of Sia's",
            value=tail.mean,
            unit="×",
            bar=_BAR_P99,
            note=str(tail),
        ),
        Row(
            metric=f"Brain with {told}: makespan as a share of Sia's",
            value=end.mean,
            unit="×",
            note=str(end),
        ),
        Row(metric=f"Brain with {told}: longest decision, CPU", value=took, unit="ms"),
    ]


def _both(ours: Sequence[Outcome], peers: Sequence[Measured]) -> Iterable[tuple[Outcome, Measured]]:
    return zip(ours, peers, strict=True)


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ours over theirs, by workload."""

    each: tuple[float, ...]
    #: Of the means over workloads.
    mean: float

    def __str__(self) -> str:
        return "by workload " + " ".join(f"{one:.2f}" for one in self.each)


def ratios(pairs: Sequence[tuple[float, float]]) -> Ratios:
    """Of pairs (ours, theirs).

    >>> ratios([(1.0, 2.0), (3.0, 2.0)])
    Ratios(each=(0.5, 1.5), mean=1.0)
    """
    ours, theirs = np.array(pairs).T
    return Ratios(tuple((ours / theirs).tolist()), float(ours.mean() / theirs.mean()))
