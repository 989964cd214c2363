"""Functions about an observation; several rules use these functions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from brain.types.roles import (
    CHIEF,
    PS,
    WORKER,
    Roles,
    groups_of,
    is_group,
    leading,
    others,
    ranked,
    role_at,
    roles_in,
)
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
    here, roles = available(observation), fixed_roles(observation, desired)
    if roles:
        here = [] if lacking(observation, roles) else _within(here, previous, roles, goal)
    elif goal == desired.replicas and any(is_group(name) for name, _ in desired.roles):
        # A world of another size takes agents of any group.
        here = _within(here, previous, groups_of(desired.roles), goal)
    return choose(previous, here, goal, desired.unit, desired.minimum, observation.rules.shape)


def fixed_roles(observation: JobObserved, desired: DesiredWorld) -> Roles:
    """Return the roles of the next world if agents have fixed roles from their start; else an empty
    tuple.
    """
    if not observation.rules.fixed_roles:
        return ()
    world, (_, planned) = observation.world, goal_of(observation, desired)
    generation = desired.generation
    if world is not None and not planned and not world.stopped:
        change = world.change if world.ended_by is Cause.REVERT else None
        generation = world.generation if change is None else change.from_generation
    return ranked(_roles_of(observation, desired, generation))


def lacking(observation: JobObserved, roles: Roles) -> str:
    """Return a phrase that names the roles that a world needs and that too few agents have; empty
    if there are enough agents.
    """
    here = Counter(agent.group for agent in available(observation))
    need = {name: size.replicas for name, size in roles if name in (CHIEF, PS)}
    need |= {WORKER: 1} if roles else {}
    short = {name: most for name, most in need.items() if here[name] < most}
    return ", ".join(f"{here[name]} of {most} {name}" for name, most in short.items())


def _within(
    agents: Sequence[AgentObserved], previous: Sequence[Member], roles: Roles, goal: int
) -> list[AgentObserved]:
    """Leave out agents beyond the size of their role or group; present members are preferred, then
    the oldest.
    """
    most = Counter({name: size.replicas for name, size in roles})
    most[WORKER] = goal - others(roles)
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
    """Return the unit in which a world's size is counted: "replicas", or "processes" if the job
    requested them with ``--world``.
    """
    return "replicas" if observation.rules.shape is None else "processes"


def attendance(observation: JobObserved, here: int, wanted: str) -> str:
    """Return a phrase that says how many of the ``wanted`` members a world could have now, and how
    many agents still import modules.
    """
    cold = sum(not agent.ready and agent.leaving_since is None for agent in observation.agents)
    imports = f"; {cold} {'agent imports' if cold == 1 else 'agents import'} modules first"
    return f"{here} of {wanted} {counted(observation)} are here{imports if cold else ''}"


def warming_until(observation: JobObserved) -> float:
    """Return the time, on the coordinator's clock in seconds, until which to wait for agents that
    are not ready; 0.0 if all agents are ready.
    """
    slow = [a.since for a in observation.agents if not a.ready and a.leaving_since is None]
    return max(slow) + observation.rules.ready_seconds if slow else 0.0


def goal_of(observation: JobObserved, desired: DesiredWorld) -> tuple[int, bool]:
    """Return the number of replicas to aim for now, and True if a plan requests the change to this
    number.
    """
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
    """Return the members of a world for ``generation``, each with its role by rank. A member keeps
    its group.

    If roles are fixed, a member keeps its role, too, and a member that trains gets rank 0.
    """
    if observation.rules.fixed_roles:
        first = leading(members)[:1]
        ordered = sorted(members, key=lambda member: member not in first)
        return tuple(replace(each, group_rank=rank) for rank, each in enumerate(ordered))
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
    """Return a phrase that names the replicas."""
    return ", ".join(map(str, sorted(replicas)))


def span(seconds: float) -> str:
    """Return a phrase that states a number of seconds."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
