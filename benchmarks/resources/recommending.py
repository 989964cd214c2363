"""Measures how soon made-up jobs with parameter servers finish, with which resources, and how often
a server is killed.

Every policy gets the same jobs (``dlrm``) in the same simulation. The policies are the owners'
reservations, the rules of DLRover, the service through its own code path, and an oracle that knows
the need of each replica (``known``). All may use the same number of replicas.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.report import Row
from benchmarks.resources.dlrm import Job, jobs
from benchmarks.resources.governed import Governed
from benchmarks.resources.known import Known
from benchmarks.resources.playing import Outcome, Policy, play
from benchmarks.resources.rules import History, Rules, Static

_COUNT = 8


def outcomes(seed: int, count: int = _COUNT) -> dict[str, list[Outcome]]:
    """Return the outcomes of the jobs of a seed, by policy."""
    some, history = jobs(seed, count), History()

    def played(job: Job, at: int) -> dict[str, Outcome]:
        policies: dict[str, Policy] = {
            "static": Static(),
            "rules": Rules(history),
            "service": Governed(job.steps),
            "known": Known(job),
        }
        return {name: play(job, policy, at) for name, policy in policies.items()}

    found = [played(job, at) for at, job in enumerate(some)]
    return {name: [one[name] for one in found] for name in found[0]}


def rows(seed: int) -> list[Row]:
    """Return the rows of one seed."""
    found = outcomes(seed)
    static, rules, ours = found["static"], found["rules"], found["service"]
    every = f"{Governed.reads_seconds:g} s"
    note = f"{_COUNT} simulated jobs, decided by the service every {every}, seed {seed}"
    kills, others = _kills(ours), _kills(static)
    return [
        Row(
            metric="(b) completion beside declared static resources",
            value=_hours(ours) / _hours(static),
            unit="×",
            bar=0.69,
            note=f"{_hours(ours):.2f} of {_hours(static):.2f} h; {note}",
        ),
        Row(
            metric="(b) completion beside the rules of DLRover",
            value=_hours(ours) / _hours(rules),
            unit="×",
            bar=0.85,
            note=f"{_hours(ours):.2f} of {_hours(rules):.2f} h; {note}",
        ),
        Row(
            metric="(b) kills of servers for want of memory beside declared static resources",
            value=kills / max(1, others),
            unit="×",
            bar=0.1,
            note=f"{kills} beside {others}, {_kills(rules)} by the rules of DLRover; {note}",
        ),
        Row(
            metric="(b) processors reserved and not used, beside declared static resources",
            value=100 * (_cpus(static) - _cpus(ours)),
            unit="points",
            bar=-15.0,
            note=f"{_used(_cpus, found)}; {note}",
        ),
        Row(
            metric="(b) memory reserved and not used, beside declared static resources",
            value=100 * (_bytes(static) - _bytes(ours)),
            unit="points",
            bar=-20.0,
            note=f"{_used(_bytes, found)}; {note}",
        ),
        *_reachable(found, seed),
    ]


def _reachable(found: dict[str, list[Outcome]], seed: int) -> Iterator[Row]:
    """Yield the differences to the owners' reservations that perfect knowledge would reach."""
    static, known = found["static"], found["known"]
    for resource, share in (("processors", _cpus), ("memory", _bytes)):
        yield Row(
            metric=f"(b) {resource} reserved and not used, beside declared static resources, if "
            "the need of each replica were known from the start",
            value=100 * (share(static) - share(known)),
            unit="points",
            note=f"{100 * share(known):.0f} % used with the sizes and the headroom of the service, "
            f"in {_hours(known):.2f} h; {_COUNT} simulated jobs, seed {seed}",
        )


def _hours(some: Sequence[Outcome]) -> float:
    return float(np.mean([one.seconds for one in some])) / 3600


def _kills(some: Sequence[Outcome]) -> int:
    return sum(one.kills for one in some)


def _cpus(some: Sequence[Outcome]) -> float:
    return float(np.mean([one.cpus / one.reserved_cpus for one in some]))


def _bytes(some: Sequence[Outcome]) -> float:
    return float(np.mean([one.bytes / one.reserved_bytes for one in some]))


def _used(share: Callable[[Sequence[Outcome]], float], found: dict[str, list[Outcome]]) -> str:
    static, rules, ours = (100 * share(found[name]) for name in ("static", "rules", "service"))
    return f"{ours:.0f} % used, {static:.0f} % static, {rules:.0f} % by the rules of DLRover"
