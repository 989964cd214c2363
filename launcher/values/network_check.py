"""Pairs nodes for the network check, and judges the measurements. Pure.

Each node's arithmetic is timed separately, so two nodes are enough to find the slow one. If a pair
fails, each of its nodes is tested again with a partner that passed. A node that fails again is the
cause, and its first partner is not. Two rounds are enough; a third is needed if more nodes are
suspected than have passed, or if there are three nodes in total.

Times are medians with their standard errors. A node is slow if it takes ``ratio`` times as long as
usual, an excess of ``ratio`` - 1. The threshold is ``CUT`` times that excess, so that noise does
not hide a slow node. The excess must also be at least ``SIGMAS`` standard errors, so that noise
does not make a node slow.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Group = tuple[int, ...]

#: Shares of the excess ``ratio - 1`` from which on a node is tried again, and counts as slow.
SUSPECT, CUT = 0.4, 0.6
#: Standard errors that a difference must have.
SIGMAS = 5.0
ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMeasured:
    """Measurements of one node in one round."""

    ok: bool
    #: The error; empty if there was none.
    reason: str = ""
    #: Seconds of its own arithmetic, and of exchanges with its group; 0 = not measured.
    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0
    #: Standard errors of both, in seconds; 0 = not known.
    compute_error: float = 0.0
    exchange_error: float = 0.0
    #: Only nodes of one kind are compared: the accelerator's name, ``cpu``.
    kind: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRound:
    """The groups of replicas that one round of the network check tests, and their results by
    replica.
    """

    groups: tuple[Group, ...]
    measured: Mapping[int, NodeMeasured]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """Usual times of a healthy node of one kind; 0 = never measured."""

    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWork:
    """The amount of work in one check, from the options ``check_edge``, ``check_mebibytes`` and
    ``check_repeats`` of ``--rdzv-conf``.
    """

    #: Rows of the square matrices that are multiplied; 0 to suit the device.
    edge: int = 0
    #: Exchanged at a time.
    mebibytes: int = 16
    #: Timings that a median is taken of.
    repeats: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTerms:
    """Options of the node check."""

    #: True to print the measurements, for ``--comm-perf-test``.
    print_all: bool = False
    exclude_stragglers: bool = False
    ratio: float = 1.15
    #: For one round: import torch, measure, give up.
    seconds: float = 120.0
    work: CheckWork = CheckWork()
    #: File of usual times, one for all jobs of this state directory.
    memory: Path
    #: Says something that a person shall see.
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Nodes that failed or are slow, each with a reason; all other nodes passed."""

    failed: Mapping[int, str] = field(default_factory=dict)
    slow: Mapping[int, str] = field(default_factory=dict)
    #: Slow nodes' times, as multiples of the usual time.
    times: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Time:
    seconds: float
    error: float


def first_round(replicas: Sequence[int]) -> tuple[Group, ...]:
    """Return neighbours in pairs; an odd node joins the last pair, or is alone if there is no
    other.

    >>> first_round([0, 1, 2, 3, 4]), first_round([0, 1, 2])
    (((0, 1), (2, 3, 4)), ((0, 1), (2,)))
    """
    pairs = [tuple(replicas[at : at + 2]) for at in range(0, len(replicas), 2)]
    if len(pairs) > 2 and len(pairs[-1]) == 1:
        pairs[-2:] = [pairs[-2] + pairs[-1]]
    return tuple(pairs)


def next_round(
    rounds: Sequence[CheckRound], usual: Mapping[str, Usual], ratio: float
) -> tuple[Group, ...]:
    """Pair each suspect with a node that passed; suspects without such a partner are alone. Empty
    if no node is suspected, or another round would show nothing new.
    """
    everybody = _everybody(rounds)
    if len(rounds) >= ROUNDS or len(everybody) == 1:
        return ()
    suspected = _suspects(rounds, usual, ratio)
    if len(everybody) == 3:
        return _of_three(rounds, everybody, suspected, usual)
    well = [each for each in everybody if each not in suspected]
    again = [each for each in everybody if each in suspected]
    if len(rounds) > 1:
        # Tried alone for want of a partner: there may be one by now.
        alone = {group[0] for group in rounds[-1].groups if len(group) == 1}
        again = [each for each in again if each in alone]
    if not again or (len(rounds) > 1 and not well):
        return ()
    return tuple(
        (one, well[place]) if place < len(well) else (one,) for place, one in enumerate(again)
    )


def verdicts(rounds: Sequence[CheckRound], usual: Mapping[str, Usual], ratio: float) -> Verdicts:
    """Return the nodes that failed and the nodes that are slow.

    A node is slow if it takes ``ratio`` times as long as others of its kind, or as nodes of its
    kind usually take in this cluster. The usual times show slow nodes even if most of the present
    nodes are slow.
    """
    tries = _tries(rounds)
    failed = {replica: why for replica, tried in tries.items() if (why := _failure(tried))}
    failed |= _parted(rounds[0], tries, failed)
    speeds = {replica: _speed(tried) for replica, tried in tries.items() if replica not in failed}
    good = _references(speeds, usual)
    cut = 1 + CUT * (ratio - 1)
    slow: dict[int, str] = {}
    times: dict[int, float] = {}
    for replica, speed in speeds.items():
        for what, mine, other in _pairs(speed, good):
            if replica not in slow and _longer(mine, other, cut):
                times[replica] = mine.seconds / other.seconds
                slow[replica] = _told(what, mine.seconds, times[replica])
    return Verdicts(failed=failed, slow=slow, times=times)


def remembered(rounds: Sequence[CheckRound], usual: Mapping[str, Usual]) -> dict[str, Usual]:
    """Return the updated usual times.

    They move towards the lower third of the present times: at once if this third is much faster
    than the usual times, soon if it is faster, and slowly if it is slower.
    """
    found = dict(usual)
    speeds = {replica: _speed(tried) for replica, tried in _tries(rounds).items()}
    for kind, (compute, exchange) in _references(speeds, {}).items():
        before = usual.get(kind, Usual())
        found[kind] = Usual(
            compute_seconds=_moved(before.compute_seconds, compute.seconds),
            exchange_seconds=_moved(before.exchange_seconds, exchange.seconds),
        )
    return found


def spared(
    slow: Mapping[int, object],
    replicas: Sequence[int],
    *,
    unit: int,
    minimum: int,
    times: Mapping[int, float] | None = None,
) -> tuple[int, ...]:
    """Return the slow nodes to leave out: all of them, or none.

    All are left out if the other nodes are enough, and are faster without the slow nodes (all nodes
    wait for the slowest).

    >>> spared({3: "slow"}, [0, 1, 2, 3], unit=1, minimum=2)
    (3,)
    >>> spared({1: "slow"}, [0, 1], unit=2, minimum=2), spared({1: ""}, [0, 1], unit=1, minimum=1,
    ...     times={1: 1.15})
    ((), ())
    """
    rest = len(replicas) - len(slow)
    usable = rest // unit * unit
    if not usable or usable < minimum:
        return ()
    together = len(replicas) // unit * unit / max([1.0, *(times or {}).values()])
    return tuple(sorted(slow)) if not times or usable > together else ()


# --- suspicion -------------------------------------------------------------------------------


def _of_three(
    rounds: Sequence[CheckRound],
    nodes: Sequence[int],
    suspected: set[int],
    usual: Mapping[str, Usual],
) -> tuple[Group, ...]:
    """Return the next of three pairs; the third is tried only if two leave the question open."""
    one, two, three = nodes
    if len(rounds) == 1:
        return ((two, three), (one,))
    kinds = {_speed(tried).kind for tried in _tries(rounds).values()}
    known = all(usual.get(kind, Usual()).exchange_seconds for kind in kinds)
    return () if known and not suspected else ((one, three), (two,))


def _suspects(rounds: Sequence[CheckRound], usual: Mapping[str, Usual], ratio: float) -> set[int]:
    """Return the replicas that took long, and all replicas of a group whose newest try failed.

    A replica's newest try is its newest with a partner, else its newest alone.
    """
    tries = _tries(rounds)
    speeds = {replica: _speed(tried) for replica, tried in tries.items()}
    good, cut = _references(speeds, usual), 1 + SUSPECT * (ratio - 1)
    found = {
        replica
        for replica, speed in speeds.items()
        if any(_longer(mine, other, cut) for _, mine, other in _pairs(speed, good))
    }
    newest: dict[int, tuple[Group, CheckRound]] = {}
    for of in rounds:
        for group in of.groups:
            for replica in group:
                if len(group) > 1 or not tries[replica].together:
                    newest[replica] = (group, of)
    for replica, (group, of) in newest.items():
        seen = [of.measured.get(each) for each in group]
        if any(each is None or not each.ok for each in seen):
            found.add(replica)
    return found


# --- verdicts --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tried:
    """The tries of one node, with partners and alone; None if the node did not answer."""

    together: list[NodeMeasured | None] = field(default_factory=list)
    alone: list[NodeMeasured | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Speed:
    kind: str = ""
    compute: _Time = _Time(0.0, 0.0)
    exchange: _Time = _Time(0.0, 0.0)


def _tries(rounds: Sequence[CheckRound]) -> dict[int, _Tried]:
    found = {replica: _Tried() for replica in _everybody(rounds)}
    for each in rounds:
        for group in each.groups:
            for replica in group:
                tried = found[replica]
                (tried.together if len(group) > 1 else tried.alone).append(
                    each.measured.get(replica)
                )
    return found


def _failure(tried: _Tried) -> str:
    """Return why a node is to blame, because it failed alone or with its partners; empty if it is
    not.
    """
    seen = [*tried.together, *tried.alone]
    told = [each.reason for each in seen if each is not None and not each.ok]
    why = (told or ["the node did not answer"])[-1] or "the check failed"
    if any(each is not None and each.ok for each in tried.together):
        return ""
    if any(each is None or not each.ok for each in tried.alone):
        return why
    # Alone it was fine: then it needs two partners that it failed with.
    return why if len(tried.together) > 1 or (tried.together and not tried.alone) else ""


def _parted(
    first: CheckRound, tries: Mapping[int, _Tried], failed: Mapping[int, str]
) -> dict[int, str]:
    """Return failures of groups whose members are fine alone: their connection is broken, on an
    unknown side. The first member of each group stays."""
    found: dict[int, str] = {}
    for group in first.groups:
        left = [each for each in group if each not in failed and _only_together(tries[each])]
        if len(left) > 1:
            why = (
                f"its connection with replica {left[0]} failed, but each of the two nodes "
                "passed the check alone"
            )
            found |= dict.fromkeys(left[1:], why)
    return found


def _only_together(tried: _Tried) -> bool:
    ok = any(each is not None and each.ok for each in tried.together)
    return bool(tried.together and tried.alone) and not ok


def _told(what: str, seconds: float, times: float) -> str:
    shown = f"{times:.1f}" if times >= 2 else f"{times:.2f}"
    return f"its {what} took {seconds:.3g} s, {shown} times as long as usual"


def _speed(tried: _Tried) -> _Speed:
    """Return a node's speed. Its arithmetic is the mean over its rounds, since partners do not
    affect it. Its exchanges are those with the quickest partner, since a slow partner is not its
    fault; if others took about as long, their mean is more exact."""
    seen = [each for each in (*tried.together, *tried.alone) if each is not None and each.ok]
    if not seen:
        return _Speed()
    compute = [_Time(m.compute_seconds, m.compute_error) for m in seen if m.compute_seconds > 0]
    exchange = [_Time(m.exchange_seconds, m.exchange_error) for m in seen if m.exchange_seconds > 0]
    best = min(exchange, key=lambda each: each.seconds, default=_Time(0.0, 0.0))
    limit = best.seconds + 2 / 3 * SIGMAS * best.error
    near = [each for each in exchange if each.seconds <= limit]
    return _Speed(kind=seen[0].kind, compute=_pooled(compute), exchange=_pooled(near))


def _references(
    speeds: Mapping[int, _Speed], usual: Mapping[str, Usual]
) -> dict[str, tuple[_Time, _Time]]:
    """Return the times of good nodes by kind: the lower third of all, or the usual time if less."""
    kinds: dict[str, list[_Speed]] = {}
    for speed in speeds.values():
        if speed.kind:
            kinds.setdefault(speed.kind, []).append(speed)
    return {
        kind: (
            _lesser(
                _middle(each.compute for each in alike), usual.get(kind, Usual()).compute_seconds
            ),
            _lesser(
                _middle(each.exchange for each in alike), usual.get(kind, Usual()).exchange_seconds
            ),
        )
        for kind, alike in kinds.items()
    }


def _pairs(
    speed: _Speed, good: Mapping[str, tuple[_Time, _Time]]
) -> tuple[tuple[str, _Time, _Time], ...]:
    if speed.kind not in good:
        return ()
    compute, exchange = good[speed.kind]
    return (("arithmetic", speed.compute, compute), ("exchanges", speed.exchange, exchange))


def _longer(mine: _Time, usual: _Time, cut: float) -> bool:
    if usual.seconds <= 0 or mine.seconds < cut * usual.seconds:
        return False
    return mine.seconds - usual.seconds >= SIGMAS * math.hypot(mine.error, usual.error)


def _lesser(middle: _Time, ever: float) -> _Time:
    return _Time(ever, 0.0) if ever and (not middle.seconds or ever < middle.seconds) else middle


def _middle(times: Iterable[_Time]) -> _Time:
    """Return the lower third: of two nodes the faster, of a half-slow cluster a fast one, of five
    nodes one that was not in the slow node's group of three."""
    ordered = sorted((each for each in times if each.seconds > 0), key=lambda each: each.seconds)
    return ordered[(len(ordered) - 1) // 3] if ordered else _Time(0.0, 0.0)


def _moved(before: float, now: float) -> float:
    if not before or not now:
        return before or now
    share = 1.0 if now < 0.9 * before else 0.25 if now < before else 0.02
    return before + share * (now - before)


def _pooled(times: Sequence[_Time]) -> _Time:
    if not times:
        return _Time(0.0, 0.0)
    count = len(times)
    error = math.sqrt(sum(each.error**2 for each in times)) / count
    return _Time(sum(each.seconds for each in times) / count, error)


def _everybody(rounds: Sequence[CheckRound]) -> list[int]:
    return [replica for group in rounds[0].groups for replica in group]
