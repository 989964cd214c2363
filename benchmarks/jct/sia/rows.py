"""What is reported of Sia's simulator: how faithful it is, and Brain beside Sia as measured."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.jct.bench import Bench, Published
from benchmarks.jct.pollux import Outcome
from benchmarks.jct.sia import adapter
from benchmarks.jct.sia.brain import Brain, Knowledge
from benchmarks.jct.sia.cluster import Kind, Tables, cluster, tables
from benchmarks.jct.sia.policy import Sia
from benchmarks.jct.sia.run import Policy, simulate
from benchmarks.report import Row

#: Largest mean completion time allowed, as a share of Sia's.
BARS = {Knowledge.NONE: 1.00, Knowledge.DECLARED: 0.96, Knowledge.HISTORY: 0.88}
TOLD = {
    Knowledge.NONE: "Sia's information",
    Knowledge.DECLARED: "declared epochs",
    Knowledge.HISTORY: "declared epochs and history",
}
#: Of the 99th percentile.
_BAR_P99 = 1.0
#: Percent that our Sia's mean may be away from Sia's; the original differs by 4 on one workload.
_AWAY = 2.0

#: Runs a workload's file on tables under a policy.
Play = Callable[[Path, Mapping[str, Tables], Policy, Sequence[Kind]], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload on a cluster, and what Sia made of it in its own simulator."""

    family: str
    number: int
    kinds: tuple[Kind, ...]
    sia: Published

    def file(self, data: Path) -> Path:
        """Its arrivals."""
        return data / f"sia/workloads/{self.family}/workload-{self.number}.csv"


def cases(bench: Bench) -> list[Case]:
    """All of ``sia/measured.csv`` whose workloads are at hand."""
    with (bench.data / "sia/measured.csv").open() as lines:
        found = [
            Case(
                family=row["family"],
                number=int(row["workload"]),
                kinds=cluster(row["cluster"]),
                sia=Published(
                    mean_seconds=float(row["avg_jct_seconds"]),
                    p99_seconds=float(row["p99_jct_seconds"]),
                    makespan_seconds=float(row["makespan_seconds"]),
                ),
            )
            for row in csv.DictReader(lines)
            if row["policy"] == "sia" and bench.given([int(row["workload"])])
        ]
    return [case for case in found if case.file(bench.data).exists()]


def rows(bench: Bench) -> list[Row]:
    """Faithfulness first, then every level of knowledge."""
    given = cases(bench)
    table = faithful([run(bench, "Sia", Sia(), one) for one in given], given)
    return table + _levels(bench, simulate)


def original(bench: Bench, simulator: Path) -> list[Row]:
    """Brain's rows out of the original simulator at ``simulator``."""
    return _levels(bench, partial(adapter.simulate, simulator), "in the original simulator, ")


def _levels(bench: Bench, play: Play, where: str = "") -> list[Row]:
    given, table = cases(bench), list[Row]()
    for level, told in TOLD.items():
        name = f"{where}Brain with {told}"
        ours = [run(bench, name, Brain(one.kinds, level), one, play) for one in given]
        table += beside(name, ours, [one.sia for one in given], BARS[level])
    return table


def run(bench: Bench, name: str, policy: Policy, case: Case, play: Play = simulate) -> Outcome:
    """One workload under one policy."""
    found = play(case.file(bench.data), tables(bench.data, case.kinds), policy, case.kinds)
    bench.tell(
        f"{name}, {case.family} {case.number}: {found.mean_seconds:.0f} s on average, "
        f"99th percentile {found.p99_seconds:.0f} s, makespan {found.makespan_seconds:.0f} s, "
        f"{found.restarts_per_job:.1f} restarts a job, decisions {found.decision_ms_mean:.1f} "
        f"(at most {found.decision_ms_max:.0f}) ms"
    )
    return found


def faithful(ours: Sequence[Outcome], given: Sequence[Case]) -> list[Row]:
    """How far our Sia is from Sia in its own simulator, by workload and in all."""
    table, peers = list[Row](), [case.sia for case in given]
    for own, peer, case in zip(ours, peers, given, strict=True):
        tail = f"99th percentile {100 * (own.p99_seconds / peer.p99_seconds - 1):+.1f} %"
        table.append(
            Row(
                metric=f"our Sia, {case.family} {case.number}: average completion",
                value=own.mean_seconds,
                unit="s",
                peer="Sia",
                peer_value=peer.mean_seconds,
                note=f"{100 * (own.mean_seconds / peer.mean_seconds - 1):+.1f} %, {tail}",
            )
        )
    share, _ = shares([(own.mean_seconds, one.mean_seconds) for own, one in both(ours, peers)])
    table.append(
        Row(
            metric="our Sia: mean of averages, away from Sia's",
            value=100 * abs(share - 1),
            unit="%",
            bar=_AWAY,
            note="the original, run twice, differs by 4 % on one workload",
        )
    )
    return table


def beside(name: str, ours: Sequence[Outcome], peers: Sequence[Published], bar: float) -> list[Row]:
    """Brain's means over the workloads as shares of Sia's."""
    pairs = both(ours, peers)
    mean, means = shares([(own.mean_seconds, one.mean_seconds) for own, one in pairs])
    tail, tails = shares([(own.p99_seconds, one.p99_seconds) for own, one in pairs])
    end, ends = shares([(own.makespan_seconds, one.makespan_seconds) for own, one in pairs])
    restarts = float(np.mean([one.restarts_per_job for one in ours]))
    took = max(one.decision_ms_max for one in ours)
    return [
        Row(
            metric=f"{name}: average completion as a share of Sia's",
            value=mean,
            unit="×",
            bar=bar,
            note=f"{means}, {restarts:.1f} restarts per job, a decision at most {took:.0f} ms",
        ),
        Row(
            metric=f"{name}: 99th percentile as a share of Sia's",
            value=tail,
            unit="×",
            bar=_BAR_P99,
            note=tails,
        ),
        Row(metric=f"{name}: makespan as a share of Sia's", value=end, unit="×", note=ends),
    ]


def both(ours: Sequence[Outcome], peers: Sequence[Published]) -> list[tuple[Outcome, Published]]:
    """Pairs of ours and the peer's."""
    return list(zip(ours, peers, strict=True))


def shares(pairs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Share of the means of pairs (ours, theirs), and those of each pair in words.

    >>> shares([(1.0, 2.0), (3.0, 2.0)])
    (1.0, 'by workload 0.50 1.50')
    """
    ours, theirs = np.array(pairs).T
    each = " ".join(f"{one:.2f}" for one in ours / theirs)
    return float(ours.mean() / theirs.mean()), f"by workload {each}"
