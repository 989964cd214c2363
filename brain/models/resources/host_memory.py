"""Memory of a replica: does it grow, until when does it suffice, what to give after it did not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from brain.errors import Undetermined
from brain.types.estimate import Band

#: Head-room above the highest use that was seen.
MARGIN = 1.15
#: Growth counts where chance makes as steady a one in fewer than one of a hundred cases, and where
#: a day of it takes more than this share of the limit.
_SIGNIFICANT, _SHARE_A_DAY = 0.01, 0.05
_DAY_SECONDS = 24 * 3600.0
_HOUR_SECONDS = 3600.0
#: A leak is judged over so many maxima at least. Maxima in a row are alike, so chance must be rarer
#: than where they were independent.
_LEAST_MAXIMA, _LEAK_CHANCE, _LEAK_BAND = 12, 1e-3, 0.99
#: A rise between halves so many times too slow is looked at no further.
_ROUGH = 4.0
#: Factors on the limit at which a replica ran out of memory.
_RAISE, _RAISE_GROWING = 1.2, 1.5
_LEAST_RAISE_BYTES = 100 * 2**20
#: Time that must be left for a planned restart; a leak that leaves more is not told yet.
WARN_SECONDS = 3600.0
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


def time_left(maxima: Sequence[float], *, every_seconds: float, limit_bytes: float) -> Band | None:
    """Seconds until memory that leaks reaches its limit; None where that is not near.

    A start or a cache that fills grows, too, ever more slowly. With slopes ``s`` (Theil and Sen,
    1968) of the older and the newer half, each as long as ``h``, such growth comes to an end at

        use + s_new h r / (1 - r),    r = s_new / s_old < 1

    Where that is below the limit it is no leak; else the smaller slope of the whole and of its
    newer half counts. The band is that of this slope.

    Args:
        maxima: Highest uses in bytes of equal intervals in a row, oldest first.
        every_seconds: Length of an interval.
        limit_bytes: Use at which the kernel ends the replica.

    >>> found = time_left([1e9 + 1e7 * n for n in range(20)], every_seconds=60, limit_bytes=1.6e9)
    >>> found and round(found.value / 60)
    41
    """
    values = np.asarray(maxima, dtype=float)
    if len(values) < _LEAST_MAXIMA or not np.isfinite(values).all():
        return None
    left, half = max(0.0, limit_bytes - float(values.max())), len(values) // 2
    # Most that does not leak is known by this alone, which costs a hundredth of the rest.
    rise = float(np.median(values[half:]) - np.median(values[:half]))
    if rise <= 0 or left > _ROUGH * WARN_SECONDS * rise / (every_seconds * half):
        return None
    if stats.kendalltau(np.arange(len(values)), values).pvalue > _LEAK_CHANCE:
        return None
    parts = (values[:half], values[half:], values)
    old, new, whole = (_slope(part, every_seconds) for part in parts)
    if new[1] <= 0 or whole[1] <= 0:
        return None
    ratio = new[0] / old[0] if old[0] > 0 else math.inf
    if ratio < 1 and new[0] * every_seconds * half * ratio / (1 - ratio) < left:
        return None
    slope, low, high = min(whole, new)
    if left > slope * WARN_SECONDS:
        return None
    return Band(value=left / slope, low=left / high, high=left / low)


def _slope(values: NDArray[np.float64], every_seconds: float) -> tuple[float, float, float]:
    """Slope in bytes per second, and its interval."""
    found = stats.theilslopes(values, every_seconds * np.arange(len(values)), alpha=_LEAK_BAND)
    return float(found.slope), float(found.low_slope), float(found.high_slope)


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
