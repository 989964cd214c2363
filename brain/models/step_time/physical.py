"""The physical member: the most probable parameters of ``physics`` for a handful of points."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from brain.models.step_time.columns import Floats, design, seconds
from brain.models.step_time.physics import (
    LAUNCH_SECONDS,
    LOWER,
    PARAMETERS,
    PRIOR_DEVIATION,
    PRIOR_MEAN,
    SIGMA,
    SIGMA_COMPUTE,
    UPPER,
    inverse,
    log_times,
)

#: Degrees of freedom of Student's t: a step time that a straggler doubled has little influence.
FREEDOM = 4.0
_ITERATIONS = 30


class Physical(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Step time as a function of eight dimensionless parameters ``z``, fitted to a handful of
    points.

        T_c = e^z0 [s(z1) + (1 - s(z1)) m / m_ref]                  compute of a micro-batch
        T_x = e^z0 e^z2 (1 + e^z3 L) (N / n)^z4                     exchange over n > 1 nodes
              e^z0 e^z5 (1 + e^z6 L)                                within one node, N > 1
        T   = (T_c^g + T_x^g)^(1/g),  g = 1 + 9 s(z7)               both, partly overlapping
        T_total = (a - 1) T_c + T                                   with accumulation a

    for ``N`` replicas on ``n`` nodes with local batch ``m``; ``s`` is the logistic function and ``L
    = log2(max(N, 2) / 2)``. The errors of log step times follow Student's t with four degrees of
    freedom, and ``z`` has a Gaussian prior. The fit is the most probable ``z``
    (Levenberg-Marquardt, analytic derivatives, weights renewed each step: Lange, Little and Taylor,
    1989); Laplace's method gives its uncertainty. The form is that of Pollux (Qiao et al., OSDI
    2021), extended by contention, logarithmic growth and the parametrisation of models.md section
    2.8.

    Args:
        launch_seconds: Assumed seconds of launching a step's compute.
        warm_start: Begin at the ``z`` of the previous ``fit``, as usual in scikit-learn.

    Attributes:
        z_: The parameters; ``covariance_`` is their covariance.
        reference_: ``m_ref``, the local batch of the first row, kept by a warm start.
        bounds_hit_: Names of parameters that ended at a bound.
        leave_one_out_: Error of each log step time if its row had been left out, linearised.

    Raises:
        Undetermined: ``fit`` got no measurement.
        ValueError: rows or times are invalid.
    """

    def __init__(
        self,
        *,
        launch_seconds: float = LAUNCH_SECONDS,
        warm_start: bool = False,
    ) -> None:
        self.launch_seconds = launch_seconds
        self.warm_start = warm_start

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        relative_error: ArrayLike | None = None,
        log_compute: ArrayLike | None = None,
    ) -> Self:
        """Fit to log seconds ``y`` of the rows ``X``.

        Args:
            X: Rows of ``columns.COLUMNS``.
            y: Log seconds per optimizer step.
            relative_error: Relative standard error of each step time; 0 if None.
            log_compute: Log seconds that a micro-batch computes; NaN if not measured.
        """
        found = design(X)
        target = seconds(y, len(found))
        start: Floats | None = getattr(self, "z_", None) if self.warm_start else None
        if start is None:
            self.reference_ = float(found[0, 2])
            self.origin_ = float(target[0] - np.log(found[0, 3]))
        mean, precision = self._prior()
        problem = _Problem(
            found, target, relative_error, log_compute, self.reference_, mean, precision
        )
        self.z_, self.covariance_, self.n_iter_ = problem.solve(mean if start is None else start)
        self.bounds_hit_ = tuple(
            name
            for name, z, low, high in zip(PARAMETERS, self.z_, LOWER, UPPER, strict=True)
            if not low < z - self._shift(name) < high
        )
        self.leave_one_out_ = problem.leave_one_out(self.z_)
        self.problem_ = problem
        self.n_features_in_ = found.shape[1]
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return log seconds per optimizer step, with their standard deviation if asked for."""
        check_is_fitted(self)
        times = log_times(self.z_, design(X), self.reference_)
        if not return_std:
            return times.step
        spread = np.einsum("ij,ij->i", times.by_step @ self.covariance_, times.by_step)
        return times.step, np.sqrt(spread + SIGMA**2)

    def predict_compute(self, X: ArrayLike) -> Floats:
        """Return the log seconds of computing one micro-batch."""
        check_is_fitted(self)
        return log_times(self.z_, design(X), self.reference_).compute

    def _shift(self, name: str) -> float:
        return self.origin_ if name == PARAMETERS[0] else 0.0

    def _prior(self) -> tuple[Floats, Floats]:
        mean: Floats = PRIOR_MEAN.copy()
        mean[0] += self.origin_
        mean[1] = np.logaddexp(mean[1], np.log(self.launch_seconds) - self.origin_)
        return mean, np.diag(PRIOR_DEVIATION**-2)


class _Problem:
    """The penalised likelihood of one data set, and its minimum."""

    def __init__(
        self,
        X: Floats,
        y: Floats,
        relative_error: ArrayLike | None,
        log_compute: ArrayLike | None,
        reference: float,
        mean: Floats,
        precision: Floats,
    ) -> None:
        error = np.zeros(len(y)) if relative_error is None else np.asarray(relative_error, float)
        self.X, self.y, self.reference = X, y, reference
        self.mean, self.precision = mean, precision
        self.variance = SIGMA**2 + error**2
        self.compute = np.full(len(y), np.nan) if log_compute is None else np.asarray(log_compute)
        self.seen = np.isfinite(self.compute)
        low, high = LOWER.copy(), UPPER.copy()
        low[0], high[0] = low[0] + mean[0], high[0] + mean[0]
        self.low, self.high = low, high

    def solve(self, start: Floats) -> tuple[Floats, Floats, int]:
        z = np.clip(start, self.low, self.high)
        cost, gradient, curvature = self._around(z)
        damping = 1e-2
        rounds = 0
        while rounds < _ITERATIONS and damping < 1e5:
            rounds += 1
            damped = curvature + damping * np.diag(np.diag(curvature))
            new = np.clip(z + np.linalg.solve(damped, gradient), self.low, self.high)
            found = self._around(new)
            if found[0] < cost:
                gained = cost - found[0]
                z, (cost, gradient, curvature) = new, found
                damping = max(damping / 5, 1e-7)
                if gained < 1e-5:
                    break
            else:
                damping *= 6
        return z, inverse(curvature), rounds

    def leave_one_out(self, z: Floats) -> Floats:
        """Return the leave-one-out residuals: each residual divided by the share that its own row
        did not determine.
        """
        times = log_times(z, self.X, self.reference)
        residual = self.y - times.step
        weight = self._weight(residual, self.variance)
        covariance = inverse(self.curvature(z))
        by = times.by_step
        leverage = weight * np.einsum("ij,jk,ik->i", by, covariance, by)
        found: Floats = residual / np.maximum(1 - leverage, 1e-3)
        return found

    def curvature(self, z: Floats) -> Floats:
        """Return the second derivatives of the cost in Gauss-Newton's approximation."""
        return self._around(z)[2]

    def _around(self, z: Floats) -> tuple[float, Floats, Floats]:
        times = log_times(z, self.X, self.reference)
        away = z - self.mean
        pull = self.precision @ away
        cost, gradient, curvature = float(away @ pull) / 2, -pull, self.precision.copy()
        parts = [(self.y - times.step, self.variance, times.by_step)]
        if self.seen.any():
            miss = (self.compute - times.compute)[self.seen]
            noise = np.full(len(miss), SIGMA_COMPUTE**2)
            parts.append((miss, noise, times.by_compute[self.seen]))
        for miss, variance, by in parts:
            weighted = by * self._weight(miss, variance)[:, None]
            cost += (FREEDOM + 1) / 2 * float(np.log1p(miss**2 / (FREEDOM * variance)).sum())
            gradient = gradient + weighted.T @ miss
            curvature = curvature + weighted.T @ by
        return cost, gradient, curvature

    @staticmethod
    def _weight(miss: Floats, variance: Floats) -> Floats:
        found: Floats = (FREEDOM + 1) / (FREEDOM * variance + miss**2)
        return found
