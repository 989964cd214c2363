"""The rows about Pollux's simulator: first its faithfulness, then Brain's service compared with
other systems.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.jct.bench import Bench, beside
from benchmarks.jct.driven import Knowledge
from benchmarks.jct.fairness import rhos
from benchmarks.jct.original import simulate as run_original
from benchmarks.jct.policies.optimus import Optimus
from benchmarks.jct.policies.tiresias import Tiresias
from benchmarks.jct.pollux import RESTART_SECONDS, Job, Outcome, Policy, Rules
from benchmarks.jct.turn import Turn
from benchmarks.jct.variants import Variant
from benchmarks.report import Row

_LOADS = (1.0, 1.5, 2.0)
#: Largest share of Pollux's average at load 1.0, by knowledge.
_LOAD_ONE = {Knowledge.NONE: 1.0, Knowledge.HISTORY: 0.85}
#: With history, by load; and with restarts as cheap as our launcher makes them.
_LOADED = {1.5: 0.80, 2.0: 0.76}
_CHEAP, _CHEAP_SECONDS = 0.76, 2.0
#: Largest share of Tiresias' average on generated lists; with history, where runs of one script
#: differ.
_DRAWN = {Knowledge.NONE: 0.72, Knowledge.HISTORY: 0.62}
_DIFFERING, _RENAMED = Variant(1, renamed=False), Variant(1, differing=False)
#: Largest finish-time fairness, mean and worst; and percent that other names may change.
_FAIR, _FAIR_WORST, _NAMES = 1.2, 2.5, 2.0
#: Loads of a run that is not full.
_USUAL_LOADS = (2.0,)
_SERVICE = "Brain's service"
_PEERS: Mapping[str, Callable[[], Policy]] = {"tiresias": Tiresias, "optimus": Optimus}


def faithfulness(bench: Bench) -> list[Row]:
    """Return rows that compare our Tiresias and Optimus with their published averages; there are
    none for variants.
    """
    rows = list[Row]()
    if bench.variant:
        return rows
    for name, make in _PEERS.items():
        for load in _LOADS:
            for number in bench.given(load):
                theirs = bench.published[name, load, number].mean_seconds
                ours = bench.run(name, load, number, make).mean_seconds
                rows.append(
                    Row(
                        metric=f"{name.title()}, load {load:g}, workload {number}: away from "
                        "the published average",
                        value=100 * abs(ours / theirs - 1),
                        unit="%",
                        bar=1.0,
                        note=f"{ours:.1f} s",
                    )
                )
    return rows


def service(bench: Bench) -> list[Row]:
    """Return rows of Brain's service, which takes a turn once a round: compared with Pollux, and
    with Tiresias on workloads that were not used to choose constants.
    """
    rows = list[Row]()
    for level, share in _LOAD_ONE.items():
        rows += _given(bench, level, 1.0, share, p99=1.02, makespan=1.04)
    for load in _LOADED if bench.full else _USUAL_LOADS:
        rows += _given(bench, Knowledge.HISTORY, load, _LOADED[load])
    if bench.full:
        rows += _given(bench, Knowledge.HISTORY, 1.0, _CHEAP, restart_seconds=_CHEAP_SECONDS)
    if bench.variant:
        return rows
    for level, share in _DRAWN.items():
        rows += _drawn(bench, level, share)
    for level in _LOAD_ONE:
        rows += _fair(bench, level)
    return rows + _names(bench)


def peers(bench: Bench) -> list[Row]:
    """Return rows that compare Tiresias and Optimus with Pollux, as published."""
    rows, numbers = list[Row](), bench.given(1.0)
    for peer in _PEERS if numbers and not bench.variant else ():
        rows += beside(
            f"{peer.title()} (published)",
            "Pollux (published)",
            [bench.published[peer, 1.0, number] for number in numbers],
            [bench.published["pollux", 1.0, number] for number in numbers],
        )
    return rows


def _given(
    bench: Bench,
    level: Knowledge,
    load: float,
    share: float,
    *,
    p99: float | None = None,
    makespan: float | None = None,
    restart_seconds: float = RESTART_SECONDS,
) -> list[Row]:
    """Return rows of the service on published workloads, on all of which constants were chosen:
    compared with Pollux; on a variant, which Pollux did not run, compared with Tiresias without a
    bar.
    """
    numbers = bench.given(load)
    if not numbers:
        return []
    found = [_turn(bench, level, load, one, restart_seconds) for one in numbers]
    name = f"{_SERVICE}, {level}, load {load:g}, tuning set"
    if level is Knowledge.HISTORY:
        name += ", runs of a script alike"
    if restart_seconds != RESTART_SECONDS:
        name += f", restarts of {restart_seconds:g} s"
    if bench.variant:
        rules = Rules(restart_seconds=restart_seconds)
        tiresias = [bench.run("tiresias", load, one, Tiresias, rules) for one in numbers]
        return beside(name, "Tiresias", found, tiresias)
    theirs = [bench.published["pollux", load, one] for one in numbers]
    bars = {"share": share, "p99": p99, "makespan": makespan}
    return beside(name, "Pollux (published)", found, theirs, **bars, numbers=numbers)


def _drawn(bench: Bench, level: Knowledge, share: float) -> list[Row]:
    numbers = bench.drawn()
    if not numbers:
        return []
    name = f"{_SERVICE}, {level}, generated lists"
    if level is Knowledge.HISTORY:
        bench, name = replace(bench, variant=_DIFFERING), f"{name}, runs of a script differ"
    found = [_turn(bench, level, 1.0, one) for one in numbers]
    theirs = [bench.run("tiresias", 1.0, one, Tiresias) for one in numbers]
    return beside(name, "Tiresias", found, theirs, share=share, numbers=numbers)


def _fair(bench: Bench, level: Knowledge) -> list[Row]:
    """Return rows of finish-time fairness on the published workloads, compared with Tiresias."""
    numbers = bench.given(1.0)
    ours, theirs = list[float](), list[float]()
    for number in numbers:
        jobs = bench.jobs(1.0, number)
        ours += rhos(jobs, _turn(bench, level, 1.0, number), Rules())
        theirs += rhos(jobs, bench.run("tiresias", 1.0, number, Tiresias), Rules())
    if not numbers:
        return []
    name = f"{_SERVICE}, {level}, load 1, tuning set: finish-time fairness"
    return [
        Row(
            metric=f"{name}, {what}",
            value=of(ours),
            unit="×",
            peer="Tiresias",
            peer_value=of(theirs),
            bar=bar,
        )
        for what, of, bar in (("mean", _mean, _FAIR), ("worst job", max, _FAIR_WORST))
    ]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _names(bench: Bench) -> list[Row]:
    """Return rows with the effect of other names of scripts and jobs, which serve only as keys."""
    numbers, level = bench.given(1.0), Knowledge.HISTORY
    usual = [_turn(bench, level, 1.0, one).mean_seconds for one in numbers]
    renamed = replace(bench, variant=_RENAMED)
    other = [_turn(renamed, level, 1.0, one).mean_seconds for one in numbers]
    if not numbers:
        return []
    return [
        Row(
            metric=f"{_SERVICE}, {level}, load 1, tuning set, names permuted: average completion, "
            "away from that with their own",
            value=100 * abs(_mean(other) / _mean(usual) - 1),
            unit="%",
            bar=_NAMES,
            note=f"{_mean(other):.0f} s and {_mean(usual):.0f} s",
        )
    ]


def _turn(
    bench: Bench,
    level: Knowledge,
    load: float,
    number: int,
    restart_seconds: float = RESTART_SECONDS,
) -> Outcome:
    def policy() -> Policy:
        return Turn(level, restart_seconds=restart_seconds)

    return bench.run(
        f"service, {level}", load, number, policy, Rules(restart_seconds=restart_seconds)
    )


def original(bench: Bench, simulator: Path) -> list[Row]:
    """Return rows that compare the same policies in the original simulator and in ours."""
    policies: list[tuple[str, Callable[[], Policy]]] = [("Tiresias", Tiresias)]
    policies += [(f"{_SERVICE}, {level}", lambda level=level: Turn(level)) for level in _LOAD_ONE]  # type: ignore[misc]
    rows = []
    for name, make in policies:
        for number in bench.given(1.0):
            jobs: Sequence[Job] = bench.jobs(1.0, number)
            theirs = run_original(simulator, bench.file(1.0, number), jobs, make())
            ours = bench.run(name, 1.0, number, make)
            rows.append(
                Row(
                    metric=f"{name}, workload {number}: average completion in the original",
                    value=theirs.mean_seconds,
                    unit="s",
                    peer="in ours",
                    peer_value=ours.mean_seconds,
                )
            )
    return rows
