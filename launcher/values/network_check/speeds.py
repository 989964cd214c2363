"""The speed of each node, from all its tries, and the comparison with nodes of its kind."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from launcher.values.network_check.measurements import CheckRound, NodeMeasured, Usual, replicas_of

#: Standard errors that a difference must have.
SIGMAS = 5.0


@dataclass(frozen=True, slots=True)
class _Time:
    seconds: float
    error: float


@dataclass(slots=True)
class NodeTries:
    """The tries of one node, with partners and alone; a try is None if the node did not answer."""

    together: list[NodeMeasured | None] = field(default_factory=list)
    alone: list[NodeMeasured | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeSpeed:
    """Times of one node; its kind is empty if none was measured."""

    kind: str = ""
    compute: _Time = _Time(0.0, 0.0)
    exchange: _Time = _Time(0.0, 0.0)


def tries_of(rounds: Sequence[CheckRound]) -> dict[int, NodeTries]:
    """Return the tries of each replica."""
    found = {replica: NodeTries() for replica in replicas_of(rounds)}
    for each in rounds:
        for group in each.groups:
            for replica in group:
                tried = found[replica]
                (tried.together if len(group) > 1 else tried.alone).append(
                    each.measured.get(replica)
                )
    return found


def speed_of(tried: NodeTries) -> NodeSpeed:
    """Return a node's speed.

    The time of its arithmetic is the mean over its rounds, since partners do not affect it. The
    time of its exchanges is the time with the quickest partner, because a slow partner is not the
    node's fault. If exchanges with other partners took about as long, the result is their mean,
    which is more exact.
    """
    seen = [each for each in (*tried.together, *tried.alone) if each is not None and each.ok]
    if not seen:
        return NodeSpeed()
    compute = [_Time(m.compute_seconds, m.compute_error) for m in seen if m.compute_seconds > 0]
    exchange = [_Time(m.exchange_seconds, m.exchange_error) for m in seen if m.exchange_seconds > 0]
    best = min(exchange, key=lambda each: each.seconds, default=_Time(0.0, 0.0))
    limit = best.seconds + 2 / 3 * SIGMAS * best.error
    near = [each for each in exchange if each.seconds <= limit]
    return NodeSpeed(kind=seen[0].kind, compute=_pooled(compute), exchange=_pooled(near))


def references(
    speeds: Mapping[int, NodeSpeed], usual: Mapping[str, Usual]
) -> dict[str, tuple[_Time, _Time]]:
    """Return the times of good nodes by kind: the lower third of all times, or the usual time if
    the usual time is shorter.
    """
    kinds: dict[str, list[NodeSpeed]] = {}
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


def comparisons(
    speed: NodeSpeed, good: Mapping[str, tuple[_Time, _Time]]
) -> tuple[tuple[str, _Time, _Time], ...]:
    """Return each kind of work with a node's time and the time of good nodes of its kind."""
    if speed.kind not in good:
        return ()
    compute, exchange = good[speed.kind]
    return (("arithmetic", speed.compute, compute), ("exchanges", speed.exchange, exchange))


def longer(mine: _Time, usual: _Time, cut: float) -> bool:
    """True if a time is at least ``cut`` times as long as usual, and noise does not explain it."""
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


def _pooled(times: Sequence[_Time]) -> _Time:
    if not times:
        return _Time(0.0, 0.0)
    count = len(times)
    error = math.sqrt(sum(each.error**2 for each in times)) / count
    return _Time(sum(each.seconds for each in times) / count, error)
