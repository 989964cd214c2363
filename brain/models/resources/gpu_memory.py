"""Memory of a device: a fixed part and a part per example, fitted to a few peaks and failures."""

import math
from functools import lru_cache
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from brain.errors import Undetermined
from brain.models.resources.use import USABLE

Floats = NDArray[np.float64]

#: Relative standard deviation of a measured peak around the line (models.md section 3.6).
_NOISE = 0.03
#: Standard deviation of log bytes per example between similar jobs, and of the log of the fixed
#: part read before the first step (models.md section 3.1).
_EXAMPLE_DEVIATION, _FIXED_DEVIATION = 0.7, 0.10
#: Prior if neither part is known: each is half of the largest peak, within a factor of about five.
_UNKNOWN_DEVIATION = 1.5
#: Points of the grid in each direction, number of refinements, and half width of a refined grid in
#: deviations.
_GRID, _PASSES, _WIDE = 101, 3, 5.0
#: Accepted risk of failure: one run in a hundred.
_Z99 = 2.33
#: Largest factor between a tried batch and the largest seen, unless memory is well known; and the
#: distance to keep from a batch that failed.
_STEP, _KNOWN, _FENCE = 1.5, 0.03, 1.1


class DeviceMemory(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Peak memory of a device as a function of the local batch size.

        peak(m) = F + c m,    ln F, ln c have normal priors

    A run that ran out of memory is a *censored* observation: its peak was above the capacity
    (Tobin, 1958). F and c have priors, so a single peak or a single failure is enough. The
    posterior over (F, c) is computed on a grid.

    Args:
        fixed_bytes: Reading before the first step, or a declared F; None if neither is known.
        example_bytes: c of similar jobs; None if there are no similar jobs.

    Attributes:
        fixed_, per_example_: Posterior means of F and c.
        largest_seen_: Largest batch that was measured; 0 if no batch was measured.
        fence_: Smallest batch that failed; infinite if no batch failed.

    Raises:
        Undetermined: ``fit`` got no runs, and ``fixed_bytes`` and ``example_bytes`` are not both
            given.
        ValueError: ``fit`` or ``predict`` got batches or bytes that are not above 0.
    """

    def __init__(
        self, *, fixed_bytes: float | None = None, example_bytes: float | None = None
    ) -> None:
        self.fixed_bytes = fixed_bytes
        self.example_bytes = example_bytes

    def fit(self, X: ArrayLike, y: ArrayLike, failed: ArrayLike | None = None) -> Self:
        """Fit the model to peaks and failures.

        Args:
            X: Local batches, one column.
            y: Peak bytes of each; for a ``failed`` run, the capacity that did not suffice.
            failed: True for each run that ran out of memory; None if no run did.
        """
        batches, peaks = _column(X), np.asarray(y, dtype=float)
        if peaks.shape != batches.shape or not (np.isfinite(peaks).all() and (peaks > 0).all()):
            raise ValueError("y needs one positive number of bytes per batch")
        out = np.zeros(len(peaks), bool) if failed is None else np.asarray(failed, bool)
        seen = list(zip(batches, peaks, out, strict=True))
        self._believe(batches, peaks, out)
        center, half = self._start(out)
        for _ in range(_PASSES):
            self._weigh(seen, center, half)
            center, half = self._around()
        self.fixed_ = float((self._weight * self._fixed).sum())
        self.per_example_ = float((self._weight * self._each).sum())
        self.largest_seen_ = float(batches[~out].max(initial=0.0))
        self.fence_ = float(batches[out].min(initial=math.inf))
        self.n_features_in_ = 1
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return the peak bytes at local batch sizes; if asked for, also the standard deviation."""
        check_is_fitted(self)
        batches = _column(X)
        weight = self._weight.ravel()
        lines = self._fixed.ravel()[None, :] + batches[:, None] * self._each.ravel()[None, :]
        mean = lines @ weight
        if not return_std:
            return mean
        spread = np.maximum(0.0, (lines**2) @ weight - mean**2)
        return mean, np.sqrt(spread + (_NOISE * mean) ** 2)

    def largest(self, capacity_bytes: float) -> int:
        """Return the largest local batch size that fits with a risk of one in a hundred; 0 if no
        batch size fits.

        The batch size is at most 1.5 times the largest one that was used, unless the prediction is
        accurate to 3 % of the device's memory. The result is well below any batch size that failed.
        """
        check_is_fitted(self)
        top = min(self.fence_ / _FENCE, 2**31)
        seen = self.largest_seen_
        low, high = 0, int(min(top, max(1.0, USABLE * capacity_bytes / self.per_example_)))
        while low < high:
            middle = (low + high + 1) // 2
            mean, spread = self.predict([[middle]], return_std=True)
            safe = mean[0] + _Z99 * spread[0] <= USABLE * capacity_bytes
            near = middle <= _STEP * max(1.0, seen) or spread[0] < _KNOWN * capacity_bytes
            low, high = (middle, high) if safe and near else (low, middle - 1)
        return low if low < top else max(0, math.ceil(top) - 1)

    def _believe(self, batches: Floats, peaks: Floats, out: NDArray[np.bool_]) -> None:
        """Return prior means and deviations of ln F and ln c, and the place where the grid is
        fine.
        """
        if not len(peaks) and (self.fixed_bytes is None or self.example_bytes is None):
            raise Undetermined(
                "no peak was measured; run a step and read the memory", code="no-usage"
            )
        known = np.where(out, -1.0, batches) if len(batches) and not out.all() else batches
        at = int(known.argmax()) if len(batches) else 0
        self._batch = float(batches[at]) if len(batches) else 1.0
        half = float(peaks[at]) / 2 if len(peaks) else 1.0
        fixed, each = self.fixed_bytes, self.example_bytes
        self._means = math.log(fixed or half), math.log(each or half / self._batch)
        self._deviations = (
            _UNKNOWN_DEVIATION if fixed is None else _FIXED_DEVIATION,
            _UNKNOWN_DEVIATION if each is None else _EXAMPLE_DEVIATION,
        )

    def _start(self, out: NDArray[np.bool_]) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return center and half width of the first grid, in total and share."""
        fixed, each = math.exp(self._means[0]), math.exp(self._means[1]) * self._batch
        measured = len(out) > 0 and not out.all()
        return (math.log(fixed + each), 0.0), (2.0 if measured else 5.0, 8.0)

    def _weigh(
        self,
        seen: list[tuple[float, float, bool]],
        center: tuple[float, float],
        half: tuple[float, float],
    ) -> None:
        """Compute the posterior over the log of the total at one batch and the logit of the fixed
        part's share.

        Volumes are those of (ln F, ln c): the change of variables has determinant 1.
        """
        axes = [np.linspace(c - h, c + h, _GRID) for c, h in zip(center, half, strict=True)]
        self._total, self._share = np.meshgrid(*axes, indexing="ij")
        log_fixed = self._total - np.logaddexp(0, -self._share)
        log_each = self._total - np.logaddexp(0, self._share) - math.log(self._batch)
        score = np.zeros_like(log_fixed)
        for value, mean, wide in zip(
            (log_fixed, log_each), self._means, self._deviations, strict=True
        ):
            score -= (value - mean) ** 2 / (2 * wide**2)
        self._fixed, self._each = np.exp(log_fixed), np.exp(log_each)
        for batch, peak, censored in seen:
            away = (self._fixed + self._each * batch - peak) / (_NOISE * peak)
            score += scipy.special.log_ndtr(away) if censored else -(away**2) / 2
        weight = np.exp(score - score.max())
        self._weight: Floats = weight / weight.sum()

    def _around(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return center and half width of a finer grid around the weight."""
        found = []
        for value in (self._total, self._share):
            mean = float((self._weight * value).sum())
            wide = math.sqrt(float((self._weight * (value - mean) ** 2).sum()))
            cell = float(np.ptp(value)) / (_GRID - 1)
            found.append((mean, _WIDE * max(wide, cell)))
        (total, total_half), (share, share_half) = found
        return (total, share), (total_half, share_half)


@lru_cache(maxsize=1024)
def safe_batch(peaks: tuple[tuple[float, float], ...], capacity_bytes: float) -> float:
    """Return the largest local batch size that almost certainly fits a device.

    The result is at least the largest batch size that has fitted.

    Args:
        peaks: Local batches, at least one, each with the most bytes that were read.

    >>> 32 < safe_batch(((16.0, 3e9), (32.0, 5e9)), 16e9) < 120
    True
    >>> safe_batch(((32.0, 15e9),), 16e9)
    32.0
    """
    batches = [[batch] for batch, _ in peaks]
    memory = DeviceMemory().fit(batches, [used for _, used in peaks])
    return max(float(memory.largest(capacity_bytes)), *(batch for batch, _ in peaks))


def _column(X: ArrayLike) -> Floats:
    """Return the local batches from a table of one column."""
    found = np.asarray(X, dtype=float)
    if found.ndim != 2 or found.shape[1] != 1:
        raise ValueError(f"X has shape {found.shape}; it needs one column, the local batch")
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise ValueError("local batches must be finite and above 0")
    return found[:, 0]
