"""Members that gave notice, and agents that are let go."""

from brain.types.world import Cause, WorldWish
from launcher.membership.facts import goal_of
from launcher.worlds.sight import Action, Park, Phase, Release, Sight, Stop, Swap, Wait, WorldSeen


def leaving(sight: Sight, world: WorldSeen, now: float) -> Action | None:
    """Members that gave notice are kept for a safe point, but not for long."""
    members = {member.replica for member in world.members}
    going = (agent.leaving_since for agent in sight.agents if agent.replica in members)
    since = [at for at in going if at is not None]
    if not since:
        return None
    until = min(since) + sight.rules.leave_seconds
    if not world.saves.known or not world.stepping or now >= until:
        return Stop(Cause.MEMBERSHIP)
    if world.parking is None:
        return Park()
    if world.parking.reached:
        return Swap(planned=False)
    return Wait("a member leaves at the next safe point", until)


def release(sight: Sight, *, leaving_only: bool) -> Release | None:
    """Name agents outside a running world that left, or that nobody wishes any more."""
    wish, world = sight.wish, sight.world
    running = world is not None and world.phase is Phase.RUNNING
    members = {m.replica for m in world.members} if world is not None and running else set()
    outside = [agent for agent in sight.agents if agent.replica not in members]
    going = [a.replica for a in outside if a.leaving_since is not None]
    if not leaving_only and wish is not None:
        spare = [a.replica for a in outside if a.leaving_since is None]
        # One that was started for a later generation knows more than this wish.
        old = {a.replica for a in outside if a.generation <= wish.generation}
        surplus = len(members) + len(spare) - _wished(sight, wish)
        going += [r for r in sorted(spare, reverse=True)[: max(surplus, 0)] if r in old]
    return Release(tuple(sorted(going))) if going else None


def _wished(sight: Sight, wish: WorldWish) -> int:
    """Replicas that somebody may still want: of the wish, or of the world that stands."""
    return max(wish.replicas, goal_of(sight, wish)[0])
