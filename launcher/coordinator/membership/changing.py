"""Planned changes: the next world is prepared, and starts at a safe point or is abandoned."""

from launcher.coordinator.membership import in_process, preparing
from launcher.coordinator.membership.facts import resting, span
from launcher.values.action import (
    STAY,
    Action,
    HoldWorld,
    ParkWorld,
    WaitFor,
)
from launcher.values.observation import JobObserved, Saves, WorldObserved, WorldRules

#: A machine may hesitate that long, however often a script saves.
_HICCUP_SECONDS = 10.0


def at_safe_point(
    observation: JobObserved, world: WorldObserved, now: float, action: Action, what: str
) -> Action:
    """Return the action that comes next before ``action`` can be carried out at a safe point:
    prepare the next world, park the workers, wait for the safe point, or ``action`` itself.

    A parked worker pauses between two steps. If no safe point comes before the time limit, return a
    hold with the reason. A change that ends no process needs no safe point.
    """
    if staying := in_process.change(observation, world, now, action):
        return staying
    saves, age = world.saves, now - world.since
    if not saves.known:
        if age < observation.rules.free_seconds:
            return preparing.first(observation, world, now, action) or action
        if resting(observation, world):
            return STAY
        return HoldWorld(
            f"no checkpoint was seen or declared, so a {what} would lose {span(age)} of work"
        )
    if world.parking is None:
        if resting(observation, world):
            return STAY
        return preparing.first(observation, world, now, action) or ParkWorld()
    if world.parking.reached:
        return action
    limit = patience_for(saves, observation.rules)
    until = world.parking.since + limit
    if now < until:
        return WaitFor("a safe point", until)
    return HoldWorld(f"no checkpoint was completed within {limit:.0f} s, so no safe point came")


def patience_for(saves: Saves, rules: WorldRules) -> float:
    """Seconds to wait for a safe point."""
    if rules.signal_seconds is not None:
        return rules.signal_seconds
    interval = saves.interval_seconds
    return rules.safe_point_seconds if interval is None else max(2 * interval, _HICCUP_SECONDS)
