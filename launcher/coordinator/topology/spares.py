"""Chooses the agents that a world leaves out, so that the fewest units are broken up."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from brain.types.world import Member
from launcher.coordinator.topology.order import Path, switch_order
from launcher.values.observation import AgentObserved


def keep(
    free: Sequence[AgentObserved],
    fixed: Sequence[AgentObserved],
    size: int,
    unit: int,
    previous: Sequence[Member] = (),
) -> list[AgentObserved]:
    """Return the ``size`` agents of ``free`` that run in addition to ``fixed``, in the given order.

    On each switch some agents may be left over beyond whole units. These agents are left out first.
    The switch with the fewest of these agents comes first; of equal switches, the one with the
    fewest members. Then whole units of the emptiest switches are left out. On one switch, agents
    whose unit of the last world is broken are left out first, then the unit with the highest
    replica id. If there was no last world, the last agents of ``free`` are left out first. An agent
    that requested a rank is left out last.
    """
    spare = len(free) - size
    if spare <= 0:
        return list(free)
    asked = sorted((a for a in free if a.rank is not None), key=lambda a: -(a.rank or 0))
    others = [agent for agent in free if agent.rank is None]
    out = {agent.replica for agent in asked[: max(0, spare - len(others))]}
    groups: dict[Path, list[AgentObserved]] = defaultdict(list)
    for agent in _least_missed(others, unit, previous):
        groups[agent.topology].append(agent)
    for path, count in _cuts(groups, [*free, *fixed], unit, min(spare, len(others))):
        out |= {agent.replica for agent in groups[path][:count]}
        groups[path] = groups[path][count:]
    return [agent for agent in free if agent.replica not in out]


def explain(members: Sequence[Member], agents: Sequence[AgentObserved], unit: int) -> str:
    """Return a sentence that names the warm spares and the reason; empty without spares."""
    known = {member.replica for member in members}
    spares = [a for a in agents if a.replica not in known and a.leaving_since is None and a.ready]
    if not spares:
        return ""
    names = ", ".join(str(replica) for replica in sorted(a.replica for a in spares))
    why = f"{len(members)} of {len(members) + len(spares)} replicas run"
    if unit > 1:
        why += f", whole units of {unit}"
    places: dict[Path, int] = defaultdict(int)
    for agent in spares:
        places[agent.topology] += 1
    inside: dict[Path, int] = defaultdict(int)
    for member in members:
        inside[member.topology] += 1
    where = "; ".join(
        f"{count} on switch {'/'.join(path)} with {inside[path]} running replicas"
        for path, count in places.items()
        if path
    )
    return f"warm spares: replicas {names} ({why}{'; ' + where if where else ''})"


def _least_missed(
    free: Sequence[AgentObserved], unit: int, previous: Sequence[Member]
) -> list[AgentObserved]:
    """Return the agents in the order in which they are left out."""
    if not previous:
        return list(free)[::-1]
    here = {agent.replica for agent in free}
    units: Mapping[int, list[int]] = defaultdict(list)
    for member in previous:
        units[member.group_rank // unit].append(member.replica)
    rank = {member.replica: member.group_rank // unit for member in previous}
    broken = {number for number, replicas in units.items() if not here.issuperset(replicas)}
    highest = {number: max(replicas) for number, replicas in units.items()}

    def missed(agent: AgentObserved) -> tuple[bool, int, int]:
        number = rank[agent.replica]
        return number not in broken, -highest[number], -agent.replica

    return sorted(free, key=missed)


def _cuts(
    groups: Mapping[Path, Sequence[AgentObserved]],
    everyone: Sequence[AgentObserved],
    unit: int,
    spare: int,
) -> list[tuple[Path, int]]:
    """Return the number of agents to leave out on each switch, in the order of leaving out."""
    total: dict[Path, int] = defaultdict(int)
    for agent in everyone:
        total[agent.topology] += 1
    place = switch_order(everyone)
    cuts: list[tuple[Path, int]] = []
    left = {path: len(group) for path, group in groups.items()}

    def cut(path: Path, count: int) -> None:
        nonlocal spare
        count = min(count, spare, left[path])
        if count > 0:
            cuts.append((path, count))
            left[path], total[path], spare = left[path] - count, total[path] - count, spare - count

    def emptiest(path: Path) -> tuple[int, int]:
        return total[path], -place[path]

    for path in sorted(groups, key=lambda p: (total[p] % unit, emptiest(p))):
        cut(path, total[path] % unit)
    for path in sorted(groups, key=emptiest):
        cut(path, left[path])
    return cuts
