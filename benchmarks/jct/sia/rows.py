"""What is reported of Sia's simulator: how faithful it is, and Brain beside Sia as measured."""

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.jct.bench import Bench, Published
from benchmarks.jct.pollux import Outcome
from benchmarks.jct.sia import adapter
from benchmarks.jct.sia.brain import Brain, Knowledge
from benchmarks.jct.sia.cluster import HETEROGENEOUS, Tables, tables
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
#: Percent that our Sia's mean may be away from Sia's; ties alone move one workload by 3.
_AWAY = 2.0

Workload = tuple[str, int]
#: Runs a workload's file on tables under a policy.
Play = Callable[[Path, Mapping[str, Tables], Policy], Outcome]


def measured(data: Path) -> dict[Workload, Published]:
    """Sia in its own simulator: ``sia/measured.csv``."""
    with (data / "sia/measured.csv").open() as lines:
        return {
            (row["family"], int(row["workload"])): Published(
                mean_seconds=float(row["avg_jct_seconds"]),
                p99_seconds=float(row["p99_jct_seconds"]),
                makespan_seconds=float(row["makespan_seconds"]),
            )
            for row in csv.DictReader(lines)
        }


def rows(bench: Bench) -> list[Row]:
    """Faithfulness first, then every level of knowledge."""
    given = _given(bench)
    peers = [measured(bench.data)[one] for one in given]
    table = faithful([run(bench, "Sia", Sia(), one) for one in given], peers, given)
    return table + _levels(bench, simulate)


def original(bench: Bench, simulator: Path) -> list[Row]:
    """Brain's rows out of the original simulator at ``simulator``."""
    guest = partial(adapter.simulate, simulator)
    return _levels(bench, guest, "in the original simulator, ")


def _given(bench: Bench) -> list[Workload]:
    return [one for one in WORKLOADS if bench.given([one[1]])]


def _levels(bench: Bench, play: Play, where: str = "") -> list[Row]:
    given, table = _given(bench), list[Row]()
    peers = [measured(bench.data)[one] for one in given]
    for level, told in TOLD.items():
        name = f"{where}Brain with {told}"
        ours = [run(bench, name, Brain(HETEROGENEOUS, level), one, play) for one in given]
        table += beside(name, ours, peers, BARS[level])
    return table


def run(bench: Bench, name: str, policy: Policy, which: Workload, play: Play = simulate) -> Outcome:
    """One workload under one policy."""
    family, number = which
    file = bench.data / f"sia/workloads/{family}/workload-{number}.csv"
    found = play(file, tables(bench.data), policy)
    bench.tell(
        f"{name}, {family} {number}: {found.mean_seconds:.0f} s on average, 99th percentile "
        f"{found.p99_seconds:.0f} s, makespan {found.makespan_seconds:.0f} s, "
        f"{found.restarts_per_job:.1f} restarts a job, decisions {found.decision_ms_mean:.1f} "
        f"(at most {found.decision_ms_max:.0f}) ms"
    )
    return found


def faithful(
    ours: Sequence[Outcome], peers: Sequence[Published], given: Sequence[Workload]
) -> list[Row]:
    """How far our Sia is from Sia in its own simulator, by workload and in all."""
    table = []
    for own, peer, (family, number) in zip(ours, peers, given, strict=True):
        tail = f"99th percentile {100 * (own.p99_seconds / peer.p99_seconds - 1):+.1f} %"
        table.append(
            Row(
                metric=f"our Sia, {family} {number}: average completion",
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
            note="ties of its programs, broken otherwise, move one workload by 3 %",
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
