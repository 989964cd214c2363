"""The order of a world's members: along the tree of switches, with as few changes as possible."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from brain.types.world import Member
from launcher.values.observation import AgentObserved

Path = tuple[str, ...]
Natural = tuple[tuple[int, int, str], ...]


def natural(name: str) -> tuple[Natural, str]:
    """Return a sort key for a name in which numbers sort by value; different names have different
    keys.

    >>> sorted(["node10", "node2", "node02"], key=natural)
    ['node02', 'node2', 'node10']
    """
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts), name


def in_order(agents: Iterable[AgentObserved]) -> list[AgentObserved]:
    """Return the order of agents that were in no world together.

    The order is depth-first over the tree, so that agents on one switch are contiguous. At every
    level, the branch of the agent that requested rank 0 comes first, then the branch with the
    fullest switch; other branches are sorted by name and number. Agents that requested a rank get
    it; the others get the remaining ranks.
    """
    tree = _depth_first(list(agents))
    asked = deque(sorted((a for a in tree if a.rank is not None), key=lambda a: a.rank or 0))
    others = deque(agent for agent in tree if agent.rank is None)
    order: list[AgentObserved] = []
    while asked or others:
        due = asked and ((asked[0].rank or 0) <= len(order) or not others)
        order.append(asked.popleft() if due else others.popleft())
    return order


def switch_order(agents: Sequence[AgentObserved]) -> dict[Path, int]:
    """Return the switches in the order of ``in_order``, without requested ranks."""
    return {path: at for at, path in enumerate(dict.fromkeys(map(_path, _depth_first(agents))))}


def fill(
    previous: Sequence[Member],
    survivors: Sequence[AgentObserved],
    joiners: Sequence[AgentObserved],
    limit: int,
) -> dict[int, AgentObserved]:
    """Give the ranks of lost members to at most ``limit`` joining agents; return {rank: agent}.

    An agent that requested the rank is preferred, then one on the same machine, then one on the
    same switch, rack, spine or zone. Of equal agents, the one that waited longest (the lowest
    replica id) is chosen.
    """
    kept = {agent.replica for agent in survivors}
    holes = [member for member in previous if member.replica not in kept]
    depth = max((len(m.topology) for m in holes), default=0)
    filled: dict[int, AgentObserved] = {}
    free = {agent.replica: agent for agent in joiners}
    for of_hole, of_joiner in _nearness(depth):
        _match(holes, free, of_hole, of_joiner, filled, limit)
    return filled


def arrange(
    previous: Sequence[Member],
    survivors: Sequence[AgentObserved],
    filled: Mapping[int, AgentObserved],
    more: Sequence[AgentObserved],
    unit: int,
) -> list[AgentObserved]:
    """Return remaining members in their old order, with replacements in free ranks; place the
    additional agents ``more`` next to them.

    Whole units of ``more`` follow the last member on their switch, so that the switch stays
    contiguous; the other agents are appended. If every agent requested a rank, the requested ranks
    are the order.
    """
    here = {agent.replica: agent for agent in survivors}
    slots = ((here.get(m.replica) or filled.get(m.group_rank)) for m in previous)
    order = [agent for agent in slots if agent is not None]
    everyone = [*order, *more]
    if not order or _all_asked(everyone):
        return in_order(everyone)
    last = {_path(agent): at for at, agent in enumerate(order)}
    groups: dict[Path, list[AgentObserved]] = defaultdict(list)
    for agent in more:
        groups[_path(agent)].append(agent)
    whole = {path: len(group) // unit * unit for path, group in groups.items()}
    grown: list[AgentObserved] = []
    for at, agent in enumerate(order):
        grown.append(agent)
        path = _path(agent)
        if last[path] == at and (at + 1) % unit == 0 and path in groups:
            grown += groups[path][: whole[path]]
            groups[path] = groups[path][whole[path] :]
    rest = {agent.replica for group in groups.values() for agent in group}
    # Those on the last member's switch first: that group goes on without a gap.
    end = _path(grown[-1])
    tail = sorted((a for a in more if a.replica in rest), key=lambda agent: _path(agent) != end)
    return grown + tail


def _depth_first(agents: Sequence[AgentObserved]) -> list[AgentObserved]:
    members = Counter(map(_path, agents))
    below: Counter[Path] = Counter()
    fullest: dict[Path, int] = defaultdict(int)
    for path, count in members.items():
        for end in range(len(path) + 1):
            below[path[:end]] += count
            fullest[path[:end]] = max(fullest[path[:end]], count)
    first = min((a for a in agents if a.rank is not None), key=lambda a: a.rank or 0, default=None)
    lead = () if first is None else _path(first)

    def branch(path: Path) -> tuple[object, ...]:
        ends = [path[: end + 1] for end in range(len(path))]
        return tuple((e != lead[: len(e)], -fullest[e], -below[e], natural(e[-1])) for e in ends)

    keys = {path: branch(path) for path in members}
    return sorted(agents, key=lambda a: (keys[_path(a)], natural(a.node), a.replica))


def _nearness(
    depth: int,
) -> Iterable[tuple[Callable[[Member], Hashable], Callable[[AgentObserved], Hashable]]]:
    """Yield the features that a lost member and its replacement may share, nearest first."""
    yield lambda hole: hole.group_rank, lambda agent: agent.rank
    yield lambda hole: hole.node, lambda agent: agent.node
    for length in range(depth, -1, -1):

        def shared(one: Member | AgentObserved, length: int = length) -> Hashable:
            return one.topology[:length] if len(one.topology) >= length else one.replica

        yield shared, shared


def _match(
    holes: Sequence[Member],
    free: dict[int, AgentObserved],
    of_hole: Callable[[Member], Hashable],
    of_joiner: Callable[[AgentObserved], Hashable],
    filled: dict[int, AgentObserved],
    limit: int,
) -> None:
    """Fill holes with joiners that share this, and take them out of ``free``."""
    waiting: dict[Hashable, deque[AgentObserved]] = defaultdict(deque)
    for replica in sorted(free):
        waiting[of_joiner(free[replica])].append(free[replica])
    for hole in holes:
        if len(filled) == limit:
            return
        near = waiting.get(of_hole(hole))
        if near and hole.group_rank not in filled:
            joiner = filled[hole.group_rank] = near.popleft()
            del free[joiner.replica]


def _all_asked(agents: Sequence[AgentObserved]) -> bool:
    ranks = {agent.rank for agent in agents}
    return None not in ranks and len(ranks) == len(agents)


def _path(agent: AgentObserved) -> Path:
    return agent.topology
