"""Who is in the next world, and when it may form. SPINE of the launcher: pure.

``decide(sight, now)`` looks at everything a coordinator knows and returns one frozen action; the
coordinator carries it out, sees what came of it and asks again until the answer is to stay. No
action remembers anything: a coordinator that was killed at any moment is replaced by another one
which asks the same question. Times are seconds of the coordinator's monotonic clock.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence

from brain.types.job import Intent
from brain.types.world import Cause, Member, ReplicaExit, WorldWish
from launcher.worlds.sight import (
    STAY,
    Action,
    AgentSeen,
    End,
    Form,
    Hold,
    Park,
    Phase,
    Relabel,
    Release,
    Revert,
    Rules,
    Saves,
    Sight,
    Stop,
    Swap,
    Unpark,
    Wait,
    WorldSeen,
)


def decide(sight: Sight, now: float) -> Action:
    """Return the one thing to do now."""
    if sight.world is None or sight.world.phase is Phase.ENDED:
        return _between(sight, now)
    if sight.world.phase is Phase.STOPPING:
        return STAY
    return (
        _trouble(sight, sight.world, now)
        or _intent(sight, sight.world, now)
        or _leaving(sight, sight.world, now)
        or (_release(sight, leaving_only=True) if sight.world.formed else None)
        or _size(sight, sight.world, now)
    )


def fit(available: int, goal: int, unit: int, minimum: int) -> int:
    """Return the largest multiple of ``unit`` up to both; 0 where it is below ``minimum``.

    >>> fit(31, 32, 4, 4), fit(3, 8, 4, 4), fit(5, 2, 1, 1)
    (28, 0, 2)
    """
    size = min(available, goal) // unit * unit
    return size if size >= max(minimum, 1) else 0


def may_form(
    last: Collection[int], reachable: Collection[int], gone: Collection[int], lease_expired: bool
) -> bool:
    """Whether a world may be formed although members of the last one are not heard of.

    With more than half of them; or with proof that all others are gone; or once the lease of the
    silent ones ran out, unless they are more than half themselves: they may have formed a world.
    """
    here = sum(replica in reachable for replica in last)
    silent = sum(replica not in reachable and replica not in gone for replica in last)
    return 2 * here > len(last) or silent == 0 or (lease_expired and 2 * silent <= len(last))


def next_epoch(known: Iterable[int]) -> int:
    """Return the epoch after all that anybody has heard of."""
    return max(known, default=0) + 1


def arrange(
    previous: Sequence[Member], agents: Iterable[AgentSeen], size: int
) -> tuple[Member, ...]:
    """Choose and order ``size`` members with as little disturbance as can be.

    Survivors keep their relative order and joiners take the holes of what was lost, those on the
    same node first; what must go are joiners, then the highest replica ids.
    """
    here = {agent.replica: agent for agent in agents}
    survivors = sorted(m.replica for m in previous if m.replica in here)[:size]
    joiners = sorted(here.keys() - {m.replica for m in previous}, key=lambda r: _place(here[r]))
    joiners = joiners[: size - len(survivors)]
    order: list[int] = []
    for member in previous:
        if member.replica in survivors:
            order.append(member.replica)
        elif member.replica not in here and joiners:
            same = (r for r in joiners if here[r].node == member.node)
            order.append(joiners.pop(joiners.index(next(same, joiners[0]))))
    return tuple(_member(here[replica], rank) for rank, replica in enumerate(order + joiners))


def _between(sight: Sight, now: float) -> Action:
    """No worker runs: what is formed next?"""
    wish, world = sight.wish, sight.world
    if wish is None:
        return _release(sight, leaving_only=True) or Wait("the wish is not known yet")
    if wish.intent is not Intent.RUN:
        return _end(wish)
    here = _available(sight)
    goal, _ = _goal(sight, wish)
    size = fit(len(here), goal, wish.unit, wish.minimum)
    before = () if world is None else world.members
    last = [member.replica for member in before]
    known = [agent.replica for agent in sight.agents]
    if size == 0 and (left := _release(sight, leaving_only=True)):
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


def _trouble(sight: Sight, world: WorldSeen, now: float) -> Action | None:
    """What ends a world by itself."""
    if world.finished:
        return End(ReplicaExit.SUCCEEDED, 0, "all workers ended with 0")
    known = {agent.replica for agent in sight.agents}
    missing = [m.replica for m in world.members if m.replica not in known]
    if world.dispersed or any(replica in sight.gone for replica in missing):
        return Stop(Cause.MEMBERSHIP)
    if world.failed is not None:
        if sight.wish is not None and sight.failures > sight.wish.restart_limit:
            reason = f"{sight.failures} worlds failed, {sight.wish.restart_limit} may"
            return End(ReplicaExit.FAILED, world.failed, reason)
        if world.change is not None and not world.stepping:
            return Revert(f"a worker ended with {world.failed} before the first step")
        return Stop(Cause.FAILURE)
    if missing:
        return (
            Stop(Cause.MEMBERSHIP)
            if now >= sight.lease_until
            else Wait(f"replicas {_names(missing)} have not come back", sight.lease_until)
        )
    return Revert("it stepped without loading the checkpoint") if world.unloaded else None


def _intent(sight: Sight, world: WorldSeen, now: float) -> Action | None:
    """The owner wants it to stop."""
    if sight.wish is None or sight.wish.intent is Intent.RUN:
        return None
    fresh = not world.stepping and now - world.since < sight.rules.first_step_seconds
    if sight.wish.intent is Intent.CANCEL or fresh:
        return Stop(None)
    return _at_safe_point(sight, world, now, Stop(None), "suspend")


def _leaving(sight: Sight, world: WorldSeen, now: float) -> Action | None:
    """Members that gave notice are kept for a safe point, but not for long."""
    members = {member.replica for member in world.members}
    going = (agent.leaving_since for agent in sight.agents if agent.replica in members)
    since = [at for at in going if at is not None]
    if not since:
        return None
    until = min(since) + sight.rules.leave_seconds
    if not world.saves.known or not world.stepping or now >= until:
        return Stop(Cause.MEMBERSHIP)
    if world.parking is None:
        return Park()
    if world.parking.reached:
        return Swap(planned=False)
    return Wait("a member leaves at the next safe point", until)


def _size(sight: Sight, world: WorldSeen, now: float) -> Action:
    """Compare the wished size with the world's."""
    wish = sight.wish
    if wish is None:
        return _settled(sight, world)
    goal, planned = _goal(sight, wish)
    size = len(world.members)
    if planned and goal == wish.replicas == size:
        return Relabel(wish.generation, wish.replicas)
    if goal == size:
        return _settled(sight, world)
    here = len(_available(sight))
    target = fit(here, goal, wish.unit, wish.minimum)
    if target < goal and size < goal:
        until = max(sight.wished_since, world.since) + wish.patience_seconds
        if now < until:
            short = Wait(f"{here} of {goal} replicas are here", until)
            return Unpark() if world.parking else short
        if target <= size:
            return _short(sight, world, planned, here, goal)
    if target in (0, size) or (not planned and _resting(sight, world)):
        return _settled(sight, world)
    free = not world.saves.known and now - world.since < sight.rules.free_seconds
    if not world.stepping and not free:
        until = max(sight.wished_since, world.since) + sight.rules.first_step_seconds
        late = Hold("I will not resize this job: it has not made a step yet")
        return Wait("the world has not stepped yet", until) if now < until else late
    return _at_safe_point(sight, world, now, Swap(planned=planned), "resize")


def _short(sight: Sight, world: WorldSeen, planned: bool, here: int, goal: int) -> Action:
    if planned:
        return Hold(f"only {here} of {goal} replicas came, which is no larger world")
    return _settled(sight, world)


def _at_safe_point(sight: Sight, world: WorldSeen, now: float, action: Action, what: str) -> Action:
    """Park, wait for the safe point, then do ``action``; or hold with the reason."""
    saves, age = world.saves, now - world.since
    if not saves.known:
        if age < sight.rules.free_seconds:
            return action
        if _resting(sight, world):
            return STAY
        return Hold(
            f"I will not {what} this job: no checkpoint was seen or declared, "
            f"it would lose {_minutes(age)} of work"
        )
    if world.parking is None:
        return STAY if _resting(sight, world) else Park()
    if world.parking.reached:
        return action
    limit = _patience_for(saves, sight.rules)
    until = world.parking.since + limit
    if now < until:
        return Wait("a safe point", until)
    return Hold(f"I will not {what} this job now: no checkpoint was completed within {limit:.0f} s")


def _patience_for(saves: Saves, rules: Rules) -> float:
    """Seconds to wait for a safe point."""
    if rules.signal_seconds is not None:
        return rules.signal_seconds
    interval = saves.interval_seconds
    return rules.safe_point_seconds if interval is None else max(2 * interval, 1.0)


def _settled(sight: Sight, world: WorldSeen) -> Action:
    """The world is as it should be; whoever has no part in it may go."""
    if world.parking is not None:
        return Unpark()
    confirmed = world.stepping and world.change is None
    return (_release(sight, leaving_only=False) if confirmed else None) or STAY


def _release(sight: Sight, *, leaving_only: bool) -> Release | None:
    """Name agents outside a running world that left, or that nobody wishes any more."""
    wish, world = sight.wish, sight.world
    running = world is not None and world.phase is Phase.RUNNING
    members = {m.replica for m in world.members} if world is not None and running else set()
    outside = [agent for agent in sight.agents if agent.replica not in members]
    going = [a.replica for a in outside if a.leaving_since is not None]
    if not leaving_only and wish is not None:
        spare = [a.replica for a in outside if a.leaving_since is None]
        # One that was started for a later generation knows more than this wish.
        old = {a.replica for a in outside if a.generation <= wish.generation}
        surplus = len(members) + len(spare) - _wished(sight, wish)
        going += [r for r in sorted(spare, reverse=True)[: max(surplus, 0)] if r in old]
    return Release(tuple(sorted(going))) if going else None


def _goal(sight: Sight, wish: WorldWish) -> tuple[int, bool]:
    """Return the replicas to strive for now, and whether that is a change by plan."""
    world = sight.world
    if world is not None and world.ended_by is Cause.REVERT and world.change is not None:
        return world.change.from_goal, False
    if world is None or world.stopped or wish.generation == world.generation:
        return wish.replicas, False
    blocked = sight.held is not None and sight.held.generation == wish.generation
    return (world.goal, False) if blocked or wish.frozen else (wish.replicas, True)


def _wished(sight: Sight, wish: WorldWish) -> int:
    """Replicas that somebody may still want: of the wish, or of the world that stands."""
    return max(wish.replicas, _goal(sight, wish)[0])


def _resting(sight: Sight, world: WorldSeen) -> bool:
    """Whether this was given up, and nothing was saved since."""
    held, wish = sight.held, sight.wish
    if held is None or wish is None or held.generation != wish.generation:
        return False
    return held.saves == world.saves.count


def _available(sight: Sight) -> list[AgentSeen]:
    return [agent for agent in sight.agents if agent.ready and agent.leaving_since is None]


def _end(wish: WorldWish) -> End:
    if wish.intent is Intent.CANCEL:
        return End(ReplicaExit.CANCELLED, 0, "cancelled by its owner")
    return End(ReplicaExit.LEFT, 0, "suspended by its owner")


def _place(agent: AgentSeen) -> tuple[float, list[tuple[int, int, str]], int]:
    """Sort key: the rank asked for, node names with their numbers as numbers, the replica."""
    parts = re.findall(r"\d+|\D+", agent.node)
    names = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
    return math.inf if agent.rank is None else agent.rank, names, agent.replica


def _member(agent: AgentSeen, rank: int) -> Member:
    return Member(
        replica=agent.replica,
        group_rank=rank,
        processes=agent.processes,
        node=agent.node,
        address=agent.address,
    )


def _names(replicas: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(replicas)))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
