"""The next world, once no worker runs."""

import math

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit, WorldWish
from launcher.coordinator.membership.facts import (
    available,
    chosen,
    counted,
    goal_of,
    size_of,
    warming_until,
)
from launcher.coordinator.membership.leaving import release
from launcher.coordinator.membership.taking_over import half_to_ask_for, may_form
from launcher.coordinator.topology import extent
from launcher.values.observation import (
    Action,
    End,
    Form,
    Heal,
    Preparing,
    Sight,
    Switch,
    Take,
    Wait,
    WorldSeen,
)
from launcher.values.witness import WitnessSeen


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
    if world is not None and not _may_form(sight, world, now):
        return _silence(sight, world, now)
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


def alone(sight: Sight, action: Action) -> Action:
    """Take the witness of the last world before another one begins: no half that misses that can
    then form one as well."""
    world, witness = sight.world, sight.witness
    if world is None or not witness.path or not isinstance(action, Form | Heal | Switch):
        return action
    known = {agent.replica for agent in sight.agents}
    here = [member.replica for member in world.members if member.replica in known]
    if not here or witness.lost or witness.holder in known:
        return action
    if not witness.asked:
        return Take(here[0])
    return Wait(f"no other world begins yet: {_unanswered(witness)}")


def settled_at(sight: Sight) -> float:
    """When what happened to agents may be taken for one change: a rack goes down in pieces."""
    return sight.stirred_at + sight.rules.debounce_seconds


def _may_form(sight: Sight, world: WorldSeen, now: float) -> bool:
    last, known = _members_and_known(sight, world)
    over = now >= sight.lease_until
    return may_form(last, known, sight.gone, over, world.coordinated, sight.witness)


def _silence(sight: Sight, world: WorldSeen, now: float) -> Take | Wait:
    """Too few of the last world are here: the witness is asked, where one may decide."""
    waits, witness = "members of the last world may still run", sight.witness
    last, known = _members_and_known(sight, world)
    here = sum(replica in known for replica in last)
    silent = sum(replica not in known and replica not in sight.gone for replica in last)
    if now < sight.lease_until or here != silent:
        return Wait(waits, sight.lease_until)
    half = half_to_ask_for(last, known, sight.gone, world.coordinated, witness)
    if half is not None:
        return Take(half)
    return Wait(f"{waits}: {_undecided(witness)}", sight.lease_until)


def _undecided(witness: WitnessSeen) -> str:
    """Why a half waits, and what a person can do about it."""
    if witness.asked:
        return _unanswered(witness)
    why = witness.trouble or (
        "not all members said that they see one" if witness.path else "no checkpoint was seen"
    )
    return (
        "half of them are here, without who coordinated, and no witness on the storage of the "
        f"checkpoint decides ({why}); they go on once another one is heard. If the others are off "
        "for good, end this agent and start the job again"
    )


def _unanswered(witness: WitnessSeen) -> str:
    silent = f"the witness {witness.path} has not answered yet"
    return witness.trouble or f"{silent}; see whether its storage is reached from here"


def _members_and_known(sight: Sight, world: WorldSeen) -> tuple[list[int], set[int]]:
    return [m.replica for m in world.members], {agent.replica for agent in sight.agents}


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
