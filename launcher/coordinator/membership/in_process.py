"""Changes that end no process, for worlds whose workers all have a session (``launcher.elastic``).

A planned change is built while the workers train, and waits for no safe point. If a world loses a
member, the remaining members continue immediately, and a planned change later restores the size. A
change that cannot be made in process, or does not finish, is made by a restart.
"""

from collections.abc import Sequence
from dataclasses import replace

from brain.types.job import Intent
from brain.types.world import Cause, Member
from launcher.coordinator.membership import preparing
from launcher.coordinator.membership.facts import available, goal_of, names
from launcher.coordinator.membership.taking_over import may_form
from launcher.coordinator.topology import choose
from launcher.values.action import (
    Action,
    DiscardWorld,
    FormWorld,
    Heal,
    PrepareWorld,
    StopWorld,
    Swap,
    Switch,
    WaitFor,
)
from launcher.values.observation import JobObserved, PreparationObserved, WorldObserved

#: Seconds in which the cause is seen of workers that cannot reach each other.
CAUSE_SECONDS = 1.0
#: Seconds that newcomers may take to ``join``; training goes on meanwhile.
_JOIN_SECONDS = 600.0
#: Seconds that members may take to where their next step begins: they may be in a long one, or in
#: an evaluation.
_GO_OVER_SECONDS = 300.0


def change(
    observation: JobObserved, world: WorldObserved, now: float, action: Action
) -> Action | None:
    """Return the next action for a planned change; None if it is made by a restart."""
    if not isinstance(action, Swap) or action.anew or not world.elastic:
        return None
    form = preparing.after(observation, world, action)
    if not isinstance(form, FormWorld) or not _stays(world, form.members):
        return None
    if world.broken:  # they ended with 0, else an earlier rule had applied: the training is over
        return WaitFor("some workers have ended, and the others will end soon")
    there = world.preparing
    if there is None:
        if now < observation.build_after:
            return WaitFor(
                "the new world's members could not connect; they try again", observation.build_after
            )
        waits = preparing.gathering(observation, form, now)
        return waits or (
            PrepareWorld(form, in_process=True) if observation.rules.prepare_seconds else None
        )
    if there.failed is not None:
        return None
    if not there.in_process or not _serves(observation, there, form):
        return DiscardWorld(None)
    if there.ready:
        return Switch(there.form)
    until = there.since + _JOIN_SECONDS
    if now >= until:
        return DiscardWorld(
            f"the next world's members could not connect within {_JOIN_SECONDS:.0f} s"
        )
    return WaitFor(
        f"a world of {len(there.form.members)} replicas forms while this one trains", until
    )


def heal(observation: JobObserved, world: WorldObserved, now: float, cause: Cause) -> Action | None:
    """Return the action by which the remaining members continue without a restart; None if they
    cannot.
    """
    desired = observation.desired
    if desired is None or desired.intent is not Intent.RUN:
        return None
    last = {member.replica for member in world.members}
    here = [a for a in observation.agents if a.replica in last and a.replica not in world.broken]
    known = {agent.replica for agent in observation.agents}
    lease_over = now >= observation.lease_until
    order = [member.replica for member in world.members]
    silent = last - known - observation.gone
    if world.was_elastic and silent and not lease_over:  # they look for a coordinator, too
        return WaitFor(f"replicas {names(silent)} have not come back", observation.lease_until)
    if not here or any(agent.replica not in world.sessions for agent in here):
        return None
    if not may_form(
        order, known, observation.gone, lease_over, world.coordinated, observation.witness
    ):
        return None
    goal, _ = goal_of(observation, desired)
    shape = observation.rules.shape
    members = choose(world.members, here, goal, desired.unit, desired.minimum, shape)
    return Heal(FormWorld(members, cause, world.generation, world.goal)) if members else None


def settling(observation: JobObserved, world: WorldObserved, now: float) -> Action | None:
    """Return the action while members change to the next world; None if they are not changing.

    Nothing else is decided meanwhile. If members do not arrive, the change is made by a restart.
    """
    if world.unbuilt:
        return StopWorld(Cause.MEMBERSHIP)
    if world.torn_since is not None:
        until = world.torn_since + CAUSE_SECONDS
        if now < until:
            return WaitFor("workers cannot reach each other", until)
        first = world.stepping and heal(observation, world, now, Cause.MEMBERSHIP)
        return first or StopWorld(Cause.MEMBERSHIP)
    if not world.in_process or world.formed:
        return None
    until = world.since + _GO_OVER_SECONDS
    late = StopWorld(Cause.MEMBERSHIP)
    return WaitFor("members move to the next world", until) if now < until else late


def _stays(world: WorldObserved, members: Sequence[Member]) -> bool:
    """True if a member that has the state is in the next world, too."""
    last = {member.replica for member in world.members}
    return any(m.replica in last and m.replica not in world.broken for m in members)


def _serves(observation: JobObserved, there: PreparationObserved, form: FormWorld) -> bool:
    """True if the world being built is still wanted, even if an agent that came later stays out."""
    ready = {agent.replica for agent in available(observation)}
    made = there.form
    return replace(made, members=form.members) == form and (
        made == form
        or (
            len(made.members) <= len(form.members)
            and all(member.replica in ready for member in made.members)
        )
    )
