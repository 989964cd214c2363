"""The mean of two models whose errors differ, with the data behind the fit."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from brain.models.fitting import REPEAT
from brain.models.step_time import feeding, linear
from brain.models.step_time.columns import (
    COLUMNS,
    Floats,
    design,
    micro_step,
    seconds,
    whole_step,
)
from brain.models.step_time.evidence import FitReport
from brain.models.step_time.linear import SmoothLinear, coordinates, features
from brain.models.step_time.physical import Physical
from brain.models.step_time.physics import LAUNCH_SECONDS, SIGMA

#: Relative error of a compute time as an observation of the log-linear member: a step of one
#: replica, except for work that one replica does not have.
_COMPUTE_ERROR = 0.2
#: Factor on the deviation of the mean. The members' errors are correlated, so their mean is more
#: certain than one member, but less certain than the mean of independent ones. Chosen on the tables
#: of Pollux and Sia so that 90 % bands hold 87 to 95 %.
_AGREEMENT = 0.75


class StepTime(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Log step time as the mean of a physical and a log-linear member.

        f = mean_i f_i,    var = b^2 (mean_i s_i^2 + var_i(f_i)),    b = 0.75 widen

    Member ``i`` predicts ``f_i`` with standard deviation ``s_i``.

    Steps that wait for data are fitted without their waits; predictions are at least as long as
    loading takes (``feeding``). The two members rarely extrapolate badly in the same case: at three
    to twelve points the error of the mean is about two thirds of either member's (``make
    bench-models``). The prediction of a measured configuration is the mean of its measurement and
    the members' prediction, weighted by precision.

    Args:
        widen: Factor on the standard deviation, from ``calibration.widening`` of this job.
        launch_seconds: Assumed seconds that a step spends launching work, from
            ``physics.launch_seconds`` for the kind of accelerator.
        warm_start: If True, ``fit`` begins with the result of the last fit, and does nothing if the
            data is the same.

    Attributes:
        report_: The evidence of the fit.

    Raises:
        Undetermined: ``fit`` got no measurement.
        ValueError: ``fit`` or ``predict`` got invalid rows or times.
    """

    def __init__(
        self,
        *,
        widen: float = 1.0,
        launch_seconds: float = LAUNCH_SECONDS,
        warm_start: bool = False,
    ) -> None:
        self.widen = widen
        self.launch_seconds = launch_seconds
        self.warm_start = warm_start

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        relative_error: ArrayLike | None = None,
        log_compute: ArrayLike | None = None,
        wait_share: ArrayLike | None = None,
    ) -> Self:
        """Fit to log seconds per optimizer step ``y`` of the rows ``X``.

        Args:
            X: Rows of ``columns.COLUMNS``; their first local batch becomes the reference.
            y: Log seconds per optimizer step.
            relative_error: Relative standard error of each step time; 0 if None.
            log_compute: Log seconds that a micro-batch computes; NaN if not measured.
            wait_share: Share of each step that waits for data; 0 if None.
        """
        rows = design(X)
        target = seconds(y, len(rows))
        error = np.zeros(len(rows)) if relative_error is None else np.asarray(relative_error, float)
        compute = np.full(len(rows), np.nan) if log_compute is None else np.asarray(log_compute)
        waits = np.zeros(len(rows)) if wait_share is None else np.asarray(wait_share, float)
        data = np.column_stack([rows, target, error, compute, waits])
        before: Floats | None = getattr(self, "data_", None) if self.warm_start else None
        if before is not None and _same(before, data):
            return self
        if before is None:
            self.physical_ = Physical(
                launch_seconds=self.launch_seconds, warm_start=self.warm_start
            )
        self.feed_ = feeding.feed(rows, target, error, waits)
        fed = feeding.unfed(target, error, compute, rows[:, 3], waits)
        self.physical_.fit(rows, *fed)
        self._fit_linear(rows, *fed)
        self.data_ = data
        self.n_features_in_ = len(COLUMNS)
        self.report_ = self._report(rows)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return log seconds per optimizer step, with their standard deviation if asked for."""
        check_is_fitted(self)
        rows = design(X)
        found = [self.physical_.predict(rows, return_std=True), self._whole(rows)]
        means = np.array([mean for mean, _ in found])
        variance = np.mean([spread**2 for _, spread in found], axis=0) + means.var(axis=0)
        center, spread = means.mean(axis=0), _AGREEMENT * self.widen * np.sqrt(variance)
        if self.feed_ is not None:
            center, spread = self.feed_.limit(rows, center, spread)
        center, spread = self._recalled(rows, center, spread)
        return (center, spread) if return_std else center

    def _recalled(self, X: Floats, center: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Mix predictions of measured configurations with their measurements, by precision."""
        width = len(COLUMNS)
        center, spread = center.copy(), spread.copy()
        for row, measured, error in zip(
            self.data_[:, :width], self.data_[:, width], self.data_[:, width + 1], strict=True
        ):
            here = (row == X).all(axis=1)
            if here.any():
                noise = error**2 + REPEAT**2
                trust = spread[here] ** 2 / (spread[here] ** 2 + noise)
                center[here] += trust * (measured - center[here])
                spread[here] *= np.sqrt(1 - trust)
        return center, spread

    def _fit_linear(self, X: Floats, y: Floats, error: Floats, compute: Floats) -> None:
        micro = micro_step(y, X[:, 3], self.physical_.predict_compute(X))
        seen = np.isfinite(compute) & (X[:, 1] > 1)
        alone = X[seen].copy()
        alone[:, :2] = 1
        rows, target = np.vstack([X, alone]), np.concatenate([micro, compute[seen]])
        noise = np.concatenate([error, np.full(len(alone), _COMPUTE_ERROR)])
        level = np.concatenate([[micro.mean()], linear.PRIOR_MEAN[1:]])
        spread = np.diag(linear.PRIOR_DEVIATION**2)
        member = SmoothLinear(prior_mean=level, prior_covariance=spread, linear=len(level))
        self.linear_ = member.fit(self._columns(rows), target, noise)

    def _columns(self, X: Floats) -> Floats:
        return np.hstack([features(X, self.physical_.reference_), coordinates(X)])

    def _whole(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the log-linear member's optimizer step: micro-steps before the last only
        compute.
        """
        mean, spread = self.linear_.predict(self._columns(X), return_std=True)
        if (X[:, 3] > 1).any():
            mean = whole_step(mean, X[:, 3], self.physical_.predict_compute(X))
        return mean, spread

    def _report(self, X: Floats) -> FitReport:
        count = len(X)
        missed = [self.physical_.leave_one_out_, self.linear_.leave_one_out_[:count]]
        left_out = np.mean(missed, axis=0)
        columns = features(X, self.physical_.reference_)
        return FitReport(
            observations=count,
            configurations=len(np.unique(X, axis=0)),
            rank=int(np.linalg.matrix_rank(columns, tol=SIGMA)),
            held_out_error=float(np.sqrt((left_out**2).mean())) if count > 1 else None,
            bounds_hit=self.physical_.bounds_hit_,
            members=("physical", "log-linear"),
            iterations=self.physical_.n_iter_,
        )


def _same(one: Floats, other: Floats) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=True))
