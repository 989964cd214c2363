"""The physical member: compute, exchange of gradients, and their overlap."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from brain.models.step_time.columns import Floats, design, doublings, seconds

#: Names of the eight parameters, in the order of ``z``.
PARAMETERS = (
    "scale",
    "fixed share of compute",
    "exchange between nodes",
    "its growth with replicas",
    "its contention on a node",
    "exchange within a node",
    "that one's growth",
    "overlap",
)
#: Prior means and deviations; the first is relative to the first step time (models.md section 2.8,
#: chosen by hand). The parameters are dimensionless, so jobs of milliseconds and of seconds share
#: the prior of their exchanges.
PRIOR_MEAN: Floats = np.array([-0.1, -3.0, -1.0, -1.5, 0.2, -2.0, -1.5, -2.0])
PRIOR_DEVIATION: Floats = np.array([2.0, 1.2, 1.5, 1.0, 0.4, 1.5, 1.0, 1.5])
#: Seconds of launching a step's compute, which depend little on the batch: a step of milliseconds
#: is nearly all fixed cost and one of seconds is not. A CPU computes where it launches, so only
#: Python's part of a step remains.
LAUNCH_SECONDS = 0.1
CPU_LAUNCH_SECONDS = 0.005
LOWER = np.array([-9.0, -4.0, -6.0, -4.0, -0.5, -6.0, -4.0, -5.0])
UPPER = np.array([7.0, 4.0, 4.0, 2.5, 1.5, 4.0, 2.5, 5.0])

#: Scale of the residuals of log step time, and of measured log compute time.
SIGMA, SIGMA_COMPUTE = 0.08, 0.05
#: Degrees of freedom of Student's t: a step time that a straggler doubled has little influence.
FREEDOM = 4.0
_ITERATIONS = 30
#: Log exchange relative to log compute where nothing is exchanged: the exchange vanishes.
_NONE = 60.0


@dataclass(frozen=True, slots=True)
class LogTimes:
    """Logarithms of seconds, each with its derivatives by the parameters."""

    step: Floats
    by_step: Floats
    compute: Floats
    by_compute: Floats


class Physical(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Step time as a function of eight dimensionless parameters ``z``, fitted to a handful of
    points.

        T_c = e^z0 [s(z1) + (1 - s(z1)) m / m_ref]                  compute of a micro-batch
        T_x = e^z0 e^z2 (1 + e^z3 L) (N / n)^z4                     exchange over n > 1 nodes
              e^z0 e^z5 (1 + e^z6 L)                                within one node, N > 1
        T   = (T_c^g + T_x^g)^(1/g),  g = 1 + 9 s(z7)               they overlap, more or less
        T_total = (a - 1) T_c + T                                   with accumulation a

    for ``N`` replicas on ``n`` nodes with local batch ``m``; ``s`` is the logistic function and
    ``L = log2(max(N, 2) / 2)``. Log step times err by Student's t with four degrees of freedom
    around this and ``z`` has a Gaussian prior; the fit is the most probable ``z``
    (Levenberg-Marquardt, analytic derivatives, weights renewed each step: Lange, Little and
    Taylor, 1989), its uncertainty Laplace's. Form after Pollux (Qiao et al., OSDI 2021), with
    contention, logarithmic growth and the parametrisation of models.md section 2.8.

    Args:
        launch_seconds: Assumed seconds of launching a step's compute.
        warm_start: Begin at the ``z`` of the previous ``fit``, as scikit-learn means it.

    Attributes:
        z_: The parameters; ``covariance_`` of them.
        reference_: ``m_ref``, the local batch of the first row, kept by a warm start.
        bounds_hit_: Names of parameters that ended at a bound.
        leave_one_out_: Error of each log step time had its row been left out, linearised.

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
        """Return the log seconds that one micro-batch computes."""
        check_is_fitted(self)
        return log_times(self.z_, design(X), self.reference_).compute

    def _shift(self, name: str) -> float:
        return self.origin_ if name == PARAMETERS[0] else 0.0

    def _prior(self) -> tuple[Floats, Floats]:
        mean: Floats = PRIOR_MEAN.copy()
        mean[0] += self.origin_
        mean[1] = np.logaddexp(mean[1], np.log(self.launch_seconds) - self.origin_)
        return mean, np.diag(PRIOR_DEVIATION**-2)


def launch_seconds(accelerator: str) -> float:
    """Return the assumed launch time of a step's compute on a kind of accelerator.

    >>> launch_seconds("cpu"), launch_seconds("NVIDIA A100")
    (0.005, 0.1)
    """
    return CPU_LAUNCH_SECONDS if accelerator == "cpu" else LAUNCH_SECONDS


def log_times(z: Floats, X: Floats, reference: float) -> LogTimes:
    """Evaluate the formula of ``Physical`` and its derivatives at ``z``.

    >>> rows = np.array([[1.0, 1.0, 8.0, 1.0], [1.0, 1.0, 16.0, 1.0]])
    >>> z = np.array([0.0, -40.0, 0, 0, 0, 0, 0, 0])
    >>> np.exp(log_times(z, rows, reference=8.0).step).round(6).tolist()
    [1.0, 2.0]
    """
    nodes, replicas, batch, accumulation = X.T
    count = len(X)
    compute, by_compute = _compute(z, batch / reference)
    exchange, by_exchange = _exchange(z, nodes, replicas, compute)
    s = _logistic(z[7])
    gamma = 1 + 9 * s
    step = _norm(gamma, compute, exchange)
    share = np.exp(gamma * (compute - step))
    by_step = share[:, None] * by_compute + (1 - share)[:, None] * by_exchange
    by_gamma = (share * compute + (1 - share) * exchange - step) / gamma
    by_step[:, 7] = by_gamma * 9 * s * (1 - s)
    if (accumulation > 1).any():
        with np.errstate(divide="ignore"):
            others = np.log(accumulation - 1) + compute
        total = _norm(1.0, others, step)
        part = np.exp(others - total).reshape(count, 1)
        by_step = part * by_compute + (1 - part) * by_step
        step = total
    return LogTimes(step, by_step, compute, by_compute)


def _norm(power: float, one: Floats, other: Floats) -> Floats:
    """Return the logarithm of the norm of two times that are given as logarithms."""
    found = np.logaddexp(power * one, power * other) / power
    return np.asarray(found, dtype=np.float64)


def inverse(matrix: Floats) -> Floats:
    """Return the inverse of a precision or covariance matrix."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _compute(z: Floats, batch: Floats) -> tuple[Floats, Floats]:
    fixed = _logistic(z[1])
    level = fixed + (1 - fixed) * batch
    by = np.zeros((len(batch), len(z)))
    by[:, 0] = 1
    by[:, 1] = fixed * (1 - fixed) * (1 - batch) / level
    return z[0] + np.log(level), by


def _exchange(z: Floats, nodes: Floats, replicas: Floats, compute: Floats) -> tuple[Floats, Floats]:
    rounds, packed = doublings(replicas), np.log(replicas / nodes)
    over, within = nodes > 1, (nodes == 1) & (replicas > 1)
    by = np.zeros((len(nodes), len(z)))
    by[:, 0] = 1
    found = compute - _NONE
    far, near = 1 + np.exp(z[3]) * rounds, 1 + np.exp(z[6]) * rounds
    found = np.where(over, z[0] + z[2] + np.log(far) + z[4] * packed, found)
    found = np.where(within, z[0] + z[5] + np.log(near), found)
    by[:, 2] = over
    by[:, 3] = over * (far - 1) / far
    by[:, 4] = over * packed
    by[:, 5] = within
    by[:, 6] = within * (near - 1) / near
    return found, by


def _logistic(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))


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
        """Return the leave-one-out residuals: each residual divided by the part that its own row
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
