"""Decides about the next world while no worker runs."""

import math

from brain.types.job import Intent
from brain.types.world import Cause, DesiredWorld, ReplicaExit
from launcher.coordinator.membership.facts import (
    attendance,
    available,
    chosen,
    fixed_roles,
    goal_of,
    lacking,
    size_of,
    warming_until,
    with_roles,
)
from launcher.coordinator.membership.leaving import release
from launcher.coordinator.membership.taking_over import half_to_ask_for, may_form
from launcher.coordinator.topology import extent
from launcher.values.action import (
    Action,
    End,
    FormWorld,
    Heal,
    Switch,
    Take,
    WaitFor,
)
from launcher.values.observation import JobObserved, PreparationObserved, WorldObserved
from launcher.values.witness import WitnessObserved


def between(observation: JobObserved, now: float) -> Action:
    """Return the next action while no worker runs."""
    desired, world = observation.desired, observation.world
    if desired is None:
        return release(observation, leaving_only=True) or WaitFor(
            "the desired world is not known yet"
        )
    if desired.intent is not Intent.RUN:
        return _end(desired)
    if observation.hopeless and world is not None and world.ended_by is Cause.FAILURE:
        return End(ReplicaExit.FAILED, world.failed or 1, observation.hopeless)
    goal, _ = goal_of(observation, desired)
    before = () if world is None else world.members
    members = chosen(observation, desired, before, goal)
    size = size_of(observation, members)
    if size == 0 and (left := release(observation, leaving_only=True)):
        return left
    if size < goal and (waiting := _patience(observation, desired, now, goal, size)):
        return waiting
    if size == 0:
        return _too_few(observation, desired, now)
    if world is not None and not _may_form(observation, world, now):
        return _silence(observation, world, now)
    if size < goal and now < (until := settled_at(observation)):
        return WaitFor("more agents may come or go", until)
    generation, aim = _answers(observation, desired, size, goal)
    members = with_roles(observation, desired, generation, members)
    form = FormWorld(members, _cause(observation), generation, aim)
    preparing = None if world is None else world.preparing
    if preparing is not None and _holds(observation, preparing, form):
        return preparing.form
    return form


def _too_few(observation: JobObserved, desired: DesiredWorld, now: float) -> Action:
    need = max(desired.minimum, desired.unit)
    here = extent(available(observation), observation.rules.shape)
    lacks = lacking(observation, fixed_roles(observation, desired))
    too_few = f"{lacks} are here" if lacks else attendance(observation, here, f"at least {need}")
    if observation.world is not None or math.isinf(observation.rules.join_seconds):
        return WaitFor(too_few)
    until = observation.desired_since + observation.rules.join_seconds
    if now < until:
        return WaitFor(too_few, until)
    waited = f"after {observation.rules.join_seconds:g} s (--rdzv-conf join_timeout=)"
    return End(ReplicaExit.FAILED, 1, f"{too_few} {waited}")


def alone(observation: JobObserved, action: Action) -> Action:
    """Return the action that takes the last world's witness before ``action`` forms another world.

    Then the other half of the last world cannot also form a world. Return ``action`` if no witness
    has to be taken.
    """
    world, witness = observation.world, observation.witness
    if world is None or not witness.path or not isinstance(action, FormWorld | Heal | Switch):
        return action
    known = {agent.replica for agent in observation.agents}
    here = [member.replica for member in world.members if member.replica in known]
    if not here or witness.lost or witness.holder in known:
        return action
    if not witness.asked:
        return Take(here[0])
    return WaitFor(f"no other world begins yet: {_unanswered(witness)}")


def settled_at(observation: JobObserved) -> float:
    """Return the time, on the coordinator's clock in seconds, until which agents that come or go
    count as one change. The nodes of a rack fail one after another.
    """
    return observation.stirred_at + observation.rules.debounce_seconds


def _may_form(observation: JobObserved, world: WorldObserved, now: float) -> bool:
    last, known = _members_and_known(observation, world)
    over = now >= observation.lease_until
    return may_form(last, known, observation.gone, over, world.coordinated, observation.witness)


def _silence(observation: JobObserved, world: WorldObserved, now: float) -> Take | WaitFor:
    """Return the action if too few members of the last world are here: ask a witness that may
    decide.
    """
    waits, witness = "members of the last world may still run", observation.witness
    last, known = _members_and_known(observation, world)
    here = sum(replica in known for replica in last)
    silent = sum(replica not in known and replica not in observation.gone for replica in last)
    if now < observation.lease_until or here != silent:
        return WaitFor(waits, observation.lease_until)
    half = half_to_ask_for(last, known, observation.gone, world.coordinated, witness)
    if half is not None:
        return Take(half)
    return WaitFor(f"{waits}: {_undecided(witness)}", observation.lease_until)


def _undecided(witness: WitnessObserved) -> str:
    """Return why a half of the world waits, and what a person can do about it."""
    if witness.asked:
        return _unanswered(witness)
    why = witness.trouble or (
        "not all members have confirmed that they see it"
        if witness.path
        else "no checkpoint was seen"
    )
    return (
        "half of these members are here, without the coordinator, and no witness on the "
        f"checkpoint's storage decides which half continues ({why}). This half continues once it "
        "hears from another member. If the other hosts are off for good, end this agent and "
        "start the job again"
    )


def _unanswered(witness: WitnessObserved) -> str:
    silent = f"the witness {witness.path} has not answered yet"
    return witness.trouble or f"{silent}; check that this machine reaches the checkpoint's storage"


def _members_and_known(
    observation: JobObserved, world: WorldObserved
) -> tuple[list[int], set[int]]:
    return [m.replica for m in world.members], {agent.replica for agent in observation.agents}


def _holds(observation: JobObserved, preparing: PreparationObserved, form: FormWorld) -> bool:
    """True if the prepared world can be formed, even if an agent that came later stays out."""
    ready = {agent.replica for agent in available(observation)}
    same = (preparing.form.cause, preparing.form.generation, preparing.form.goal)
    return (
        preparing.ready
        and same == (form.cause, form.generation, form.goal)
        and len(preparing.form.members) <= len(form.members)
        and all(member.replica in ready for member in preparing.form.members)
    )


def _cause(observation: JobObserved) -> Cause:
    world = observation.world
    return Cause.START if world is None or world.ended_by is None else world.ended_by


def _answers(
    observation: JobObserved, desired: DesiredWorld, size: int, goal: int
) -> tuple[int, int]:
    """Return the generation that a new world of ``size`` answers, and its desired replicas."""
    world = observation.world
    if world is None or world.stopped:
        return desired.generation, desired.replicas
    if world.ended_by is Cause.REVERT and world.change is not None:
        return world.change.from_generation, world.change.from_goal
    if goal == desired.replicas and (size == goal or world.ended_by is Cause.PLAN):
        return desired.generation, desired.replicas
    return world.generation, world.goal


def _patience(
    observation: JobObserved, desired: DesiredWorld, now: float, goal: int, size: int
) -> WaitFor | None:
    """Return the wait of a first world for all desired replicas; None for healing, which takes the
    replicas that are here.
    """
    world = observation.world
    known = {agent.replica for agent in observation.agents}
    if world is not None and any(member.replica in known for member in world.members):
        return None
    alone = 0.0 if world is not None else observation.rules.alone_seconds
    until = max(
        observation.desired_since + max(desired.patience_seconds, alone), warming_until(observation)
    )
    return WaitFor(attendance(observation, size, f"{goal}"), until) if now < until else None


def _end(desired: DesiredWorld) -> End:
    if desired.intent is Intent.CANCEL:
        return End(ReplicaExit.CANCELLED, 0, "cancelled by its owner")
    return End(ReplicaExit.LEFT, 0, "suspended by its owner")
