"""Uses the step times of ranks to find nodes that delay the other nodes, and decides if leaving out
a slow node pays. Pure.

In a synchronous job all ranks have the same step time, so the step time does not show which rank is
slow. A rank's *own* time shows it: the step time minus the wait for the other ranks' gradients. The
slow rank does not wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brain.types.resources import NodeName

#: Sampled waits below which a rank's own time is not known well enough.
_SAMPLES = 8
#: Number of looks in a row at which a node must be slow.
LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """One rank's times over several steps."""

    rank: int
    replica: int
    node: NodeName
    step_seconds: float
    #: Mean wait for the exchange of gradients on sampled steps, and how many those were.
    wait_seconds: float
    samples: int

    @property
    def own_seconds(self) -> float:
        """The rank's own time per step: the step time minus the wait for gradients."""
        return max(0.0, self.step_seconds - self.wait_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSuspect:
    """A replica that delays the other replicas."""

    replica: int
    node: NodeName
    #: Its slowest rank's own time against the usual one; 1.3 is 30 % longer.
    ratio: float
    usual_seconds: float


def slowest(times: Sequence[RankTime], ratio: float) -> SlowSuspect | None:
    """Return the replica that is ``ratio`` times slower than usual, or None.

    The usual time is the lower median of the replicas' own times. A replica's own time is the own
    time of its slowest rank.
    """
    known = [each for each in times if each.samples >= _SAMPLES and each.step_seconds > 0]
    if len(known) < len(times) or not known:
        return None
    worst: dict[int, RankTime] = {}
    for each in known:
        if each.replica not in worst or each.own_seconds > worst[each.replica].own_seconds:
            worst[each.replica] = each
    if len(worst) < 2:
        return None
    ordered = sorted(worst.values(), key=lambda each: each.own_seconds)
    usual = ordered[(len(ordered) - 1) // 2].own_seconds
    last = ordered[-1]
    if usual <= 0 or last.own_seconds < ratio * usual:
        return None
    return SlowSuspect(
        replica=last.replica,
        node=last.node,
        ratio=last.own_seconds / usual,
        usual_seconds=usual,
    )


def pays(
    slow: SlowSuspect, *, replicas: int, left: int, restart_seconds: float, horizon_seconds: float
) -> bool:
    """True if the job ends sooner without a slow replica, even after a restart.

    Throughput is the number of replicas divided by the step time. The function compares
    ``replicas`` at the slow pace with ``left`` at the usual pace. ``horizon_seconds`` is the time
    for which the job would run without the change.

    >>> slow = SlowSuspect(replica=3, node="n", ratio=1.5, usual_seconds=1.0)
    >>> pays(slow, replicas=8, left=7, restart_seconds=60, horizon_seconds=3600)
    True
    >>> pays(slow, replicas=2, left=1, restart_seconds=60, horizon_seconds=3600)
    False
    """
    if left <= 0:
        return False
    now, then = replicas / slow.ratio, float(left)
    return horizon_seconds * (1 - now / then) > restart_seconds


def again(before: Mapping[int, int], slow: SlowSuspect | None) -> dict[int, int]:
    """Return how many checks in a row have found the same replica slow. Pure."""
    return {} if slow is None else {slow.replica: before.get(slow.replica, 0) + 1}
