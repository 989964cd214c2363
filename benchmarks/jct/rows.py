"""What is reported of Pollux's simulator: faithfulness first, then Brain beside Pollux."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.jct.bench import Bench, beside
from benchmarks.jct.brain import Brain, Knowledge, Settings
from benchmarks.jct.original import simulate as run_original
from benchmarks.jct.policies.optimus import Optimus
from benchmarks.jct.policies.tiresias import Tiresias
from benchmarks.jct.pollux import RESTART_SECONDS, Job, Outcome, Policy, Rules
from benchmarks.jct.turn import Turn
from benchmarks.report import Row

_LOADS = (0.5, 1.0, 1.5, 2.0)
#: Largest share of Pollux's average at load 1.0, by knowledge: on the workloads that are given,
#: and on all eight.
_LOAD_ONE = {
    Knowledge.NONE: (1.00, 0.97),
    Knowledge.DECLARED: (0.91, 0.87),
    Knowledge.HISTORY: (0.83, 0.80),
}
_ALL = 8
#: The same by the service's own turn; by load; and of Tiresias' average on generated lists.
_SERVICE = {Knowledge.NONE: 1.0, Knowledge.HISTORY: 0.85}
_SERVICE_LOADED = {1.5: 0.80, 2.0: 0.76}
_SERVICE_CHEAP = 0.76
_SERVICE_DRAWN = {Knowledge.NONE: 0.72, Knowledge.HISTORY: 0.62}
#: With declared epochs and history, by load.
_LOADED = {1.5: 0.76, 2.0: 0.72}
_WRONG, _CHEAP = 0.88, 0.75
#: What our launcher needs instead of 30 s.
_CHEAP_SECONDS = 2.0
#: What rows say of the service's policy, and of one that is not.
_OURS = "Brain's service (cycle.turn)"
_OWN = "Brain's allocator in a policy of the benchmark's own"
_PEERS: Mapping[str, Callable[[], Policy]] = {"tiresias": Tiresias, "optimus": Optimus}


def faithfulness(bench: Bench) -> list[Row]:
    """Our Tiresias and Optimus beside the published averages of theirs; nobody's of variants."""
    rows = list[Row]()
    if bench.variant:
        return rows
    for name, make in _PEERS.items():
        for load in _LOADS:
            for number in bench.given(load):
                theirs = bench.published[name, load, number].mean_seconds
                ours = bench.run(name, load, number, _fresh(make)).mean_seconds
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


def knowledge(bench: Bench) -> list[Row]:
    """Load 1.0 at three levels of knowledge, beside Pollux, Tiresias and Optimus."""
    rows, numbers = list[Row](), bench.given(1.0)
    for level, shares in _LOAD_ONE.items():
        share = shares[len(numbers) == _ALL]
        rows += _beside(bench, f"{_OWN}, {level}", 1.0, Settings(knowledge=level), share)
    for peer in _PEERS if numbers and not bench.variant else ():
        theirs = [bench.published[peer, 1.0, number] for number in numbers]
        ours = [bench.published["pollux", 1.0, number] for number in numbers]
        rows += beside(
            f"{peer.title()} (published)",
            "Pollux (published)",
            theirs,
            ours,
            share=None,
            p99=None,
            makespan=None,
        )
    return rows


def service(bench: Bench) -> list[Row]:
    """By the service's own turn, once a round: beside Pollux, and beside Tiresias on lists that no
    constant was chosen on."""
    rows = list[Row]()
    for level, share in _SERVICE.items():
        rows += _turned(bench, level, 1.0, share, p99=1.02, makespan=1.04)
    for load, share in _SERVICE_LOADED.items():
        rows += _turned(bench, Knowledge.HISTORY, load, share)
    rows += _turned(bench, Knowledge.HISTORY, 1.0, _SERVICE_CHEAP, restart_seconds=_CHEAP_SECONDS)
    for level, share in _SERVICE_DRAWN.items() if not bench.variant else ():
        found = [_turn(bench, level, 1.0, one) for one in bench.drawn()]
        theirs = [bench.run("tiresias", 1.0, one, _fresh(Tiresias)) for one in bench.drawn()]
        if found:
            name = f"{_OURS}, {level}, generated lists {', '.join(map(str, bench.drawn()))}"
            rows += beside(name, "Tiresias", found, theirs, share=share, p99=None, makespan=None)
    return rows


def _turned(
    bench: Bench,
    level: Knowledge,
    load: float,
    share: float,
    *,
    p99: float | None = None,
    makespan: float | None = None,
    restart_seconds: float = RESTART_SECONDS,
) -> list[Row]:
    """The service beside Pollux on the workloads that are given: all are of the tuning set."""
    numbers = bench.given(load)
    if not numbers or bench.variant:
        return []
    found = [_turn(bench, level, load, one, restart_seconds) for one in numbers]
    theirs = [bench.published["pollux", load, one] for one in numbers]
    name = f"{_OURS}, {level}, load {load:g}, tuning set"
    if restart_seconds != RESTART_SECONDS:
        name += f", restarts of {restart_seconds:g} s"
    each = ", ".join(
        f"{number}: {one.mean_seconds / peer.mean_seconds:.2f}"
        for number, one, peer in zip(numbers, found, theirs, strict=True)
    )
    return beside(
        name,
        "Pollux (published)",
        found,
        theirs,
        share=share,
        p99=p99,
        makespan=makespan,
        note=each,
    )


def _turn(
    bench: Bench,
    level: Knowledge,
    load: float,
    number: int,
    restart_seconds: float = RESTART_SECONDS,
) -> Outcome:
    def policy(jobs: Sequence[Job]) -> Policy:
        return Turn(level, restart_seconds=restart_seconds)

    rules = Rules(restart_seconds=restart_seconds)
    return bench.run(f"turn, {level}", load, number, policy, rules)


def loads(bench: Bench) -> list[Row]:
    """Crowded clusters, with declared epochs and history."""
    rows = []
    for load, share in _LOADED.items():
        name = f"{_OWN}, {Knowledge.HISTORY}, load {load:g}"
        rows += _beside(bench, name, load, Settings(knowledge=Knowledge.HISTORY), share)
    return rows


def wrong(bench: Bench) -> list[Row]:
    """A third of the declarations off by half, up or down."""
    name = f"{_OWN}, {Knowledge.HISTORY}, a third declared wrong by 50 %"
    settings = Settings(knowledge=Knowledge.HISTORY)
    return _beside(bench, name, 1.0, settings, _WRONG, declared=mistaken)


def restarts(bench: Bench) -> list[Row]:
    """Restarts as cheap as our launcher makes them."""
    name = f"{_OWN}, {Knowledge.HISTORY}, restarts of {_CHEAP_SECONDS:g} s"
    settings = Settings(knowledge=Knowledge.HISTORY, restart_seconds=_CHEAP_SECONDS)
    return _beside(bench, name, 1.0, settings, _CHEAP)


def _fresh(make: Callable[[], Policy]) -> Callable[[Sequence[Job]], Policy]:
    return lambda _: make()


def original(bench: Bench, simulator: Path) -> list[Row]:
    """The same policies in the original simulator and in ours."""
    policies: list[tuple[str, Callable[[], Policy]]] = [("Tiresias", Tiresias)]
    policies += [
        (f"Brain, {level}", lambda level=level: Brain(Settings(knowledge=level)))  # type: ignore[misc]
        for level in Knowledge
    ]
    rows = []
    for name, make in policies:
        for number in bench.given(1.0):
            jobs = bench.jobs(1.0, number)
            theirs = run_original(simulator, bench.file(1.0, number), jobs, make())
            ours = bench.run(name, 1.0, number, _fresh(make))
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


def mistaken(jobs: Sequence[Job]) -> dict[str, float]:
    """Factors on what a third of the jobs declare, drawn once for all."""
    random = np.random.default_rng(0)
    drawn = random.permutation(len(jobs))[: len(jobs) // 3]
    return {jobs[index].name: float(random.choice([0.5, 1.5])) for index in drawn}


def _beside(
    bench: Bench,
    name: str,
    load: float,
    settings: Settings,
    share: float,
    declared: Callable[[Sequence[Job]], dict[str, float]] = lambda jobs: {},
) -> list[Row]:
    numbers = bench.given(load)
    rules = Rules(restart_seconds=settings.restart_seconds)
    found: list[Outcome] = [
        bench.run(name, load, number, lambda jobs: Brain(settings, declared(jobs)), rules)
        for number in numbers
    ]
    if not found:
        return []
    if bench.variant:
        tiresias = [bench.run("tiresias", load, one, _fresh(Tiresias)) for one in numbers]
        return beside(name, "Tiresias", found, tiresias, share=None, p99=None, makespan=None)
    theirs = [bench.published["pollux", load, number] for number in numbers]
    slowest = max(one.decision_ms_max for one in found)
    calm = np.mean([one.decision_ms_mean for one in found])
    return beside(
        name,
        "Pollux (published)",
        found,
        theirs,
        share=share,
        note=f"decisions {calm:.0f}, at most {slowest:.0f} ms",
    )
