"""Memory of a replica: its growth, the time until it reaches the limit, and the next limit after
the replica ran out of memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.types.estimate import Band

#: Head-room above the highest use seen.
MARGIN = 1.15
#: Growth counts if chance explains so steady a growth in fewer than one of a hundred cases, and if
#: a day of it takes more than this share of the limit.
_SIGNIFICANT, _SHARE_A_DAY = 0.01, 0.05
_DAY_SECONDS = 24 * 3600.0
_HOUR_SECONDS = 3600.0
#: Fewest maxima from which a leak is judged, and the largest chance that growth is accidental.
#: Successive maxima are correlated, so this chance is smaller than for independent ones.
_LEAST_MAXIMA, _LEAK_CHANCE, _LEAK_BAND = 12, 1e-3, 0.99
#: A rise between the halves that is too slow by this factor needs no further test.
_ROUGH = 4.0
#: Factors on the limit at which a replica ran out of memory.
_RAISE, _RAISE_GROWING = 1.2, 1.5
_LEAST_RAISE_BYTES = 100 * 2**20
#: Time that a planned restart needs; a leak that leaves more time is not reported yet.
WARN_SECONDS = 3600.0
#: Number of raises within a day after which a person must check the job.
RAISES_A_DAY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The growth of memory over time."""

    bytes_per_second: float
    #: True if the growth is more than chance, and large enough to matter.
    significant: bool


def growth(hourly_maxima: Sequence[float], *, limit_bytes: float) -> Growth:
    """Measure how memory grew over the last hours; ``hourly_maxima`` has the highest use of each
    hour, oldest first.

    The slope is that of Theil and Sen (1968), which a single peak hardly changes; the significance
    is that of Mann and Kendall (1945).

    Raises:
        Undetermined: memory was read in fewer than four hours; fewer than four values could be in
            rising order by chance.

    >>> found = growth([1e9, 1.1e9, 1.2e9, 1.3e9, 1.4e9, 1.5e9], limit_bytes=8e9)
    >>> found.significant, round(3600 * found.bytes_per_second)
    (True, 100000000)
    """
    values = np.asarray(hourly_maxima, dtype=float)
    if len(values) < 4 or not np.isfinite(values).all():
        raise Undetermined(
            f"memory was read in {len(values)} whole hours, but four are needed; wait for more "
            "readings",
            code="no-usage",
        )
    hours = np.arange(len(values))
    slope = float(scipy.stats.theilslopes(values, hours).slope) / _HOUR_SECONDS
    chance = float(scipy.stats.kendalltau(hours, values).pvalue)
    steady = chance < _SIGNIFICANT
    matters = slope * _DAY_SECONDS > _SHARE_A_DAY * limit_bytes
    return Growth(bytes_per_second=slope, significant=steady and matters)


def time_left(maxima: Sequence[float], *, every_seconds: float, limit_bytes: float) -> Band | None:
    """Return the seconds until leaking memory reaches its limit; None if the limit is not near.

    The memory of a start-up or of a filling cache grows, too, but ever more slowly. Let ``s_old``
    and ``s_new`` be the slopes (Theil and Sen, 1968) of the older and the newer half of the uses,
    and ``h`` the length of a half. Then such growth ends at

        use + s_new h r / (1 - r),    r = s_new / s_old < 1

    Growth that ends below the limit is no leak. Otherwise the time and its band follow from the
    smaller of two slopes: the slope of all uses, and the slope of the newer half.

    Args:
        maxima: Highest uses, in bytes, of successive equal intervals, oldest first.
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
    # This check costs a hundredth of the rest, and suffices for most memory that does not leak.
    rise = float(np.median(values[half:]) - np.median(values[:half]))
    if rise <= 0 or left > _ROUGH * WARN_SECONDS * rise / (every_seconds * half):
        return None
    if scipy.stats.kendalltau(np.arange(len(values)), values).pvalue > _LEAK_CHANCE:
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
    """Return the slope in bytes per second, and its interval."""
    found = scipy.stats.theilslopes(
        values, every_seconds * np.arange(len(values)), alpha=_LEAK_BAND
    )
    return float(found.slope), float(found.low_slope), float(found.high_slope)


def raised(
    limit_bytes: float, *, peak_bytes: float = 0.0, hour_deviation: float = 0.0, growing: bool
) -> float:
    """Return the memory for a replica that ran out of memory at ``limit_bytes``.

        max(1.2 limit (growing: 1.5), limit + max(100 MiB, 2 deviations of an hour), 1.2 peak)

    Args:
        peak_bytes: Highest use seen, without uses that a limit held down.
        hour_deviation: Standard deviation of the hourly maxima.
        growing: True if memory grows with training.

    >>> raised(1e9, growing=False), raised(1e9, growing=True)
    (1200000000.0, 1500000000.0)
    """
    return max(
        (_RAISE_GROWING if growing else _RAISE) * limit_bytes,
        limit_bytes + max(_LEAST_RAISE_BYTES, 2 * hour_deviation),
        _RAISE * peak_bytes,
    )


def request(peak_bytes: float, *, grows: Growth | None = None, seconds: float = 0.0) -> float:
    """Return the memory to reserve for ``seconds`` of training: peak, growth and headroom.

    >>> request(1e9)
    1150000000.0
    """
    more = grows.bytes_per_second * seconds if grows is not None and grows.significant else 0.0
    return MARGIN * (peak_bytes + more)
