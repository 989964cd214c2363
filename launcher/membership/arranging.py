"""Who is in a world, in which order."""

import math
import re
from collections.abc import Iterable, Sequence

from brain.types.world import Member
from launcher.worlds.sight import AgentSeen


def fit(available: int, goal: int, unit: int, minimum: int) -> int:
    """Return the largest multiple of ``unit`` up to both; 0 where it is below ``minimum``.

    >>> fit(31, 32, 4, 4), fit(3, 8, 4, 4), fit(5, 2, 1, 1)
    (28, 0, 2)
    """
    size = min(available, goal) // unit * unit
    return size if size >= max(minimum, 1) else 0


def arrange(
    previous: Sequence[Member], agents: Iterable[AgentSeen], size: int
) -> tuple[Member, ...]:
    """Choose and order ``size`` members with as little disturbance as can be.

    Survivors keep their relative order and joiners take the holes of what was lost, those on the
    same node first; what must go are joiners, then the highest replica ids.
    """
    here = {agent.replica: agent for agent in agents}
    survivors = set(sorted(m.replica for m in previous if m.replica in here)[:size])
    before = {m.replica for m in previous}
    joiners = sorted((r for r in here if r not in before), key=lambda r: _place(here[r]))
    joiners = joiners[: size - len(survivors)]
    order: list[int] = []
    for member in previous:
        if member.replica in survivors:
            order.append(member.replica)
        elif member.replica not in here and joiners:
            same = (r for r in joiners if here[r].node == member.node)
            order.append(joiners.pop(joiners.index(next(same, joiners[0]))))
    return tuple(_member(here[replica], rank) for rank, replica in enumerate(order + joiners))


def _place(agent: AgentSeen) -> tuple[float, list[tuple[int, int, str]], int]:
    """Sort key: the rank asked for, node names with their numbers as numbers, the replica."""
    parts = re.findall(r"\d+|\D+", agent.node)
    names = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
    return math.inf if agent.rank is None else agent.rank, names, agent.replica


def _member(agent: AgentSeen, rank: int) -> Member:
    return Member(
        replica=agent.replica,
        group_rank=rank,
        processes=agent.processes,
        node=agent.node,
        address=agent.address,
    )
