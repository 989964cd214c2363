"""What ends a world by itself, and what its owner wants."""

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit
from launcher.membership import changing
from launcher.membership.facts import names
from launcher.worlds.sight import Action, End, Revert, Sight, Stop, Wait, WorldSeen


def trouble(sight: Sight, world: WorldSeen, now: float) -> Action | None:
    """What ends a world by itself."""
    if world.finished:
        return End(ReplicaExit.SUCCEEDED, 0, "all workers ended with 0")
    known = {agent.replica for agent in sight.agents}
    missing = [m.replica for m in world.members if m.replica not in known]
    if world.dispersed or any(replica in sight.gone for replica in missing):
        return Stop(Cause.MEMBERSHIP)
    if world.failed is not None:
        return _failed(sight, world, world.failed)
    if missing:
        return (
            Stop(Cause.MEMBERSHIP)
            if now >= sight.lease_until
            else Wait(f"replicas {names(missing)} have not come back", sight.lease_until)
        )
    return Revert("it stepped without loading the checkpoint") if world.unloaded else None


def _failed(sight: Sight, world: WorldSeen, code: int) -> Action:
    if sight.wish is not None and sight.failures > sight.wish.restart_limit:
        reason = f"{sight.failures} worlds failed, {sight.wish.restart_limit} may"
        return End(ReplicaExit.FAILED, code, reason)
    if world.change is not None and not world.stepping:
        return Revert(f"a worker ended with {code} before the first step")
    return Stop(Cause.FAILURE)


def intent(sight: Sight, world: WorldSeen, now: float) -> Action | None:
    """The owner wants it to stop."""
    if sight.wish is None or sight.wish.intent is Intent.RUN:
        return None
    fresh = not world.stepping and now - world.since < sight.rules.first_step_seconds
    if sight.wish.intent is Intent.CANCEL or fresh:
        return Stop(None)
    return changing.at_safe_point(sight, world, now, Stop(None), "suspend")
