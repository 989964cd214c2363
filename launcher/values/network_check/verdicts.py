"""Decides which nodes failed or are slow, and updates the usual times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from launcher.values.network_check.measurements import CheckRound, Usual
from launcher.values.network_check.speeds import (
    NodeTries,
    comparisons,
    longer,
    references,
    speed_of,
    tries_of,
)

#: Share of the excess ``ratio - 1`` from which on a node counts as slow.
CUT = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Nodes that failed or are slow, each with a reason; all other nodes passed."""

    failed: Mapping[int, str] = field(default_factory=dict)
    slow: Mapping[int, str] = field(default_factory=dict)
    #: Slow nodes' times, as multiples of the usual time.
    times: Mapping[int, float] = field(default_factory=dict)


def verdicts(rounds: Sequence[CheckRound], usual: Mapping[str, Usual], ratio: float) -> Verdicts:
    """Return the nodes that failed and the nodes that are slow.

    A node is slow if it takes ``ratio`` times as long as other nodes of its kind, or as nodes of
    its kind usually take in this cluster. The usual times show slow nodes even if most of the
    present nodes are slow.
    """
    tries = tries_of(rounds)
    failed = {replica: why for replica, tried in tries.items() if (why := _failure(tried))}
    failed |= _parted(rounds[0], tries, failed)
    speeds = {replica: speed_of(tried) for replica, tried in tries.items() if replica not in failed}
    good = references(speeds, usual)
    cut = 1 + CUT * (ratio - 1)
    slow: dict[int, str] = {}
    times: dict[int, float] = {}
    for replica, speed in speeds.items():
        for what, mine, other in comparisons(speed, good):
            if replica not in slow and longer(mine, other, cut):
                times[replica] = mine.seconds / other.seconds
                slow[replica] = _told(what, mine.seconds, times[replica])
    return Verdicts(failed=failed, slow=slow, times=times)


def remembered(rounds: Sequence[CheckRound], usual: Mapping[str, Usual]) -> dict[str, Usual]:
    """Return the updated usual times.

    They move towards the lower third of the present times: at once if this third is much faster
    than the usual times, soon if it is faster, and slowly if it is slower.
    """
    found = dict(usual)
    speeds = {replica: speed_of(tried) for replica, tried in tries_of(rounds).items()}
    for kind, (compute, exchange) in references(speeds, {}).items():
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


def _failure(tried: NodeTries) -> str:
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
    first: CheckRound, tries: Mapping[int, NodeTries], failed: Mapping[int, str]
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


def _only_together(tried: NodeTries) -> bool:
    ok = any(each is not None and each.ok for each in tried.together)
    return bool(tried.together and tried.alone) and not ok


def _told(what: str, seconds: float, times: float) -> str:
    shown = f"{times:.1f}" if times >= 2 else f"{times:.2f}"
    return f"its {what} took {seconds:.3g} s, {shown} times as long as usual"


def _moved(before: float, now: float) -> float:
    if not before or not now:
        return before or now
    share = 1.0 if now < 0.9 * before else 0.25 if now < before else 0.02
    return before + share * (now - before)
