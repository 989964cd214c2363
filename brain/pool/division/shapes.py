"""Over how many nodes each size of a job may be spread: the shapes that a round compares.

Replicas on one node exchange gradients faster than those on two, so a size is worth what its nodes
make of it. Each is looked at on as few nodes as would hold it, and on as few as have room now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from brain.models.fitting import Point
from brain.models.sizes import Size
from brain.optimizer.situation import Situation


@dataclass(frozen=True, slots=True)
class Spread:
    """The replicas of a job that fit the nodes of its kind."""

    #: Replicas that fit each of them beside what others have, its own included, most first.
    rooms: Sequence[int] = ()
    #: Replicas that the largest of them holds when nobody else is there; 0: nobody knows.
    widest: int = 0


#: Nothing is known of nodes.
ANYWHERE = Spread()


def shapes(situation: Situation, sizes: Sequence[int], spread: Spread) -> list[Size]:
    """The sizes with the nodes that each may have; the present one as it is.

    A shape that fell short lately is none, nor is one over more nodes.
    """
    short = situation.disappointed
    return [
        Size(replicas=size, nodes=nodes)
        for size in sizes
        for nodes in _nodes(situation, size, spread)
        if size == situation.replicas or nodes is None or nodes < short.get(size, nodes + 1)
    ]


def _nodes(situation: Situation, size: int, spread: Spread) -> Sequence[int | None]:
    """Numbers of nodes for a size, fewest first; None, as few as were ever used, where unknown."""
    if size == situation.replicas:
        present = situation.present
        return [present.nodes if isinstance(present, Point) else None]
    return spreads(size, spread)


def spreads(size: int, spread: Spread) -> Sequence[int | None]:
    """Numbers of nodes that a size may be spread over, fewest first; None where unknown."""
    room = next((n for n, most in enumerate(accumulate(spread.rooms), 1) if most >= size), None)
    if not spread.widest:
        return [room]
    fewest = -(-size // spread.widest)
    found = {fewest, room or fewest}
    return sorted(nodes for nodes in found if nodes <= min(size, len(spread.rooms)))
