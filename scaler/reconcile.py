"""Decides which replicas should exist: a pure function of (order, observation, clock).

The decision is level-triggered: no state is kept between calls, so a call after any crash continues
from the observed facts. Replica ids increase and are never reused. Replicas start before the world
grows, and end only after the coordinator has released them from the world.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from brain.errors import BadInput
from brain.types.job import FINISHED, Intent, JobState
from brain.types.resources import Resources
from brain.types.roles import WORKER, is_group
from brain.types.world import UNFIT, ReplicaExit, unfit_nodes
from brain.views import DesiredJob
from scaler.ports import NOTHING, Observed, ReplicaPhase, ReplicaSeen, document, mean, reserved

#: Lifetime, in seconds, below which a lost replica was never of use.
QUICK = timedelta(seconds=10)
#: Longest pause between attempts at a job whose replicas die quickly.
LONGEST_PAUSE = timedelta(seconds=60)
#: Time after which a finished job's agents, which should end by themselves, are asked to.
LINGER = timedelta(seconds=3)
#: The coordinator carries out a cancel; it counts as hung so many seconds after its replicas' time
#: to leave is over.
CANCEL_PATIENCE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The desired state of one job, and its age."""

    #: The desired state; None if the job is finished.
    wish: DesiredJob | None
    #: When this scaler first saw exactly this desired state.
    since: datetime
    #: Time at which Brain last confirmed it; None if never in this installation.
    confirmed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Record a replica for ``generation`` if it is not recorded yet, and start its agent."""

    replica: int
    generation: int
    #: Its group, or ``worker``; one that is written down already stays in its group.
    group: str = WORKER


@dataclass(frozen=True, slots=True)
class Reserve:
    """Let a running replica reserve its desired amounts."""

    replica: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask an agent to leave, or with ``force`` end it."""

    replica: int
    why: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Record the end of a replica whose agent can no longer record it."""

    replica: int
    exit: ReplicaExit
    detail: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, because no missing replica can be started, and report the reason to Brain."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Report to Brain that no replica can ever start, as a replica that failed at ``at``."""

    replica: int
    generation: int
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove unneeded files of a finished job without living replicas."""


Action = Start | Reserve | Stop | Close | Wait | GiveUp | Clear


def decide(order: Order, seen: Observed, now: datetime) -> tuple[Action, ...]:
    """Return the next actions, in order. It is safe to call this again after any crash."""
    gone = tuple(
        Close(
            replica.id,
            ReplicaExit.LOST,
            replica.detail or ("its agent disappeared without writing a reason"),
        )
        for replica in seen.replicas
        if replica.phase is ReplicaPhase.GONE
    )
    wish = order.wish
    if wish is None or wish.state in FINISHED:
        return (*gone, *_wind_up(seen, order.since, now))
    if wish.wish.intent is Intent.CANCEL and _passed(order.since, _cancel_patience(seen), now):
        return (
            *gone,
            *_end_all(
                seen, "the job was cancelled, but its coordinator did not end the job in time", now
            ),
        )
    return (*gone, *_towards(wish, order, seen, now))


def target(wish: DesiredJob) -> int:
    """Return the number of replicas that should be alive.

    The number is 0 for a job that is finished, waits or must stop.
    """
    idle = wish.state in FINISHED or wish.state in (JobState.QUEUED, JobState.SUSPENDED)
    return 0 if idle or wish.wish.intent is not Intent.RUN else wish.wish.replicas


def targets(wish: DesiredJob, seen: Observed) -> Counter[str]:
    """Return the number of replicas that should be alive in each group, and in each role that
    replicas have from their start.

    ``worker`` counts all other replicas.
    """
    wished = target(wish)
    groups = {name: size.replicas for name, size in seen.kinds(wish.wish.roles)}
    beside = Counter(groups if wished else {})
    return beside + Counter({WORKER: wished - beside.total()})


def _cancel_patience(seen: Observed) -> timedelta:
    longest = max((replica.leave_seconds for replica in seen.replicas if replica.alive), default=0)
    return CANCEL_PATIENCE + timedelta(seconds=longest)


def _towards(wish: DesiredJob, order: Order, seen: Observed, now: datetime) -> Iterator[Action]:
    alive = [replica for replica in seen.replicas if replica.alive]
    wished = targets(wish, seen)
    yield from _adjust(wish, alive)
    surplus = Counter(map(seen.kind, alive)) - wished
    if surplus:
        yield from _shrink(alive, surplus, seen, now)
    missing = wished - Counter(map(seen.kind, (*alive, *unconfirmed(order, seen, now))))
    if surplus and not missing:
        return
    if why := _no_more(wish, seen, alive):
        if wished:
            yield Wait(why)
        return
    intended = [replica for replica in alive if replica.phase is ReplicaPhase.INTENDED]
    if not missing and not intended:
        return
    if why := _unusable(wish):
        # Running replicas started from a usable document; they go on.
        yield Wait(why) if alive else _give_up(wish, why, order, seen)
        return
    if why := seen.lacking or _unfit(wish, seen, now) or _pause(wish, seen, now):
        yield Wait(why)
        return
    for replica in intended:
        yield Start(replica.id, replica.generation, seen.kind(replica))
    yield from _grow(wish, missing, seen, alive)


def _adjust(wish: DesiredJob, alive: list[ReplicaSeen]) -> Iterator[Reserve]:
    """Adjust replicas whose amounts differ from the desired ones; accelerators stay as they are."""
    for replica in alive:
        if not replica.adjustable or _unusable(wish):
            continue
        wanted = reserved(wish, replica.role)
        if replica.resources != replace(wanted, gpus=replica.resources.gpus):
            yield Reserve(replica.id)


def _unusable(wish: DesiredJob) -> str | None:
    try:
        document(wish)
    except BadInput as why:
        return f"no replica can be started from the job's document: {why}"
    return None


def _give_up(wish: DesiredJob, why: str, order: Order, seen: Observed) -> GiveUp | Wait:
    """Give up only once Brain knows how the other replicas ended: the last end decides about the
    job.
    """
    ends = [each.ended_at for each in seen.replicas]
    at = max([order.since, *(end for end in ends if end)])
    if ends and (None in ends or order.confirmed_at is None or at > order.confirmed_at):
        return Wait(why)
    return GiveUp(seen.next_id, wish.wish.generation, why, at)


def _grow(
    wish: DesiredJob, missing: Counter[str], seen: Observed, alive: list[ReplicaSeen]
) -> Iterator[Action]:
    free, held, has, started = seen.free, NOTHING, 0, 0
    by_rank = len(wish.wish.roles) > len(seen.kinds(wish.wish.roles))
    if by_rank:  # some reserve more than others, all together what their sum is
        held, has = sum((each.resources for each in alive), NOTHING), len(alive)
    for group in sorted(missing, key=lambda name: (name != WORKER, name)):
        need = mean(wish) if by_rank else reserved(wish, group)
        room = need.copies_within(free + held)
        fitting = missing[group] if room is None else min(max(0, room - has), missing[group])
        here = sum(seen.kind(replica) == group for replica in alive)
        quota = None if seen.admitted is None else seen.admitted.get(group, 0)
        if quota is not None:
            fitting = min(fitting, max(0, quota - here))
        first = seen.next_id + started
        for replica in range(first, first + fitting):
            yield Start(replica, wish.wish.generation, group)
        started += fitting
        free = free - need.times(fitting)
        if quota is not None and here + fitting >= quota and fitting < missing[group]:
            wished = targets(wish, seen)[group]
            yield Wait(f"the job's queue admits {quota} of {wished} replicas{_of(group)}")
        elif fitting < missing[group]:
            yield Wait(_no_room(wish, seen, group, missing[group] - fitting, need, free))


def _no_room(
    wish: DesiredJob, seen: Observed, group: str, count: int, need: Resources, free: Resources
) -> str:
    wished = targets(wish, seen)[group]
    return (
        f"{count} of {wished} replicas{_of(group)} wait for room: each needs {_said(need)}, and "
        f"{_said(free)} are free"
    )


def _of(group: str) -> str:
    kind = "group" if is_group(group) else "role"
    return "" if group == WORKER else f" of {kind} {group}"


def _shrink(
    alive: list[ReplicaSeen], surplus: Counter[str], seen: Observed, now: datetime
) -> Iterator[Action]:
    """Stop only replicas that the world does not name: the coordinator releases the others."""
    for group, count in sorted(surplus.items()):
        unnamed = [one for one in alive if one.id not in seen.named and seen.kind(one) == group]
        # A replica that never started costs nothing to give up; then the newest, which did least.
        unnamed.sort(key=lambda replica: (replica.phase is not ReplicaPhase.INTENDED, -replica.id))
        for replica in unnamed[:count]:
            yield from _end(replica, "more replicas run than desired", now)


def _no_more(wish: DesiredJob, seen: Observed, alive: list[ReplicaSeen]) -> str | None:
    """Return why no replica may start: the job ended and Brain has not heard of it yet."""
    for replica in reversed(seen.replicas):
        if replica.exit is ReplicaExit.SUCCEEDED:
            return f"replica {replica.id} finished the job"
        if replica.exit is ReplicaExit.FAILED and not alive and _recent(wish, replica):
            return f"replica {replica.id} ended the job: {replica.detail or 'no reason given'}"
    return None


def _recent(wish: DesiredJob, replica: ReplicaSeen) -> bool:
    """True if a plan came after a failure, which asks for another attempt."""
    return replica.generation >= wish.wish.generation


def unconfirmed(order: Order, seen: Observed, now: datetime) -> list[ReplicaSeen]:
    """Return the replicas that ended after Brain last confirmed this desired state; they are not
    replaced yet.

    Their coordinator may have followed a newer desired state. Once Brain confirms this desired
    state after their end, they count as missing.
    """
    told = (ReplicaExit.LEFT, ReplicaExit.CANCELLED, ReplicaExit.FAILED)
    return [
        replica
        for replica in seen.replicas
        if replica.exit in told
        and replica.ended_at is not None
        and replica.ended_at <= now
        and (order.confirmed_at is None or replica.ended_at > order.confirmed_at)
    ]


def _unfit(wish: DesiredJob, seen: Observed, now: datetime) -> str | None:
    """Return why the only node must get no replica: the job left the node, and goes on without it.

    If there are several nodes, the placement keeps replicas off those that the job left.
    """
    last = unfit_nodes(seen.replicas, now).get(None)
    if last is None or last.ended_at is None or not _recent(wish, last):
        return None
    until = last.ended_at + UNFIT
    return (
        f"replica {last.id} left this node, and none starts here before {until:%H:%M} UTC or "
        f"the next plan: {last.unfit}"
    )


def _pause(wish: DesiredJob, seen: Observed, now: datetime) -> str | None:
    """Return why the next attempt waits, if replicas keep dying as soon as they start."""
    quick = _quick_deaths(wish, seen, now)
    rounds = -(-len(quick) // max(1, target(wish)))
    if rounds < 2:
        return None
    newest = quick[0]
    cause = (
        f"{len(quick)} replicas in a row ended within {QUICK.seconds} s of their start; the "
        f"reason of the last one, replica {newest.id}: {newest.detail}"
    )
    if rounds > wish.wish.restart_limit:
        return f"{cause}; that exceeds the restart limit of {wish.wish.restart_limit}"
    pause = min(LONGEST_PAUSE, timedelta(seconds=2.0 ** (rounds - 2)))
    if _passed(newest.ended_at or now, pause, now):
        return None
    return f"{cause}; the next attempt follows in {pause.total_seconds():.0f} s"


def _quick_deaths(wish: DesiredJob, seen: Observed, now: datetime) -> list[ReplicaSeen]:
    """Return the newest lost replicas in a row, of this generation, that ended at once."""
    run: list[ReplicaSeen] = []
    for replica in reversed(seen.replicas):
        if replica.generation != wish.wish.generation:
            break
        life = (replica.ended_at or now) - replica.started_at
        if replica.alive and life < QUICK:
            continue
        if replica.alive or life >= QUICK or replica.exit not in (None, ReplicaExit.LOST):
            break
        run.append(replica)
    return run


def _wind_up(seen: Observed, since: datetime, now: datetime) -> Iterator[Action]:
    if not any(replica.alive for replica in seen.replicas):
        yield Clear()
    elif _passed(since, LINGER, now):
        yield from _end_all(seen, "the job is finished", now)


def _end_all(seen: Observed, why: str, now: datetime) -> Iterator[Action]:
    for replica in seen.replicas:
        if replica.alive:
            yield from _end(replica, why, now)


def _end(replica: ReplicaSeen, why: str, now: datetime) -> Iterator[Action]:
    if replica.phase is ReplicaPhase.INTENDED:
        yield Close(replica.id, ReplicaExit.CANCELLED, f"never started: {why}")
    elif replica.asked_at is None:
        yield Stop(replica.id, why)
    elif _passed(replica.asked_at, timedelta(seconds=replica.leave_seconds), now):
        yield Stop(
            replica.id,
            f"{why}; the replica did not stop within {replica.leave_seconds:.0f} s",
            force=True,
        )


def _passed(since: datetime, span: timedelta, now: datetime) -> bool:
    """True if ``span`` is over.

    A clock that was set back counts as over: the wait could be long.
    """
    return not since <= now < since + span


def _said(amount: Resources) -> str:
    parts = [f"{amount.cpu_millis / 1000:g} CPU"]
    if amount.memory_bytes:
        parts.append(f"{amount.memory_bytes / 2**30:.1f} GiB")
    if amount.gpus:
        parts.append(f"{amount.gpus} GPU")
    return ", ".join(parts)
