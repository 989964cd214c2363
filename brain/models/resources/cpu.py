"""The CPU that replicas should reserve: a percentile of recent use, or more if a limit hides the
need.

Use never exceeds its limit. If a limit restricts the use (*censored*), the histogram does not show
the need, and ``raised`` and ``loader_millis`` give the next limit.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined

#: Factor of 5 % between the bounds of successive buckets, as in Kubernetes' vertical autoscaler.
_GROWTH = 1.05
#: Upper bound of the lowest bucket, mCPU or MiB.
_FIRST = 1.0
#: Seconds in which samples lose half of their weight (models.md section 3.4).
HALF_LIFE_SECONDS = 24 * 3600.0
#: Head-room above the percentile.
MARGIN = 1.15
#: Factors of a new request between which the present one stays, as a restart would not pay.
UP, DOWN = 1.10, 0.80
#: Percentile for roles whose replicas wait for no other.
ASYNCHRONOUS = 0.97
_TOP = 0.995
#: Use above this share of the limit, or a larger share of throttled periods, hides the need.
_NEAR_LIMIT, _THROTTLED = 0.9, 0.05
#: Largest share of the device's computing time that a loader may take.
_LOADER_SHARE = 0.85

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUsage:
    """Histogram of a resource's use, with buckets of growing width; old samples have less weight.

    Processors are counted in mCPU, memory in MiB.

    A sample at ``t`` has the weight ``2^((t - at) / half_life)``, so adding a sample leaves the
    others unchanged (Autopilot, Rzadca et al., EuroSys 2020; Kubernetes' vertical autoscaler).
    """

    #: Weight of each bucket from the lowest up, as of ``at_seconds``.
    weights: tuple[float, ...] = ()
    #: Time of the newest sample, in seconds since any fixed time.
    at_seconds: float = 0.0
    half_life_seconds: float = HALF_LIFE_SECONDS

    def added(self, millis: Iterable[float], at_seconds: float) -> Self:
        """Return the histogram with more samples, which were taken at ``at_seconds``.

        ``at_seconds`` must not be before the newest sample. Values that are not finite, or below 0,
        are left out.
        """
        seen = np.array([one for one in millis if math.isfinite(one) and one >= 0], dtype=float)
        if not len(seen):
            return self
        buckets = _bucket(seen)
        now = max(at_seconds, self.at_seconds) if self.weights else at_seconds
        weights = np.zeros(max(len(self.weights), int(buckets.max()) + 1))
        weights[: len(self.weights)] = self.weights
        weights *= 0.5 ** ((now - self.at_seconds) / self.half_life_seconds)
        np.add.at(weights, buckets, 1.0)
        return type(self)(
            weights=tuple(weights.tolist()),
            at_seconds=now,
            half_life_seconds=self.half_life_seconds,
        )

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket up to which ``share`` of the weight lies.

        Raises:
            Undetermined: nothing was measured.

        >>> used = CpuUsage().added([100.0] * 9 + [400.0], at_seconds=0)
        >>> round(used.quantile(0.5)), round(used.quantile(0.95))
        (103, 404)
        """
        reached = np.cumsum(self.weights)
        if not len(reached) or reached[-1] <= 0:
            raise Undetermined("no use was measured", code="no-usage")
        # Sums of decayed weights are inexact, so every share reaches the last bucket at the latest.
        index = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
        return _FIRST * _GROWTH ** min(index, len(reached) - 1)

    def merged(self, other: "CpuUsage", *, most: float = math.inf) -> Self:
        """Return the histogram merged with ``other``, from another replica or run; the weight of
        ``other`` is reduced to at most ``most``.

        Before the merge, both histograms are decayed to the time of the newer one.
        """
        total = sum(other.weights)
        if not total > 0:
            return self
        now = max(self.at_seconds, other.at_seconds) if self.weights else other.at_seconds
        mine, theirs = self._weights_at(now), other._weights_at(now)
        theirs *= min(1.0, most / theirs.sum()) if theirs.sum() > 0 else 0.0
        joint = np.zeros(max(len(mine), len(theirs)))
        joint[: len(mine)] += mine
        joint[: len(theirs)] += theirs
        return replace(self, weights=tuple(joint.tolist()), at_seconds=now)

    def compact(self) -> Self:
        """Return the histogram with weights rounded to four decimals, for storage."""
        return replace(self, weights=tuple(round(weight, 4) for weight in self.weights))

    def above(self, amount: float) -> float:
        """Return the share of time in which the use was above an amount; 0 if nothing was
        measured.
        """
        weights = np.asarray(self.weights)
        over = _bounds(len(weights)) > amount * _GROWTH
        return float(weights[over].sum() / weights.sum()) if weights.sum() > 0 else 0.0

    def unused(self, amount: float) -> float:
        """Return the mean unused share of an amount; 0 if nothing was measured."""
        weights = np.asarray(self.weights)
        if not (amount > 0 and weights.sum() > 0):
            return 0.0
        return float(weights @ np.clip(1 - _bounds(len(weights)) / amount, 0, 1) / weights.sum())

    def _weights_at(self, seconds: float) -> Floats:
        lives = max(0.0, seconds - self.at_seconds) / self.half_life_seconds
        return np.array(self.weights, dtype=np.float64) * float(0.5**lives)


def _bounds(count: int) -> Floats:
    """Return the upper bounds of the lowest buckets."""
    return np.asarray(_FIRST * _GROWTH ** np.arange(count), dtype=float)


def _bucket(millis: Floats) -> NDArray[np.int64]:
    """Return the index of the bucket that holds a use; the lowest bucket takes all use up to its
    bound.
    """
    above = np.log(np.maximum(millis, _FIRST) / _FIRST) / math.log(_GROWTH)
    return np.ceil(above - 1e-9).astype(np.int64)


def percentile(replicas: int) -> float:
    """Return the share of time in which the reserved CPU must suffice for a replica, if
    ``replicas`` ranks train together.

        q = 1 - 0.02 / sqrt(N),    at most 0.995

    All ranks wait for a throttled rank, so throttling must be rarer with more ranks.

    >>> percentile(1), percentile(4), percentile(64)
    (0.98, 0.99, 0.995)
    """
    return min(_TOP, 1 - 0.02 / math.sqrt(max(1, replicas)))


def request(
    usage: CpuUsage,
    *,
    share: float,
    present: float | None = None,
    recent_peak: float | None = None,
    margin: float = MARGIN,
    down: float = DOWN,
) -> float:
    """Return the mCPU that a replica should reserve.

    The request is a percentile of use plus a margin; with ``recent_peak`` it is at least the last
    hour's highest use. If the need is at most 10 % above the present reservation and at most 30 %
    below it, the present reservation is returned.

    Args:
        usage: Use of the busiest replica of the role, because ranks are alike.
        share: The percentile of use, from ``percentile`` or ``ASYNCHRONOUS``.
        present: The present reservation in mCPU; None for a new replica.
        recent_peak: Highest use within the last hour, in mCPU.
        margin: Factor of head-room.
        down: Share of the present reservation; the reservation is lowered only if the need is below
            this share.

    Raises:
        Undetermined: nothing was measured.

    >>> used = CpuUsage().added([1000.0] * 20, at_seconds=0)
    >>> round(request(used, share=0.98)), request(used, share=0.98, present=1100.0)
    (1174, 1100.0)
    """
    wanted = margin * usage.quantile(share)
    if recent_peak is not None:
        wanted = max(wanted, recent_peak)
    if present is not None and down * present <= wanted <= UP * present:
        return present
    return wanted


def throttles(share: float) -> bool:
    """Return True if a quota stops a replica in a large enough share of scheduler periods to
    restrict its CPU use.
    """
    return share > _THROTTLED


def censored(usage: CpuUsage, *, limit_millis: float, throttled_share: float = 0.0) -> bool:
    """Return True if the limit restricts the use, so that the use does not show the need.

    >>> full = CpuUsage().added([980.0] * 20, at_seconds=0)
    >>> censored(full, limit_millis=1000), censored(full, limit_millis=2000)
    (True, False)
    """
    return throttles(throttled_share) or usage.quantile(0.95) > _NEAR_LIMIT * limit_millis


def raised(
    limit_millis: float, loader: float | None = None, *, throttled_share: float = 0.0
) -> float:
    """Return a larger limit, in mCPU, for a replica whose limit restricts its use.

        max(1.5 limit, loader)                ``loader``: mCPU that fast data loading needs
        max((1 + share / 2) limit, loader)    where the share of throttled periods is known

    >>> raised(1000), raised(1000, throttled_share=0.2)
    (1500.0, 1100.0)
    """
    factor = 1 + throttled_share / 2 if throttles(throttled_share) else 1.5
    return max(factor * limit_millis, loader or 0.0)


def loader_millis(
    *, used_millis: float, idle_millis: float, step_seconds: float, device_seconds: float
) -> float:
    """Return the mCPU with which data loading is as fast as computing.

        k = (used - idle) T / m   processor time of an example,    c* = m k / (0.85 T_device)

    ``T`` is the time of a step, ``T_device`` the time without waits, ``m`` the batch size, which
    cancels out.

    Args:
        used_millis: mCPU used while training.
        idle_millis: The part of ``used_millis`` that is not spent on loading data.
        step_seconds: Seconds of a step as measured.
        device_seconds: Seconds that the device would take without waiting for data.

    Raises:
        Undetermined: a time is not above 0.

    >>> round(loader_millis(used_millis=2000, idle_millis=100, step_seconds=1.0,
    ...                     device_seconds=0.5))
    4471
    """
    if not (step_seconds > 0 and device_seconds > 0):
        raise Undetermined("step and device seconds must be above 0", code="no-usage")
    return max(0.0, used_millis - idle_millis) * step_seconds / (_LOADER_SHARE * device_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSigns:
    """Signs that a job waits for its data; None means unknown."""

    #: Share of a step spent waiting for data.
    data_wait_share: float | None = None
    #: Median utilisation of the device, as measured and as expected without waiting.
    device_share: float | None = None
    expected_device_share: float | None = None
    #: True if the limit holds CPU use down (``censored``).
    censored: bool | None = None
    #: Excess of step time over the model's expectation, as a share, if it rises with CPU use.
    slower_with_cpu: float | None = None
    #: Share of time in which processes waited for storage.
    io_stalled_share: float | None = None


def waits_for_data(signs: LoaderSigns) -> bool:
    """Return True if workers wait for data for more than a tenth of each step."""
    return signs.data_wait_share is not None and signs.data_wait_share > 0.10


def loader_bound(signs: LoaderSigns) -> bool:
    """Return True if at least two signs show that the job waits for its data (models.md section
    3.4).

    Such a job needs more CPU or faster storage before more replicas, and its step times do not show
    how it scales.
    """
    found: Sequence[bool] = (
        waits_for_data(signs),
        signs.device_share is not None
        and signs.expected_device_share is not None
        and signs.device_share < 0.70 < 0.85 < signs.expected_device_share,
        bool(signs.censored),
        signs.slower_with_cpu is not None and signs.slower_with_cpu > 0.20,
        signs.io_stalled_share is not None and signs.io_stalled_share > 0.10,
    )
    return sum(found) >= 2
