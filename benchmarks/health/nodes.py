"""Tests the check before training on simulated nodes: the launcher's own rules, with noisy times.

A measured time is the true time multiplied by a normal deviate of 5 %. A node measures medians of
40 times and their standard errors, as ``launcher/agent/network_check/script.py`` does. A pair of
nodes is as slow as its slower node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from launcher.values.network_check.measurements import CheckRound, Group, NodeMeasured, Usual
from launcher.values.network_check.pairing import first_round, next_round
from launcher.values.network_check.terms import CheckWork
from launcher.values.network_check.verdicts import Verdicts, remembered, verdicts

NOISE = 0.05
RATIO = 1.15
COMPUTE_SECONDS, EXCHANGE_SECONDS = 0.02, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, with its fault."""

    compute: float = 1.0
    exchange: float = 1.0
    #: It fails alone, too; its link fails, whoever is at the other end.
    broken: bool = False
    unlinked: bool = False


GOOD = Node()


class Cluster:
    """Nodes that can be asked to measure."""

    def __init__(self, nodes: Sequence[Node], random: np.random.Generator) -> None:
        self.nodes, self._random = list(nodes), random
        self.rounds = 0

    def check(self, usual: Mapping[str, Usual]) -> tuple[Verdicts, dict[str, Usual]]:
        """Run a whole check; return the nodes that it found, and the usual times from then on."""
        rounds = [self._round(first_round(range(len(self.nodes))))]
        while again := next_round(rounds, usual, RATIO):
            rounds.append(self._round(again))
        self.rounds = len(rounds)
        return verdicts(rounds, usual, RATIO), remembered(rounds, usual)

    def _round(self, groups: tuple[Group, ...]) -> CheckRound:
        found: dict[int, NodeMeasured] = {}
        for group in groups:
            here = [self.nodes[each] for each in group]
            cut = len(group) > 1 and any(node.unlinked or node.broken for node in here)
            slowest = max(node.exchange for node in here)
            exchange = self._timed(EXCHANGE_SECONDS * slowest) if len(group) > 1 else (0.0, 0.0)
            for each, node in zip(group, here, strict=True):
                compute = self._timed(COMPUTE_SECONDS * node.compute)
                found[each] = NodeMeasured(
                    ok=True,
                    compute_seconds=compute[0],
                    compute_error=compute[1],
                    exchange_seconds=exchange[0],
                    exchange_error=exchange[1],
                )
                if node.broken or cut:
                    found[each] = NodeMeasured(ok=False, reason="no link")
        return CheckRound(groups=groups, measured=found)

    def _timed(self, seconds: float) -> tuple[float, float]:
        count = CheckWork().repeats
        times = np.sort(seconds * (1 + NOISE * self._random.standard_normal(count)))
        spread = (times[3 * count // 4] - times[count // 4]) / 1.349
        return float(times[count // 2]), float(1.2533 * spread / count**0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The results of a set of trials."""

    trials: int
    #: The one that was wrong was named, and nobody else.
    right: int
    rounds: int


FAULTS = {
    "broken": replace(GOOD, broken=True),
    "without a link": replace(GOOD, unlinked=True),
    "slow at arithmetic (1.15 ×)": replace(GOOD, compute=RATIO),
    "slow at exchanges (1.15 ×)": replace(GOOD, exchange=RATIO),
}


def faults(size: int, name: str, fault: Node, times: int) -> Found:
    """Give a fault to every node of a cluster of ``size`` in turn, ``times`` times."""
    random = np.random.default_rng([size, len(name)])
    right, rounds = 0, 0
    for _ in range(times):
        for bad in range(size):
            nodes = [fault if each == bad else GOOD for each in range(size)]
            cluster = Cluster(nodes, random)
            found, _ = cluster.check({})
            named = set(found.failed if fault.broken or fault.unlinked else found.slow)
            right += named == {bad} and len(found.failed) + len(found.slow) == 1
            rounds = max(rounds, cluster.rounds)
    return Found(trials=times * size, right=right, rounds=rounds)


def half_slow(size: int, times: int) -> Found:
    """Make half of the nodes slow, and then all but one; the usual times are known."""
    random = np.random.default_rng([size, 7])
    usual = {"cpu": Usual(compute_seconds=COMPUTE_SECONDS, exchange_seconds=EXCHANGE_SECONDS)}
    right = 0
    for turn in range(times):
        count = size // 2 if turn % 2 else size - 1
        slow = set(random.permutation(size)[:count].tolist())
        nodes = [replace(GOOD, compute=RATIO) if each in slow else GOOD for each in range(size)]
        found, _ = Cluster(nodes, random).check(usual)
        right += set(found.slow) == slow and not found.failed
    return Found(trials=times, right=right, rounds=0)


def alarms(size: int, times: int) -> int:
    """Return the number of false alarms in successive checks of healthy nodes, each of which passes
    on the usual times to the next one.
    """
    random = np.random.default_rng([size, 3])
    usual: dict[str, Usual] = {}
    count = 0
    for _ in range(times):
        found, usual = Cluster([GOOD] * size, random).check(usual)
        count += bool(found.slow or found.failed)
    return count
