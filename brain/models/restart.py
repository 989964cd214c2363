"""The cost of a change of a job's world, learned from the job's earlier changes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Seconds assumed before a job's first change (models.md section 4.2).
ASSUMED_SECONDS = 60.0
#: Standard deviation of that assumption, and that between one job's changes, in log seconds.
BELIEF, SPREAD = 1.0, 0.4
#: Weight of each change relative to the next one: caches warm, checkpoints grow.
_FORGET = 0.8
#: 75 % quantile of the standard normal.
_Z75 = 0.6745


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartCost:
    """Seconds without training that the next change will cost, as a log-normal distribution."""

    median_seconds: float
    #: Standard deviation of the logarithm of the next downtime, its own scatter included.
    deviation: float
    #: Changes of this job that the cost rests on; 0 if it is only assumed.
    measured: int

    @property
    def seconds(self) -> float:
        """Return the seconds to plan with: the cost that three in four changes do not exceed."""
        return self.quantile(_Z75)

    def quantile(self, z: float) -> float:
        """Return the seconds at ``z`` standard deviations above the median."""
        return self.median_seconds * math.exp(z * self.deviation)


def restart_cost(
    downtimes: Sequence[float], *, assumed_seconds: float = ASSUMED_SECONDS
) -> RestartCost:
    """Learn the cost of the next change from the downtimes of earlier ones, oldest first.

    Log downtimes are normal with deviation ``SPREAD`` around an unknown median. The prior of that
    median has deviation ``BELIEF`` (a factor of e), and gives ``assumed_seconds`` before the first
    change. The older a downtime, the smaller its weight:

        w_i = 0.8^age,   precision = BELIEF^-2 + sum w_i / SPREAD^2

    Downtimes that are not finite, or not above 0, count as not measured and are left out.

    >>> round(restart_cost([]).seconds), round(restart_cost([4.0, 5.0, 4.5]).seconds, 1)
    (60, 7.0)
    """
    seen = [seconds for seconds in downtimes if math.isfinite(seconds) and seconds > 0]
    precision = BELIEF**-2
    pull = precision * (math.log(assumed_seconds) - _Z75 * math.hypot(BELIEF, SPREAD))
    for age, seconds in enumerate(reversed(seen)):
        weight = _FORGET**age / SPREAD**2
        precision += weight
        pull += weight * math.log(seconds)
    return RestartCost(
        median_seconds=math.exp(pull / precision),
        deviation=math.sqrt(1 / precision + SPREAD**2),
        measured=len(seen),
    )
