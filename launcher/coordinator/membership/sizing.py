"""Comparison of the world's size with the desired size."""

from brain.types.roles import alike, roles_in
from launcher.coordinator.membership import changing
from launcher.coordinator.membership.facts import (
    attendance,
    chosen,
    fixed_roles,
    goal_of,
    lacking,
    resting,
    size_of,
    warming_until,
)
from launcher.coordinator.membership.leaving import release
from launcher.values.action import (
    STAY,
    Action,
    DiscardWorld,
    HoldWorld,
    Relabel,
    Swap,
    Unpark,
    WaitFor,
)
from launcher.values.observation import JobObserved, WorldObserved

#: A world that lost a replica and made no step since begins again for the replacement while it is
#: younger than so many seconds: only that part of its start is lost, where a later change costs a
#: second one.
_YOUNG_SECONDS = 5.0


def compare(observation: JobObserved, world: WorldObserved, now: float) -> Action:
    """Return the action that brings the world to its desired size, or keeps its size."""
    desired = observation.desired
    if desired is None:
        return _settled(observation, world)
    goal, planned = goal_of(observation, desired)
    size = size_of(observation, world.members)
    anew = planned and desired.anew
    divided = planned and not alike(roles_in(world.members), desired.roles)
    same = goal == size and not divided and not anew
    if planned and same and goal == desired.replicas:
        return Relabel(desired.generation, desired.replicas)
    if same:
        return _settled(observation, world)
    target = size_of(observation, chosen(observation, desired, world.members, goal))
    # Another division into groups needs newcomers even at the same size, and another server at any.
    if target < goal and (size < goal or (divided and (size == goal or target == 0))):
        until = max(observation.desired_since, world.since) + desired.patience_seconds
        until = max(until, warming_until(observation)) if target <= size else until
        if now < until:
            reason = lacking(observation, fixed_roles(observation, desired))
            reason = reason or attendance(observation, target, f"{goal}")
            return _wait(observation, world, reason, until)
        if target <= size:
            return _short(observation, world, planned, target, goal)
    if target == 0 or target == size < goal or (not planned and resting(observation, world)):
        return _settled(observation, world)
    free = not world.saves.known and now - world.since < observation.rules.free_seconds
    if not world.stepping and not free:
        healing = not planned and world.change is None and target > size
        if healing and now - world.since < _YOUNG_SECONDS:
            return Swap(planned=False)
        until = max(observation.desired_since, world.since) + observation.rules.first_step_seconds
        late = HoldWorld("the job has not made a step yet")
        return WaitFor("the world has not made a step yet", until) if now < until else late
    what = "restart" if anew else "resize"
    return changing.at_safe_point(observation, world, now, Swap(planned=planned, anew=anew), what)


def _wait(observation: JobObserved, world: WorldObserved, reason: str, until: float) -> Action:
    if world.parking is not None:
        return Unpark()
    return DiscardWorld(None) if world.preparing is not None else WaitFor(reason, until)


def _short(
    observation: JobObserved, world: WorldObserved, planned: bool, here: int, goal: int
) -> Action:
    if not planned or observation.desired is None:
        return _settled(observation, world)
    if lacks := lacking(observation, fixed_roles(observation, observation.desired)):
        return HoldWorld(f"only {lacks} have arrived, so the world cannot change")
    return HoldWorld(f"only {here} of {goal} replicas have arrived, so the world cannot grow")


def _settled(observation: JobObserved, world: WorldObserved) -> Action:
    """Return the action for a world as desired: agents outside it may go."""
    if world.parking is not None:
        return Unpark()
    if world.preparing is not None:
        return DiscardWorld(None)
    confirmed = world.stepping and world.change is None
    return (release(observation, leaving_only=False) if confirmed else None) or STAY
