"""Faults of nodes and their times, which are the same for every policy with the same seed."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from brain.simulator.spec import NodeTrouble, Spec

_DAY = 86_400.0


class Blow(StrEnum):
    """A kind of fault of a node, or the end of a fault."""

    SLOW = "slow"
    EVEN = "even"
    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """The beginning or end of one node's fault."""

    at_seconds: float
    node: int
    blow: Blow


class Faults:
    """The endless sequence of faults of a cluster; nodes fail independently.

    The lengths of faults and the times between them are exponentially distributed. A node's next
    fault of a kind begins after its previous fault of this kind has ended.
    """

    def __init__(self, spec: Spec, nodes: int, seed: int) -> None:
        self._next: list[tuple[Fault, int]] = []
        self._streams: list[Iterator[Fault]] = []
        kinds = ((spec.stragglers, Blow.SLOW, Blow.EVEN), (spec.failures, Blow.DOWN, Blow.UP))
        for order, (trouble, begins, ends) in enumerate(kinds):
            if trouble.per_node_day <= 0:
                continue
            for node in range(nodes):
                generator = np.random.default_rng([seed, 1 + order, node])
                self._streams.append(_stream(trouble, node, begins, ends, generator))
                self._draw(len(self._streams) - 1)

    def until(self, seconds: float) -> Fault | None:
        """Return the next fault if it is due by ``seconds``; each fault is returned once."""
        if not self._next or self._next[0][0].at_seconds > seconds:
            return None
        fault, stream = heapq.heappop(self._next)
        self._draw(stream)
        return fault

    def _draw(self, stream: int) -> None:
        heapq.heappush(self._next, (next(self._streams[stream]), stream))


def _stream(
    trouble: NodeTrouble, node: int, begins: Blow, ends: Blow, generator: np.random.Generator
) -> Iterator[Fault]:
    at = 0.0
    while True:
        at += float(generator.exponential(_DAY / trouble.per_node_day))
        yield Fault(at, node, begins)
        at += float(generator.exponential(60 * trouble.minutes))
        yield Fault(at, node, ends)
