"""Tensor, data and pipeline groups of a world's ranks, and which of them span switches.

The order of ranks is Megatron's (tensor, then data, then pipeline): a tensor group is ``tensor``
ranks in a row, data-parallel neighbours are ``tensor`` apart, pipeline stages are a whole block
of ranks apart. So the groups that communicate most are nearest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

from brain.errors import BadInput
from brain.types.world import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroup:
    """Ranks that communicate with one another: a ring (tensor, data) or a chain (pipeline)."""

    #: ``tensor``, ``data`` or ``pipeline``.
    kind: str
    ranks: tuple[int, ...]
    #: Neighbours on different machines, and those of them on different switches.
    machine_edges: int
    switch_edges: int


def unit_of(tensor: int, pipeline: int, processes: int) -> int:
    """Return the smallest number of replicas that together hold whole copies of the network, if
    each replica runs ``processes`` processes.

    >>> unit_of(8, 4, 8), unit_of(4, 1, 8), unit_of(8, 1, 4), unit_of(2, 3, 4)
    (4, 1, 2, 3)
    """
    copy = tensor * pipeline
    return copy // gcd(copy, processes)


def groups(
    members: Sequence[Member], tensor: int = 1, pipeline: int = 1
) -> tuple[ParallelGroup, ...]:
    """Return every group of more than one rank, with its edges: the pairs of ranks that exchange
    data. The cost is linear in the number of ranks.

    Raises:
        BadInput: the world is not made of whole copies of the network.
    """
    machines = [member for member in members for _ in range(member.processes)]
    size, copy = len(machines), tensor * pipeline
    if copy < 1 or size % copy:
        raise BadInput(
            f"parallel={tensor}x{pipeline}: {size} processes do not make whole copies of {copy} "
            "processes; give a unit that does",
            field="parallel",
        )
    stage = size // pipeline
    kinds = (
        ("tensor", (range(at, at + tensor) for at in range(0, size, tensor))),
        (
            "data",
            (
                range(block + at, block + stage, tensor)
                for block in range(0, size, stage)
                for at in range(tensor)
            ),
        ),
        ("pipeline", (range(at, size, stage) for at in range(stage))),
    )
    return tuple(
        _group(kind, tuple(ranks), machines)
        for kind, made in kinds
        for ranks in made
        if len(ranks) > 1
    )


def crossings(found: Iterable[ParallelGroup]) -> str:
    """Return a sentence that names the kinds of groups that span machines and switches.

    Tensor groups are counted if they span machines, other groups if they span switches.
    """
    said = []
    for kind, what in (
        ("tensor", "leave a machine"),
        ("data", "cross a switch"),
        ("pipeline", "cross a switch"),
    ):
        mine = [group for group in found if group.kind == kind]
        edges = [g.machine_edges if kind == "tensor" else g.switch_edges for g in mine]
        if mine:
            across = sum(edge > 0 for edge in edges)
            said.append(f"{across} of {len(mine)} {kind} groups {what} ({sum(edges)} edges)")
    return ", ".join(said)


def _group(kind: str, ranks: tuple[int, ...], machines: Sequence[Member]) -> ParallelGroup:
    apart = [
        (one, other)
        for one, other in _edges(ranks, closed=kind != "pipeline")
        if machines[one].node != machines[other].node
    ]
    far = sum(machines[one].topology != machines[other].topology for one, other in apart)
    return ParallelGroup(kind=kind, ranks=ranks, machine_edges=len(apart), switch_edges=far)


def _edges(ranks: tuple[int, ...], *, closed: bool) -> Iterator[tuple[int, int]]:
    yield from pairwise(ranks)
    if closed and len(ranks) > 2:
        yield ranks[-1], ranks[0]
