"""The choice of nodes for a number of replicas of one accelerator each. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brain.simulator.applications import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableNode:
    index: int
    #: Kind of the node: ``accelerator`` of job documents.
    kind: str
    capacity: int


#: Index of the node of each replica, sorted.
Placement = tuple[int, ...]


def shape(placement: Placement) -> Shape:
    """Return the number of replicas on each node that has any, in the order of nodes.

    >>> shape((0, 0, 3))
    (2, 1)
    """
    return tuple(placement.count(node) for node in sorted(set(placement)))


def place(free: Mapping[int, int], wanted: int) -> Placement | None:
    """Return a placement of ``wanted`` replicas on as few nodes as possible; None if they do not
    fit.

    If one node suffices, the fullest such node is taken. Otherwise the emptiest nodes are taken,
    and last the fullest node with room for the rest. Ties go to the lowest index.

    Args:
        free: Free accelerators by node, of one kind.

    >>> place({0: 4, 1: 1, 2: 4}, 1), place({0: 4, 1: 1, 2: 4}, 5), place({0: 1}, 2)
    ((1,), (0, 0, 0, 0, 1), None)
    """
    if wanted > sum(free.values()):
        return None
    chosen: list[int] = []
    left = {node: have for node, have in free.items() if have > 0}
    while wanted:
        enough = [node for node, have in left.items() if have >= wanted]
        if enough:
            node = min(enough, key=lambda node: (left[node], node))
        else:
            node = min(left, key=lambda node: (-left[node], node))
        taken = min(wanted, left.pop(node))
        chosen += [node] * taken
        wanted -= taken
    return tuple(sorted(chosen))


def of_kind(machines: Sequence[UsableNode], free: Mapping[int, int]) -> dict[str, dict[int, int]]:
    """Return the free accelerators by kind and node; kinds have the order of ``machines``."""
    found: dict[str, dict[int, int]] = {}
    for machine in machines:
        found.setdefault(machine.kind, {})[machine.index] = free.get(machine.index, 0)
    return found
