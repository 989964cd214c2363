"""The rows about Sia's simulator: its faithfulness, and Brain compared with Sia's results."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.jct.bench import Bench, Published
from benchmarks.jct.driven import Knowledge
from benchmarks.jct.pollux import Outcome
from benchmarks.jct.sia import adapter
from benchmarks.jct.sia.cluster import Kind, Tables, cluster, tables, workload
from benchmarks.jct.sia.policy import Sia
from benchmarks.jct.sia.run import Policy, play, simulate
from benchmarks.jct.sia.turn import Turn
from benchmarks.published import skipped
from benchmarks.report import Row

#: Largest mean completion time allowed, as a share of Sia's.
BARS = {Knowledge.NONE: 1.00, Knowledge.HISTORY: 0.92}
#: Workloads that are run where a run is not full.
_USUAL = (1,)
#: Of the 99th percentile.
_BAR_P99 = 1.0
#: Percent that our Sia's mean may be away from Sia's; the original differs by 4 on one workload.
_AWAY = 2.0

#: What Sia made of a workload, as measured for us or in a simulation.
Peer = Published | Outcome
#: Runs a workload's file on tables under a policy.
Play = Callable[[Path, Mapping[str, Tables], Policy, Sequence[Kind]], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload on a cluster, with the result of Sia in its own simulator."""

    family: str
    number: int
    kinds: tuple[Kind, ...]
    sia: Peer

    def file(self, data: Path) -> Path:
        """Return the file of the workload's arrivals."""
        return data / f"workloads/{self.family}/workload-{self.number}.csv"


def cases(bench: Bench, data: Path) -> list[Case]:
    """Return all cases of ``measured.csv`` whose workloads are present."""
    with (data / "measured.csv").open() as lines:
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
            if row["policy"] == "sia" and bench.asked(int(row["workload"]), _USUAL)
        ]
    return [case for case in found if case.file(data).exists()]


def rows(bench: Bench) -> list[Row]:
    """Return the rows: faithfulness first, then Brain by the information that it gets; variants are
    compared with our Sia.
    """
    if bench.sia is None:
        return [skipped("our Sia, and Brain's service with migrate beside Sia")]
    given = cases(bench, bench.sia)
    if not given:
        return []
    sia = [run(bench, bench.sia, "Sia", Sia, one, _player(bench)) for one in given]
    if bench.variant:
        given = [replace(one, sia=own) for one, own in zip(given, sia, strict=True)]
        return _levels(bench, bench.sia, _player(bench), given)
    return faithful(sia, given) + _levels(bench, bench.sia, simulate, given)


def _player(bench: Bench) -> Play:
    """Return a function that simulates the arrivals of a file, or a variant of them."""
    if bench.variant is None:
        return simulate
    changed = bench.variant.arrivals
    return lambda file, tables, policy, kinds: play(changed(workload(file)), tables, policy, kinds)


def original(bench: Bench, simulator: Path) -> list[Row]:
    """Return the rows of Brain in the original simulator at ``simulator``."""
    if bench.sia is None:
        return [skipped("Brain's service in the original simulator")]
    where, player = "in the original simulator, ", partial(adapter.simulate, simulator)
    return _levels(bench, bench.sia, player, cases(bench, bench.sia), where)


def _levels(
    bench: Bench, data: Path, player: Play, given: Sequence[Case], where: str = ""
) -> list[Row]:
    table = list[Row]()
    for level, bar in BARS.items():
        name = f"{where}Brain's service with migrate, {level}"
        ours = [
            run(bench, data, name, partial(Turn, one.kinds, level), one, player) for one in given
        ]
        table += beside(name, ours, [one.sia for one in given], bar)
    return table


def run(
    bench: Bench, data: Path, name: str, make: Callable[[], Policy], case: Case, player: Play
) -> Outcome:
    """Run one workload under one policy."""
    found = bench.once(
        f"{name} {case.family} {case.number} {case.kinds}",
        lambda: player(case.file(data), tables(data, case.kinds), make(), case.kinds),
    )
    bench.tell(
        f"{name}, {case.family} {case.number}: {found.mean_seconds:.0f} s on average, "
        f"99th percentile {found.p99_seconds:.0f} s, makespan {found.makespan_seconds:.0f} s, "
        f"{found.restarts_per_job:.1f} restarts a job, decisions {found.decision_ms_mean:.1f} "
        f"(at most {found.decision_ms_max:.0f}) ms"
    )
    return found


def faithful(ours: Sequence[Outcome], given: Sequence[Case]) -> list[Row]:
    """Return how far our Sia is from Sia in its own simulator, for each workload and for all
    together.
    """
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


def beside(name: str, ours: Sequence[Outcome], peers: Sequence[Peer], bar: float) -> list[Row]:
    """Return Brain's means over the workloads as shares of Sia's."""
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


def both(ours: Sequence[Outcome], peers: Sequence[Peer]) -> list[tuple[Outcome, Peer]]:
    """Return pairs of our result and the peer's."""
    return list(zip(ours, peers, strict=True))


def shares(pairs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Return the ratio of the means of pairs (ours, theirs), and a phrase with the ratio of each
    pair.

    >>> shares([(1.0, 2.0), (3.0, 2.0)])
    (1.0, 'by workload 0.50 1.50')
    """
    ours, theirs = np.array(pairs).T
    each = " ".join(f"{one:.2f}" for one in ours / theirs)
    return float(ours.mean() / theirs.mean()), f"by workload {each}"
