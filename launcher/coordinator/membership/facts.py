"""Helper functions about an observation that several rules use."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from brain.types.roles import WORKER, Roles, is_group, others, ranked, role_at, roles_in
from brain.types.world import Cause, DesiredWorld, Member
from launcher.coordinator.topology import choose, extent
from launcher.values.observation import AgentObserved, JobObserved, WorldObserved


def available(observation: JobObserved) -> list[AgentObserved]:
    """Return the agents that may be members of a world."""
    return [agent for agent in observation.agents if agent.ready and agent.leaving_since is None]


def chosen(
    observation: JobObserved, desired: DesiredWorld, previous: Sequence[Member], goal: int
) -> tuple[Member, ...]:
    """Return the members that a world of ``goal`` replicas would have now; empty if it cannot be
    formed.
    """
    here = within_groups(available(observation), previous, desired, goal)
    return choose(previous, here, goal, desired.unit, desired.minimum, observation.rules.shape)


def within_groups(
    agents: Sequence[AgentObserved], previous: Sequence[Member], desired: DesiredWorld, goal: int
) -> Sequence[AgentObserved]:
    """Leave out agents beyond the desired size of their group; present members are preferred, then
    the oldest. A world whose size differs from the desired one takes agents of any group.
    """
    groups = {name: size.replicas for name, size in desired.roles if is_group(name)}
    if not groups or goal != desired.replicas:
        return agents
    most = Counter(groups) + Counter({WORKER: goal - others(desired.roles)})
    known = {member.replica for member in previous}
    kept = []
    for agent in sorted(agents, key=lambda agent: (agent.replica not in known, agent.replica)):
        if most[agent.group] > 0:
            most[agent.group] -= 1
            kept.append(agent)
    return kept


def size_of(observation: JobObserved, members: Sequence[Member]) -> int:
    """Return the size of a world in the unit of the desired world: replicas or processes."""
    return extent(members, observation.rules.shape)


def counted(observation: JobObserved) -> str:
    """Return the unit in which a world's size is counted: "replicas", or "processes" if the job has
    a shape.
    """
    return "replicas" if observation.rules.shape is None else "processes"


def attendance(observation: JobObserved, here: int, wanted: str) -> str:
    """Return a phrase that says how many of the ``wanted`` members a world could have now, and why
    not more.
    """
    cold = sum(not agent.ready and agent.leaving_since is None for agent in observation.agents)
    imports = f"; {cold} {'agent imports' if cold == 1 else 'agents import'} modules before that"
    return f"{here} of {wanted} {counted(observation)} are here{imports if cold else ''}"


def warming_until(observation: JobObserved) -> float:
    """Return the time until which to wait for agents that are not ready; 0.0 if all are ready."""
    slow = [a.since for a in observation.agents if not a.ready and a.leaving_since is None]
    return max(slow) + observation.rules.ready_seconds if slow else 0.0


def goal_of(observation: JobObserved, desired: DesiredWorld) -> tuple[int, bool]:
    """Return the number of replicas to aim for now, and True if a plan requests this change."""
    world = observation.world
    if world is not None and world.ended_by is Cause.REVERT and world.change is not None:
        return world.change.from_goal, False
    if world is None or world.stopped or desired.generation == world.generation:
        return desired.replicas, False
    blocked = observation.held is not None and observation.held.generation == desired.generation
    return (world.goal, False) if blocked or desired.frozen else (desired.replicas, True)


def with_roles(
    observation: JobObserved, desired: DesiredWorld, generation: int, members: Sequence[Member]
) -> tuple[Member, ...]:
    """Give each member of a world for ``generation`` its role by rank; a member of a group stays in
    its group.
    """
    roles = ranked(_roles_of(observation, desired, generation))
    return tuple(
        each if is_group(each.role) else replace(each, role=role_at(rank, roles))
        for rank, each in enumerate(members)
    )


def _roles_of(observation: JobObserved, desired: DesiredWorld, generation: int) -> Roles:
    world = observation.world
    if world is None or generation == desired.generation:
        return desired.roles
    if world.ended_by is Cause.REVERT and world.change is not None:
        return world.change.from_roles
    return roles_in(world.members)


def resting(observation: JobObserved, world: WorldObserved) -> bool:
    """True if the present change was abandoned, and no checkpoint was saved since then."""
    held, desired = observation.held, observation.desired
    if held is None or desired is None or held.generation != desired.generation:
        return False
    return held.saves == world.saves.count


def names(replicas: Iterable[int]) -> str:
    """Return replicas as a phrase."""
    return ", ".join(map(str, sorted(replicas)))


def span(seconds: float) -> str:
    """Return seconds as a phrase."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
