"""The next world, once no worker runs."""

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit, WorldWish
from launcher.membership.arranging import arrange, fit
from launcher.membership.facts import available, goal_of
from launcher.membership.leaving import release
from launcher.membership.taking_over import may_form
from launcher.worlds.sight import Action, End, Form, Sight, Wait


def between(sight: Sight, now: float) -> Action:
    """No worker runs: what is formed next?"""
    wish, world = sight.wish, sight.world
    if wish is None:
        return release(sight, leaving_only=True) or Wait("the wish is not known yet")
    if wish.intent is not Intent.RUN:
        return _end(wish)
    here = available(sight)
    goal, _ = goal_of(sight, wish)
    size = fit(len(here), goal, wish.unit, wish.minimum)
    before = () if world is None else world.members
    last = [member.replica for member in before]
    known = {agent.replica for agent in sight.agents}
    if size == 0 and (left := release(sight, leaving_only=True)):
        return left
    if size < goal and (waiting := _patience(sight, wish, now, goal, len(here))):
        return waiting
    if size == 0:
        need = max(wish.minimum, wish.unit)
        return Wait(f"{len(here)} of at least {need} replicas are here")
    if not may_form(last, known, sight.gone, now >= sight.lease_until):
        return Wait("members of the last world may still run", sight.lease_until)
    cause = Cause.START if world is None or world.ended_by is None else world.ended_by
    return Form(arrange(before, here, size), cause, *_answers(sight, wish, size, goal))


def _answers(sight: Sight, wish: WorldWish, size: int, goal: int) -> tuple[int, int]:
    """Return the generation that a new world of ``size`` answers, and what that one wished."""
    world = sight.world
    if world is None or world.stopped:
        return wish.generation, wish.replicas
    if world.ended_by is Cause.REVERT and world.change is not None:
        return world.change.from_generation, world.change.from_goal
    if goal == wish.replicas and (size == goal or world.ended_by is Cause.PLAN):
        return wish.generation, wish.replicas
    return world.generation, world.goal


def _patience(sight: Sight, wish: WorldWish, now: float, goal: int, here: int) -> Wait | None:
    """A first world waits for all that were wished; healing takes what there is."""
    world = sight.world
    known = {agent.replica for agent in sight.agents}
    if world is not None and any(member.replica in known for member in world.members):
        return None
    until = sight.wished_since + wish.patience_seconds
    return Wait(f"{here} of {goal} replicas are here", until) if now < until else None


def _end(wish: WorldWish) -> End:
    if wish.intent is Intent.CANCEL:
        return End(ReplicaExit.CANCELLED, 0, "cancelled by its owner")
    return End(ReplicaExit.LEFT, 0, "suspended by its owner")
