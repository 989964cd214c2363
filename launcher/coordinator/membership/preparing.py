"""Prepares the next world while the present one trains.

Only changes that can wait are prepared: growth, shrinking, an announced leave, a replacement. The
next world's workers run up to the point at which they would meet, and wait there. A prepared world
is used only if it is exactly the world to form; otherwise a world with a higher epoch is formed
without preparation.
"""

import math
from dataclasses import replace

from brain.types.roles import ranked, roles_in
from brain.types.world import Cause
from launcher.coordinator.membership import forming
from launcher.coordinator.membership.facts import goal_of, size_of, warming_until
from launcher.values.action import (
    Action,
    DiscardWorld,
    FormWorld,
    PrepareWorld,
    Swap,
    WaitFor,
)
from launcher.values.observation import JobObserved, PreparationObserved, WorldObserved, WorldPhase

#: Seconds after the last joiner became ready that another one which is here is waited for.
_GATHER_SECONDS = 1.0


def first(
    observation: JobObserved, world: WorldObserved, now: float, action: Action
) -> Action | None:
    """Before workers are asked to pause at a safe point, return the action that prepares the
    change, or the action that waits; None if neither is needed.
    """
    if (
        not isinstance(action, Swap)
        or action.anew
        or not isinstance(form := after(observation, world, action), FormWorld)
    ):
        return None
    preparing = world.preparing
    if preparing is not None and (preparing.form != form or _of_another_kind(preparing)):
        return DiscardWorld(None)
    if preparing is None and (waits := gathering(observation, form, now)):
        return waits
    # The ports of servers are in use while this world trains.
    if observation.rules.prepare_seconds == 0 or ranked(roles_in(form.members)):
        return None
    if preparing is None:
        return PrepareWorld(form)
    if preparing.ready or preparing.failed is not None:
        return None
    until = preparing.since + observation.rules.prepare_seconds
    if now >= until:
        return DiscardWorld(
            "the next world's workers were not ready within "
            f"{observation.rules.prepare_seconds:.0f} s"
        )
    return WaitFor(f"workers of a world of {len(form.members)} replicas get ready", until)


def _of_another_kind(preparing: PreparationObserved) -> bool:
    """True if the preparation began in process, but some worker cannot change so any more."""
    return preparing.in_process and preparing.failed is None


def after(observation: JobObserved, world: WorldObserved, swap: Swap) -> Action:
    """Return the action that would follow if this world ended now and no more agents were
    awaited.
    """
    cause = Cause.PLAN if swap.planned else Cause.MEMBERSHIP
    ended = replace(world, phase=WorldPhase.ENDED, ended_by=cause, parking=None)
    return forming.between(replace(observation, world=ended), math.inf)


def gathering(observation: JobObserved, form: FormWorld, now: float) -> WaitFor | None:
    """Return the action that waits for agents that join at nearly the same time, so that they cause
    one change; None if the goal is reached or the wait is over.
    """
    assert observation.desired is not None
    goal, _ = goal_of(observation, observation.desired)
    if size_of(observation, form.members) >= goal:
        return None
    warm = min(observation.stirred_at + _GATHER_SECONDS, warming_until(observation))
    until = max(forming.settled_at(observation), warm)
    return WaitFor("more agents may come or go", until) if now < until else None
