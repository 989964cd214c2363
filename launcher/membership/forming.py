"""The next world, once no worker runs."""

import math
from collections.abc import Sequence

from brain.types.job import Intent
from brain.types.world import Cause, Member, ReplicaExit, WorldWish
from launcher.membership.facts import available, chosen, counted, goal_of, size_of, warming_until
from launcher.membership.leaving import release
from launcher.membership.taking_over import may_form
from launcher.topology import extent
from launcher.worlds.sight import Action, End, Form, Preparing, Sight, Wait


def between(sight: Sight, now: float) -> Action:
    """No worker runs: what is formed next?"""
    wish, world = sight.wish, sight.world
    if wish is None:
        return release(sight, leaving_only=True) or Wait("the wish is not known yet")
    if wish.intent is not Intent.RUN:
        return _end(wish)
    if sight.hopeless and world is not None and world.ended_by is Cause.FAILURE:
        return End(ReplicaExit.FAILED, world.failed or 1, sight.hopeless)
    goal, _ = goal_of(sight, wish)
    before = () if world is None else world.members
    members = chosen(sight, wish, before, goal)
    size = size_of(sight, members)
    if size == 0 and (left := release(sight, leaving_only=True)):
        return left
    if size < goal and (waiting := _patience(sight, wish, now, goal, size)):
        return waiting
    if size == 0:
        return _too_few(sight, wish, now)
    if not _may_form(sight, before, now):
        return Wait("members of the last world may still run", sight.lease_until)
    if size < goal and now < (until := settled_at(sight)):
        return Wait("others may come or go as well", until)
    form = Form(members, _cause(sight), *_answers(sight, wish, size, goal))
    preparing = None if world is None else world.preparing
    if preparing is not None and _holds(sight, preparing, form):
        return preparing.form
    return form


def _too_few(sight: Sight, wish: WorldWish, now: float) -> Action:
    need = max(wish.minimum, wish.unit)
    here = extent(available(sight), sight.rules.shape)
    too_few = f"{here} of at least {need} {counted(sight)} are here"
    if sight.world is not None or math.isinf(sight.rules.join_seconds):
        return Wait(too_few)
    until = sight.wished_since + sight.rules.join_seconds
    if now < until:
        return Wait(too_few, until)
    waited = f"after {sight.rules.join_seconds:g} s (--rdzv-conf join_timeout=)"
    return End(ReplicaExit.FAILED, 1, f"{too_few} {waited}")


def settled_at(sight: Sight) -> float:
    """When what happened to agents may be taken for one change: a rack goes down in pieces."""
    return sight.stirred_at + sight.rules.debounce_seconds


def _may_form(sight: Sight, before: Sequence[Member], now: float) -> bool:
    last = [member.replica for member in before]
    known = {agent.replica for agent in sight.agents}
    coordinated = None if sight.world is None else sight.world.coordinated
    return may_form(last, known, sight.gone, now >= sight.lease_until, coordinated)


def _holds(sight: Sight, preparing: Preparing, form: Form) -> bool:
    """Whether what was prepared can be formed, even where a later joiner might have come, too."""
    ready = {agent.replica for agent in available(sight)}
    same = (preparing.form.cause, preparing.form.generation, preparing.form.goal)
    return (
        preparing.ready
        and same == (form.cause, form.generation, form.goal)
        and len(preparing.form.members) <= len(form.members)
        and all(member.replica in ready for member in preparing.form.members)
    )


def _cause(sight: Sight) -> Cause:
    world = sight.world
    return Cause.START if world is None or world.ended_by is None else world.ended_by


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


def _patience(sight: Sight, wish: WorldWish, now: float, goal: int, size: int) -> Wait | None:
    """A first world waits for all that were wished; healing takes what there is."""
    world = sight.world
    known = {agent.replica for agent in sight.agents}
    if world is not None and any(member.replica in known for member in world.members):
        return None
    alone = 0.0 if world is not None else sight.rules.alone_seconds
    until = max(sight.wished_since + max(wish.patience_seconds, alone), warming_until(sight))
    here = f"{size} of {goal} {counted(sight)} are here"
    return Wait(here, until) if now < until else None


def _end(wish: WorldWish) -> End:
    if wish.intent is Intent.CANCEL:
        return End(ReplicaExit.CANCELLED, 0, "cancelled by its owner")
    return End(ReplicaExit.LEFT, 0, "suspended by its owner")
