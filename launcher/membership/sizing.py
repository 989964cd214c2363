"""The wished size beside the world's."""

from launcher.membership import changing
from launcher.membership.arranging import fit
from launcher.membership.facts import available, goal_of, resting
from launcher.membership.leaving import release
from launcher.worlds.sight import (
    STAY,
    Action,
    Hold,
    Relabel,
    Sight,
    Swap,
    Unpark,
    Wait,
    WorldSeen,
)


def size(sight: Sight, world: WorldSeen, now: float) -> Action:
    """Compare the wished size with the world's."""
    wish = sight.wish
    if wish is None:
        return _settled(sight, world)
    goal, planned = goal_of(sight, wish)
    size = len(world.members)
    if planned and goal == wish.replicas == size:
        return Relabel(wish.generation, wish.replicas)
    if goal == size:
        return _settled(sight, world)
    here = len(available(sight))
    target = fit(here, goal, wish.unit, wish.minimum)
    if target < goal and size < goal:
        until = max(sight.wished_since, world.since) + wish.patience_seconds
        if now < until:
            short = Wait(f"{here} of {goal} replicas are here", until)
            return Unpark() if world.parking else short
        if target <= size:
            return _short(sight, world, planned, here, goal)
    if target in (0, size) or (not planned and resting(sight, world)):
        return _settled(sight, world)
    free = not world.saves.known and now - world.since < sight.rules.free_seconds
    if not world.stepping and not free:
        until = max(sight.wished_since, world.since) + sight.rules.first_step_seconds
        late = Hold("I will not resize this job: it has not made a step yet")
        return Wait("the world has not stepped yet", until) if now < until else late
    return changing.at_safe_point(sight, world, now, Swap(planned=planned), "resize")


def _short(sight: Sight, world: WorldSeen, planned: bool, here: int, goal: int) -> Action:
    if planned:
        return Hold(f"only {here} of {goal} replicas came, which is no larger world")
    return _settled(sight, world)


def _settled(sight: Sight, world: WorldSeen) -> Action:
    """The world is as it should be; whoever has no part in it may go."""
    if world.parking is not None:
        return Unpark()
    confirmed = world.stepping and world.change is None
    return (release(sight, leaving_only=False) if confirmed else None) or STAY
