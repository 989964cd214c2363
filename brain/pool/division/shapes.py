"""Shapes that a round compares: the numbers of nodes over which each size of a job may be spread.

Replicas on one node exchange gradients faster than those on two, so the goodput of a size depends
on its nodes. A round looks at each size on the fewest nodes that would hold it empty, and on the
fewest that have room now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from brain.models.fitting import Point
from brain.models.sizes import Size
from brain.optimizer.situation import Situation


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of a job's replicas that fit the nodes of one kind."""

    #: Replicas that fit each node beside other jobs' replicas, the job's own included, most first.
    rooms: Sequence[int] = ()
    #: Replicas that the largest node holds when empty; 0 if unknown.
    widest: int = 0


#: The spread of a job about whose nodes nothing is known.
ANYWHERE = Spread()


def shapes(situation: Situation, sizes: Sequence[int], spread: Spread) -> list[Size]:
    """Return each size with each number of nodes that it may have; the present size keeps its
    nodes.

    Shapes that fell short lately, and those of the same size over more nodes, are left out.
    """
    short = situation.disappointed
    return [
        Size(replicas=size, nodes=nodes)
        for size in sizes
        for nodes in _nodes(situation, size, spread)
        if size == situation.replicas or nodes is None or nodes < short.get(size, nodes + 1)
    ]


def _nodes(situation: Situation, size: int, spread: Spread) -> Sequence[int | None]:
    """Return the numbers of nodes for a size, fewest first; None stands for the fewest ever used
    where nodes are unknown.
    """
    if size == situation.replicas:
        present = situation.present
        return [present.nodes if isinstance(present, Point) else None]
    return spreads(size, spread)


def spreads(size: int, spread: Spread) -> Sequence[int | None]:
    """Return the numbers of nodes that a size may be spread over, fewest first; None if unknown."""
    room = next((n for n, most in enumerate(accumulate(spread.rooms), 1) if most >= size), None)
    if not spread.widest:
        return [room]
    fewest = -(-size // spread.widest)
    found = {fewest, room or fewest}
    return sorted(nodes for nodes in found if nodes <= min(size, len(spread.rooms)))
