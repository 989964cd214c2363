"""Chooses the agents of a world and their order from the network topology, as pure functions.

An agent's topology is a path, outermost first (zone, spine, rack, switch); its last name is the
switch. If ranks follow the tree, tensor-parallel groups, which communicate most, stay on a machine,
data-parallel neighbours share a switch, and only pipeline stages span switches.

``choose`` changes a running world as little as possible: remaining members keep their relative
order, and a replacement gets the ranks of the agent that it replaces. Surplus agents wait as warm
spares; they are chosen so that the fewest units are broken up.
"""

from collections.abc import Iterable, Sequence

from brain.types.world import Member
from launcher.coordinator.topology.order import arrange, fill, in_order
from launcher.coordinator.topology.packing import pack
from launcher.coordinator.topology.parallel import crossings, groups
from launcher.coordinator.topology.spares import explain, keep
from launcher.values.observation import AgentObserved, Shape, WorldRules

__all__ = ["choose", "extent", "fit", "layout"]


def choose(
    previous: Sequence[Member],
    agents: Iterable[AgentObserved],
    goal: int,
    unit: int = 1,
    minimum: int = 1,
    shape: Shape | None = None,
) -> tuple[Member, ...]:
    """Return the members of the next world in order of rank; empty if ``minimum`` is not met.

    ``goal``, ``unit`` and ``minimum`` count replicas; if the job requested processes (with a
    ``shape``), they count processes. The cost is O(n log n) for n agents; with a shape it is also
    linear in the requested processes times the number of different agent sizes.
    """
    here = sorted(agents, key=lambda agent: agent.replica)
    if shape is not None:
        here = pack(previous, here, goal, unit, minimum, shape)
    size = len(here) if shape is not None else fit(len(here), goal, unit, minimum)
    if size == 0:
        return ()
    known = {member.replica for member in previous}
    survivors = [agent for agent in here if agent.replica in known]
    joiners = [agent for agent in here if agent.replica not in known]
    if len(survivors) >= size:
        return _members(arrange(previous, keep(survivors, (), size, unit, previous), {}, (), 1))
    filled = fill(previous, survivors, joiners, size - len(survivors))
    fixed = [*survivors, *filled.values()]
    taken = {agent.replica for agent in filled.values()}
    others = [agent for agent in in_order(joiners) if agent.replica not in taken]
    more = keep(others, fixed, size - len(fixed), unit)
    block = 1 if shape is not None else unit
    return _members(arrange(previous, survivors, filled, more, block))


def fit(available: int, goal: int, unit: int, minimum: int) -> int:
    """Return the largest multiple of ``unit`` that exceeds neither ``available`` nor ``goal``.

    The result is 0 if this multiple is below ``minimum``.

    >>> fit(31, 32, 4, 4), fit(3, 8, 4, 4), fit(5, 2, 1, 1)
    (28, 0, 2)
    """
    size = min(available, goal) // unit * unit
    return size if size >= max(minimum, 1) else 0


def extent(members: Iterable[Member | AgentObserved], shape: Shape | None) -> int:
    """Return the size of a world of ``members``, in the unit of its job: replicas or processes."""
    return sum(1 if shape is None else member.processes for member in members)


def layout(
    members: Sequence[Member], agents: Sequence[AgentObserved], unit: int, rules: WorldRules
) -> str:
    """Return a text that names the warm spares with the reason, and the groups of ranks that span
    switches.
    """
    said = [explain(members, agents, unit if rules.shape is None else 1)]
    copy = rules.tensor * rules.pipeline
    known = any(member.topology for member in members)
    if sum(member.processes for member in members) % copy:
        said.append(f"the number of processes is not a multiple of {rules.tensor}x{rules.pipeline}")
    elif copy > 1 or known:
        said.append(crossings(groups(members, rules.tensor, rules.pipeline)))
    return "; ".join(filter(None, said))


def _members(order: Sequence[AgentObserved]) -> tuple[Member, ...]:
    return tuple(
        Member(
            replica=agent.replica,
            group_rank=rank,
            processes=agent.processes,
            node=agent.node,
            address=agent.address,
            topology=agent.topology,
            port=agent.port,
            role=agent.group,
        )
        for rank, agent in enumerate(order)
    )
