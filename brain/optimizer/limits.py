"""Hard limits that the owner sets: a deadline or a budget."""

import math
from collections.abc import Sequence
from dataclasses import replace

from brain.optimizer.situation import Situation, Untenable, deviation
from brain.typeset import duration

#: 80 % quantile of the standard normal: the certainty with which a deadline must be kept.
_Z80 = 0.84
#: Share of time that a smaller size must have to spare before a deadline.
_MARGIN = 0.1


def within_limits(situation: Situation) -> Situation:
    """Keep only sizes within the owner's deadline and budget.

    The cost of a size is the cost of the rest of the work, including a restart. If the present size
    breaks a limit that another size keeps, Brain chooses the other size, whatever the restart
    costs.
    """
    if situation.limits is None:
        return situation
    broken = {size: _broken(situation, size) for size in _known(situation)}
    if all(broken.values()):
        return _least_bad(situation, list(broken))
    narrowed, why = situation.without_each(_broken), broken.get(situation.replicas)
    return replace(narrowed, untenable=Untenable(why=why) if why else None)


def within_limits_beside_others(situation: Situation) -> Situation:
    """Apply ``within_limits`` to a job in a pool; ignore a limit that every size breaks.

    If no size keeps both the deadline and the budget, only the limit that some size keeps applies.
    """
    every = situation.limits
    if every is None:
        return situation
    budget, deadline = replace(every, deadline_seconds=None), replace(every, replica_seconds=None)
    for limits in (every, budget, deadline):
        asked = replace(situation, limits=limits)
        if not all(_broken(asked, size) for size in _known(asked)):
            return replace(within_limits(asked), limits=every)
    return situation


def _broken(situation: Situation, size: int) -> str | None:
    """Return the limit that a size breaks, and by how much; None if the size keeps both."""
    limits, predicted = situation.limits, situation.predict(size)
    assert limits is not None, "called only for a job with limits"
    change_seconds = situation.restart_seconds if size != situation.replicas else 0.0
    expected = limits.work_seconds * situation.useful(situation.replicas) / situation.useful(size)
    late = expected * math.exp(_Z80 * deviation(predicted)) + change_seconds
    if size < situation.replicas:  # without a margin the next estimate might undo the change
        late *= 1 + _MARGIN
    if limits.deadline_seconds is not None and late > limits.deadline_seconds:
        left = duration(max(0.0, limits.deadline_seconds))
        return (
            f"with a probability of 80 % the job ends within {duration(late)}, but the deadline "
            f"is in {left}"
        )
    needs = size * (expected + change_seconds)
    if limits.replica_seconds is not None and needs > limits.replica_seconds:
        left = duration(max(0.0, limits.replica_seconds))
        return (
            f"the job still needs {duration(needs)} of replica time, but the budget has {left} left"
        )
    return None


def _known(situation: Situation) -> list[int]:
    sizes = {situation.replicas, *situation.sizes}
    return [size for size in sorted(sizes) if situation.gain(size) is not None]


def _least_bad(situation: Situation, sizes: Sequence[int]) -> Situation:
    """Keep one size if none is within the limits: the fastest for a deadline, else the cheapest."""
    assert situation.limits is not None, "called only for a job with limits"

    def rate(size: int) -> float:
        return situation.predict(size).examples_per_second

    if situation.limits.deadline_seconds is not None:
        best = max(sizes, key=rate)
    else:
        best = min(sizes, key=lambda size: size / rate(size))
    why = _broken(situation, situation.replicas)
    others = [size for size in situation.sizes if size != best]
    narrowed = situation.without(
        others, "no size keeps the limits, and this size misses them by more than the chosen size"
    )
    if why is None or best == situation.replicas:
        return replace(narrowed, untenable=None)
    return replace(narrowed, untenable=Untenable(why=why, kept=False))
