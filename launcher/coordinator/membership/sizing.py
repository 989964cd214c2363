"""The wished size beside the world's."""

from launcher.coordinator.membership import changing
from launcher.coordinator.membership.facts import (
    chosen,
    counted,
    goal_of,
    resting,
    size_of,
    warming_until,
)
from launcher.coordinator.membership.leaving import release
from launcher.values.observation import (
    STAY,
    Action,
    Discard,
    Hold,
    Relabel,
    Sight,
    Swap,
    Unpark,
    Wait,
    WorldSeen,
)


def compare(sight: Sight, world: WorldSeen, now: float) -> Action:
    """Compare the wished size with the world's."""
    wish = sight.wish
    if wish is None:
        return _settled(sight, world)
    goal, planned = goal_of(sight, wish)
    size = size_of(sight, world.members)
    if planned and goal == wish.replicas == size:
        return Relabel(wish.generation, wish.replicas)
    if goal == size:
        return _settled(sight, world)
    target = size_of(sight, chosen(sight, wish, world.members, goal))
    if target < goal and size < goal:
        until = max(sight.wished_since, world.since) + wish.patience_seconds
        until = max(until, warming_until(sight)) if target <= size else until
        if now < until:
            return _wait(sight, world, f"{target} of {goal} {counted(sight)} are here", until)
        if target <= size:
            return _short(sight, world, planned, target, goal)
    if target in (0, size) or (not planned and resting(sight, world)):
        return _settled(sight, world)
    free = not world.saves.known and now - world.since < sight.rules.free_seconds
    if not world.stepping and not free:
        until = max(sight.wished_since, world.since) + sight.rules.first_step_seconds
        late = Hold("I will not resize this job: it has not made a step yet")
        return Wait("the world has not stepped yet", until) if now < until else late
    return changing.at_safe_point(sight, world, now, Swap(planned=planned), "resize")


def _wait(sight: Sight, world: WorldSeen, reason: str, until: float) -> Action:
    if world.parking is not None:
        return Unpark()
    return Discard(None) if world.preparing is not None else Wait(reason, until)


def _short(sight: Sight, world: WorldSeen, planned: bool, here: int, goal: int) -> Action:
    if planned:
        return Hold(f"only {here} of {goal} replicas came, which is no larger world")
    return _settled(sight, world)


def _settled(sight: Sight, world: WorldSeen) -> Action:
    """The world is as it should be; whoever has no part in it may go."""
    if world.parking is not None:
        return Unpark()
    if world.preparing is not None:
        return Discard(None)
    confirmed = world.stepping and world.change is None
    return (release(sight, leaving_only=False) if confirmed else None) or STAY
