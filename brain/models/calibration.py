"""Calibration of promises: the share of measurements that fall inside promised bands."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from brain.errors import Undetermined
from brain.models.fitting import Z90
from brain.types.recommendation import Prediction

#: Number of exactly calibrated predictions with which the factor begins.
_BELIEVED = 4.0
#: Standard deviation of log throughput of one size from world to world, on a machine that others
#: use, too.
_REPEATED = 0.12
#: Standardised error, smoothed over worlds, above which a job counts as changed.
_SURPRISE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The share of later measurements that fell inside the predicted bands, with its interval."""

    count: int
    #: Share of measurements inside their 90 % bands, and the 90 % interval of that share.
    coverage: float
    coverage_low: float
    coverage_high: float
    #: Mean log of measured over predicted throughput: above 0, jobs achieved more than promised.
    bias: float
    #: Mean absolute percentage error, as a share.
    error: float
    #: Factor, at least 1, by which this job's deviations must be widened.
    widening: float


def standardised(predicted: Prediction, measured: float) -> float:
    """Return ln(measured / predicted throughput) in standard deviations of the predicted band.

    Raises:
        Undetermined: the band has no width, or a rate is not above 0.

    >>> band = Prediction(examples_per_second=100, low=50, high=200)
    >>> round(standardised(band, 200), 3)
    1.645
    """
    width = math.log(predicted.high / predicted.low) if predicted.low > 0 else 0.0
    if not (width > 0 and measured > 0 and math.isfinite(measured)):
        raise Undetermined("a rate of 0, or an interval without width, cannot be judged")
    return math.log(measured / predicted.examples_per_second) / (width / (2 * Z90))


def scores(outcomes: Iterable[tuple[Prediction, float]]) -> list[float]:
    """Return ln(measured / predicted throughput) of each outcome, in standard deviations of its
    predicted band.

    Each standard deviation is at least the scatter between worlds of equal configuration.
    """
    found = []
    for predicted, measured in outcomes:
        narrow, center = math.exp(Z90 * _REPEATED), predicted.examples_per_second
        low, high = min(predicted.low, center / narrow), max(predicted.high, center * narrow)
        found.append(standardised(replace(predicted, low=low, high=high), measured))
    return found


def surprised(outcomes: Iterable[tuple[Prediction, float]]) -> bool:
    """Return True if the measurements of the last worlds differ so much from their forecasts that
    the job must have changed.

    >>> band = Prediction(examples_per_second=100, low=80, high=125)
    >>> surprised([(band, 90.0)]), surprised([(band, 90.0), (band, 40.0), (band, 40.0)])
    (False, True)
    """
    error = 0.0
    for score in scores(outcomes):
        error = (error + abs(score)) / 2
    return error > _SURPRISE


def widening(scores: Sequence[float]) -> float:
    """Return the factor by which a job's deviations are widened: the root mean square of
    ``scores``, the errors of its forecasts in standard deviations.

    The factor is at least 1. Four errors of 1 are added to ``scores``, because a few surprises
    prove little. Applications differ (models.md section 2.4), so the factor is computed for each
    job.

    >>> widening([]), round(widening([3.0, -3.0, 3.0, -3.0]), 2)
    (1.0, 2.24)
    """
    total = _BELIEVED + float(np.sum(np.square(scores)))
    return max(1.0, math.sqrt(total / (_BELIEVED + len(scores))))


def calibration(outcomes: Sequence[tuple[Prediction, float]]) -> Calibration:
    """Return the share of predictions whose band contained the later measurement.

    The interval of this share is Wilson's (1927).

    Raises:
        Undetermined: there are no outcomes, or the band of an outcome has no width.
    """
    if not outcomes:
        raise Undetermined(
            "no prediction has been checked against a measurement yet; "
            "apply a plan and wait until Brain has verified it"
        )
    scores = np.array([standardised(predicted, measured) for predicted, measured in outcomes])
    ratios = np.array([measured / one.examples_per_second for one, measured in outcomes])
    inside = np.array([one.low <= measured <= one.high for one, measured in outcomes])
    low, high = _wilson(int(inside.sum()), len(outcomes))
    return Calibration(
        count=len(outcomes),
        coverage=float(inside.mean()),
        coverage_low=low,
        coverage_high=high,
        bias=float(np.log(ratios).mean()),
        error=float(np.abs(1 / ratios - 1).mean()),
        widening=widening([float(score) for score in scores]),
    )


def _wilson(hits: int, count: int) -> tuple[float, float]:
    share, z = hits / count, Z90
    center = share + z**2 / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    scale = 1 + z**2 / count
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)
