"""The cost of a change of a job's world, learned from the changes that the job made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Seconds to reckon with before a job's first change (models.md section 4.2).
ASSUMED_SECONDS = 60.0
#: Deviation of that belief, and of one job's changes among each other, in log seconds.
BELIEF, SPREAD = 1.0, 0.4
#: Each change counts this much of the next one: caches warm, checkpoints grow.
_FORGET = 0.8
#: 75 % quantile of the standard normal.
_Z75 = 0.6745


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartCost:
    """Seconds without training that the next change will cost: log-normal."""

    median_seconds: float
    #: Standard deviation of the logarithm of the next one, its own scatter included.
    deviation: float
    #: Changes of this job that it rests on; 0 where it is only assumed.
    measured: int

    @property
    def seconds(self) -> float:
        """The cost to plan with, in seconds: three in four changes cost less."""
        return self.quantile(_Z75)

    def quantile(self, z: float) -> float:
        """Seconds at ``z`` standard deviations above the median."""
        return self.median_seconds * math.exp(z * self.deviation)


def restart_cost(
    downtimes: Sequence[float], *, assumed_seconds: float = ASSUMED_SECONDS
) -> RestartCost:
    """Learn the cost of the next change from the downtimes of earlier ones, oldest first.

    Log downtimes are normal with deviation ``SPREAD`` around an unknown median, which is believed
    to within ``BELIEF`` (a factor of e) to be such that ``seconds`` are ``assumed_seconds`` before
    the first one; old ones weigh less:

        w_i = 0.8^age,   precision = BELIEF^-2 + sum w_i / SPREAD^2

    Downtimes that are not finite or not above 0 were not measured, and are left out.

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
