"""Members that announced that they leave, and agents that the coordinator releases."""

from brain.types.world import DesiredWorld
from launcher.coordinator.membership.facts import goal_of
from launcher.values.action import Release
from launcher.values.observation import AgentObserved, JobObserved, WorldObserved, WorldPhase


def notice(observation: JobObserved, world: WorldObserved) -> float | None:
    """Return the time, on the coordinator's clock in seconds, at which the first of the leaving
    members announced that it leaves; None if no member leaves.
    """
    members = {member.replica for member in world.members}
    going = (agent.leaving_since for agent in observation.agents if agent.replica in members)
    return min((at for at in going if at is not None), default=None)


def release(observation: JobObserved, *, leaving_only: bool) -> Release | None:
    """Return the action that releases agents outside a running world if they announced that they
    leave, or are no longer desired; None if there are no such agents.
    """
    desired, world = observation.desired, observation.world
    running = world is not None and world.phase is WorldPhase.RUNNING
    members = {m.replica for m in world.members} if world is not None and running else set()
    outside = [agent for agent in observation.agents if agent.replica not in members]
    going = [a.replica for a in outside if a.leaving_since is not None]
    if not leaving_only and desired is not None:
        going += _surplus(observation, desired, len(members), outside)
    return Release(tuple(sorted(going))) if going else None


def _surplus(
    observation: JobObserved, desired: DesiredWorld, members: int, outside: list[AgentObserved]
) -> list[int]:
    """Return agents beyond the largest size that may still be desired."""
    if observation.rules.spares or observation.rules.shape is not None:
        return []
    spare = [a.replica for a in outside if a.leaving_since is None]
    # One that was started for a later generation knows more than this desired world.
    old = {a.replica for a in outside if a.generation <= desired.generation}
    wanted = max(desired.replicas, goal_of(observation, desired)[0])
    surplus = members + len(spare) - wanted
    return [r for r in sorted(spare, reverse=True)[: max(surplus, 0)] if r in old]
