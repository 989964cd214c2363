"""The shapes that a round compares: the numbers of nodes over which each size may be spread.

Replicas on one node exchange gradients faster than replicas on two nodes, so the goodput of a size
depends on the number of its nodes. A round considers each size on the fewest empty nodes that would
hold it, and on the fewest nodes that have room for it now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from brain.models.fitting import Point
from brain.models.sizes import Size
from brain.optimizer.situation import Situation


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of a job's replicas that fit each node of one kind."""

    #: Replicas that fit each node beside other jobs' replicas, the job's own included, most first.
    rooms: Sequence[int] = ()
    #: Replicas that the largest node holds when empty; 0 if unknown.
    widest: int = 0


#: The spread of a job about whose nodes nothing is known.
ANYWHERE = Spread()


def shapes(situation: Situation, sizes: Sequence[int], spread: Spread) -> list[Size]:
    """Return each size with each number of nodes that it may be spread over.

    The present size may keep its nodes, or use fewer nodes if these have room now; no other job
    moves to make this possible. Shapes that fell short recently, and shapes of the same size over
    more nodes, are left out.
    """
    short = situation.disappointed
    found = []
    for size in sizes:
        allowed = [n for n in spreads(size, spread) if n is None or n < short.get(size, n + 1)]
        if size == situation.replicas:
            now = situation.present.nodes if isinstance(situation.present, Point) else None
            room = _roomy(size, spread)
            packs = now is not None and room is not None and room < now and room in allowed
            allowed = [now, room] if packs else [now]
        found += [Size(replicas=size, nodes=nodes) for nodes in allowed]
    return found


def spreads(size: int, spread: Spread) -> Sequence[int | None]:
    """Return the numbers of nodes that a size may be spread over, fewest first; None if unknown."""
    room = _roomy(size, spread)
    if not spread.widest:
        return [room]
    fewest = -(-size // spread.widest)
    found = {fewest, room or fewest}
    return sorted(nodes for nodes in found if nodes <= min(size, len(spread.rooms)))


def _roomy(size: int, spread: Spread) -> int | None:
    """Return the fewest nodes that have room for a size now; None if no room is known."""
    return next((n for n, most in enumerate(accumulate(spread.rooms), 1) if most >= size), None)
