"""Memory of a replica: does it grow, until when does it suffice, what to give after it did not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from brain.errors import Undetermined

#: Head-room above the highest use that was seen.
MARGIN = 1.15
#: Growth counts where chance makes as steady a one in fewer than one of a hundred cases, and where
#: a day of it takes more than this share of the limit.
_SIGNIFICANT, _SHARE_A_DAY = 0.01, 0.05
_DAY_SECONDS = 24 * 3600.0
_HOUR_SECONDS = 3600.0
#: Factors on the limit at which a replica ran out of memory.
_RAISE, _RAISE_GROWING = 1.2, 1.5
_LEAST_RAISE_BYTES = 100 * 2**20
#: Raises within a day after which a person must look.
RAISES_A_DAY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The growth of memory over time."""

    bytes_per_second: float
    #: Whether it is more than chance, and enough to matter.
    significant: bool

    def seconds_to(self, limit_bytes: float, used_bytes: float) -> float:
        """Time after which ``limit_bytes`` are used; infinite where nothing grows."""
        if not self.significant:
            return math.inf
        return max(0.0, limit_bytes - used_bytes) / self.bytes_per_second


def growth(hourly_maxima: Sequence[float], *, limit_bytes: float) -> Growth:
    """Judge the highest uses of the last hours, oldest first.

    Slope of Theil and Sen (1968), which a single peak does not move; significance of Mann and
    Kendall (1945).

    Raises:
        Undetermined: fewer than four hours were seen; three values are in order by chance.

    >>> found = growth([1e9, 1.1e9, 1.2e9, 1.3e9, 1.4e9, 1.5e9], limit_bytes=8e9)
    >>> found.significant, round(found.seconds_to(8e9, 1.5e9) / 3600)
    (True, 65)
    """
    values = np.asarray(hourly_maxima, dtype=float)
    if len(values) < 4 or not np.isfinite(values).all():
        raise Undetermined(
            f"memory was seen for {len(values)} whole hours; four are needed", code="no-usage"
        )
    hours = np.arange(len(values))
    slope = float(stats.theilslopes(values, hours).slope) / _HOUR_SECONDS
    chance = float(stats.kendalltau(hours, values).pvalue)
    steady = chance < _SIGNIFICANT
    matters = slope * _DAY_SECONDS > _SHARE_A_DAY * limit_bytes
    return Growth(bytes_per_second=slope, significant=steady and matters)


def raised(
    limit_bytes: float, *, peak_bytes: float = 0.0, hour_deviation: float = 0.0, growing: bool
) -> float:
    """Return the memory for a replica that ran out of memory at ``limit_bytes``.

        max(1.2 limit (growing: 1.5), limit + max(100 MiB, 2 deviations of an hour), 1.2 peak)

    Args:
        peak_bytes: Highest use that was actually seen; a use that a cap held down is none.
        hour_deviation: Standard deviation of its hourly maxima.
        growing: Whether memory grows as training goes.

    >>> raised(1e9, growing=False), raised(1e9, growing=True)
    (1200000000.0, 1500000000.0)
    """
    return max(
        (_RAISE_GROWING if growing else _RAISE) * limit_bytes,
        limit_bytes + max(_LEAST_RAISE_BYTES, 2 * hour_deviation),
        _RAISE * peak_bytes,
    )


def request(peak_bytes: float, *, grows: Growth | None = None, seconds: float = 0.0) -> float:
    """Return the memory to reserve for ``seconds`` of training: peak, growth, head-room.

    >>> request(1e9)
    1150000000.0
    """
    more = grows.bytes_per_second * seconds if grows is not None and grows.significant else 0.0
    return MARGIN * (peak_bytes + more)
