"""Members that gave notice, and agents that are let go."""

from brain.types.world import WorldWish
from launcher.coordinator.membership.facts import goal_of
from launcher.values.observation import AgentSeen, Phase, Release, Sight, WorldSeen


def notice(sight: Sight, world: WorldSeen) -> float | None:
    """Return when the first of the members that leave said so; None where none does."""
    members = {member.replica for member in world.members}
    going = (agent.leaving_since for agent in sight.agents if agent.replica in members)
    return min((at for at in going if at is not None), default=None)


def release(sight: Sight, *, leaving_only: bool) -> Release | None:
    """Name agents outside a running world that left, or that nobody wishes any more."""
    wish, world = sight.wish, sight.world
    running = world is not None and world.phase is Phase.RUNNING
    members = {m.replica for m in world.members} if world is not None and running else set()
    outside = [agent for agent in sight.agents if agent.replica not in members]
    going = [a.replica for a in outside if a.leaving_since is not None]
    if not leaving_only and wish is not None:
        going += _surplus(sight, wish, len(members), outside)
    return Release(tuple(sorted(going))) if going else None


def _surplus(sight: Sight, wish: WorldWish, members: int, outside: list[AgentSeen]) -> list[int]:
    """Agents that are more than anybody may still want."""
    if sight.rules.spares or sight.rules.shape is not None:
        return []
    spare = [a.replica for a in outside if a.leaving_since is None]
    # One that was started for a later generation knows more than this wish.
    old = {a.replica for a in outside if a.generation <= wish.generation}
    wanted = max(wish.replicas, goal_of(sight, wish)[0])
    surplus = members + len(spare) - wanted
    return [r for r in sorted(spare, reverse=True)[: max(surplus, 0)] if r in old]
