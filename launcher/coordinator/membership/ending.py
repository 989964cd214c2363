"""Reasons to end a world: the world itself has ended or failed, the owner requests it, or members
leave.
"""

from collections.abc import Sequence

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit
from launcher.coordinator.membership import changing, in_process, preparing
from launcher.coordinator.membership.facts import names
from launcher.coordinator.membership.leaving import notice
from launcher.values.action import (
    Action,
    End,
    ParkWorld,
    Revert,
    StopWorld,
    Swap,
    WaitFor,
)
from launcher.values.observation import JobObserved, WorldObserved


def trouble(observation: JobObserved, world: WorldObserved, now: float) -> Action | None:
    """Return the action for a world that has ended or failed; None if it continues."""
    if world.finished:
        return End(ReplicaExit.SUCCEEDED, 0, "all workers ended with exit code 0")
    if observation.hopeless:  # it was found out after the others had gone on
        return StopWorld(Cause.FAILURE)
    known = {agent.replica for agent in observation.agents}
    missing = [m.replica for m in world.members if m.replica not in known]
    if (
        world.port_taken
        or world.dispersed
        or any(replica in observation.gone for replica in missing)
    ):
        return _go_on(observation, world, now, Cause.MEMBERSHIP)
    if world.failed is not None:
        return _failed(observation, world, world.failed, now)
    if missing:
        return (
            _go_on(observation, world, now, Cause.MEMBERSHIP)
            if now >= observation.lease_until
            else WaitFor(f"replicas {names(missing)} have not come back", observation.lease_until)
        )
    if world.unbuilt and not world.in_process:
        return _unmet(observation, world, now)
    return (
        Revert("the script made a step without loading the checkpoint") if world.unloaded else None
    )


def intent(observation: JobObserved, world: WorldObserved, now: float) -> Action | None:
    """Return the action if the owner wants to stop the job, else None."""
    if observation.desired is None or observation.desired.intent is Intent.RUN:
        return None
    fresh = not world.stepping and now - world.since < observation.rules.first_step_seconds
    if observation.desired.intent is Intent.CANCEL or fresh:
        return StopWorld(None)
    return changing.at_safe_point(observation, world, now, StopWorld(None), "suspend")


def leave(observation: JobObserved, world: WorldObserved, now: float) -> Action | None:
    """Return the action for members that announced that they leave; None if no member leaves. Such
    members stay until a safe point, for a limited time.
    """
    since = notice(observation, world)
    if since is None:
        return None
    seconds = observation.rules.leave_seconds
    until = since + seconds
    if now < until and not _abandoned(observation):
        staying = in_process.change(observation, world, now, Swap(planned=False))
        if staying is not None:
            return _no_later(staying, until)
    if not world.saves.known or not world.stepping or now >= until or _abandoned(observation):
        return StopWorld(Cause.MEMBERSHIP)
    swap = Swap(planned=False)
    if world.parking is None:
        half = since + seconds / 2
        step = preparing.first(observation, world, now, swap) if now < half else None
        return _no_later(step, half) if step is not None else ParkWorld()
    if world.parking.reached:
        return swap
    until = min(until, world.parking.since + changing.patience_for(world.saves, observation.rules))
    late = now >= until
    return (
        StopWorld(Cause.MEMBERSHIP)
        if late
        else WaitFor("a member leaves at the next safe point", until)
    )


def hopeless(codes: Sequence[int], limit: int | None) -> bool:
    """True if another start would be useless: the last ``limit`` worlds of a job that never made a
    step failed with the same exit code.

    >>> hopeless([1, 1, 1], 3), hopeless([1, 2, 1], 3), hopeless([1, 1, 1], None)
    (True, False, False)
    """
    return limit is not None and len(codes) >= limit and len(set(codes[-limit:])) == 1


def _go_on(observation: JobObserved, world: WorldObserved, now: float, cause: Cause) -> Action:
    """Let the remaining workers go on without a restart if they can; else end all workers."""
    return in_process.heal(observation, world, now, cause) or StopWorld(cause)


def _failed(observation: JobObserved, world: WorldObserved, code: int, now: float) -> Action:
    if observation.desired is not None and observation.failures > observation.desired.restart_limit:
        reason = _too_often(observation.failures, observation.desired.restart_limit)
        return End(ReplicaExit.FAILED, code, reason)
    if hopeless(observation.barren, observation.rules.barren_worlds):
        reason = (
            f"{len(observation.barren)} worlds failed in the same way, and none of them has "
            "made a step"
        )
        return End(ReplicaExit.FAILED, code, reason)
    if world.change is not None and not world.stepping:
        return Revert(f"a worker exited with code {code} before the first step")
    return _go_on(observation, world, now, Cause.FAILURE)


def _too_often(failures: int, limit: int) -> str:
    """Return why a job ends: its worlds failed more often than its document allows.

    >>> _too_often(1, 0)
    'the workers failed once, but no restart is allowed'
    >>> _too_often(11, 10)
    'the workers failed 11 times, but only 10 restarts are allowed'
    """
    often = "once" if failures == 1 else f"{failures} times"
    allowed = {0: "no restart is", 1: "only 1 restart is"}.get(limit, f"only {limit} restarts are")
    return f"the workers failed {often}, but {allowed} allowed"


def _unmet(observation: JobObserved, world: WorldObserved, now: float) -> Action:
    """Return the action for workers that were started and could not meet.

    This counts as a failure, since it may happen again. A short wait first leaves time to notice a
    lost member, which would be the cause.
    """
    until = (world.torn_since or now) + in_process.CAUSE_SECONDS
    if now < until:
        return WaitFor("workers cannot reach each other", until)
    if observation.desired is not None and observation.failures > observation.desired.restart_limit:
        reason = _too_often(observation.failures, observation.desired.restart_limit)
        return End(ReplicaExit.FAILED, 1, reason)
    return StopWorld(Cause.FAILURE)


def _abandoned(observation: JobObserved) -> bool:
    """True if a person ends the job: all agents leave, and none would go on from a safe point."""
    return not observation.rules.last_waits and all(
        a.leaving_since is not None for a in observation.agents
    )


def _no_later(step: Action, until: float) -> Action:
    if isinstance(step, WaitFor):
        return WaitFor(step.reason, until if step.until is None else min(step.until, until))
    return step
