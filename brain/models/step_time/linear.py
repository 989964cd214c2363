"""The log-linear member: a line in logarithms plus a smooth deviation from the line."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from brain.models.step_time.columns import Floats, design, doublings
from brain.models.step_time.physics import inverse

#: Prior of the coefficients of ``features``: step time grows with the square root of the batch. An
#: exchange within a node costs a tenth of a step, and another tenth for each doubling (with half of
#: that, choices on the published tables lost more). The intercept's mean is the data's (after
#: models.md section 2.8, where exchanges were free).
PRIOR_MEAN = np.array([0.0, 0.5, 0, 0.1, 0.12, 0, 0, 0, -0.05, 0])
PRIOR_DEVIATION = np.array([2.0, 0.4, 0.1, 0.3, 0.15, 0.4, 0.15, 0.2, 0.2, 0.2])
#: Deviation of repeated measurements, and of the smooth departure; the latter's length in
#: logarithms (1: a factor of e). Without a departure, eight points make the line overconfident: its
#: error then grows with more data (docs/decisions, the ensemble's record).
NOISE, AMPLITUDE, LENGTH = 0.12, 0.45, 1.0


class SmoothLinear(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Bayesian linear regression plus a smooth departure, both with known priors.

        y = f'w + s(x) + e,    w ~ N(m, P),    s ~ GP(0, a^2 exp(-|x - x'|^2 / 2 l^2))

    in closed form (Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2.7), with
    the leave-one-out errors of their equation 5.12. The results equal those of scikit-learn's
    ``GaussianProcessRegressor`` with that kernel and without an optimizer (a test compares them).
    No parameter is tuned, because there may be only three points. The first ``linear`` columns of
    ``X`` are features ``f``, the others coordinates ``x``; by default every column is both.

    Args:
        prior_mean: Prior mean of the coefficients; zeros if None.
        prior_covariance: Prior covariance of the coefficients; the identity if None.
        amplitude: ``a``; with 0 there is only the line.
        length: ``l``.
        noise: Standard deviation of ``e``.
        linear: Number of columns that are features; all if None.

    Attributes:
        coef_: Mean of the coefficients.
        leave_one_out_: For each row, ``y`` minus the prediction of a fit to all other rows.
    """

    def __init__(
        self,
        *,
        prior_mean: Floats | None = None,
        prior_covariance: Floats | None = None,
        amplitude: float = AMPLITUDE,
        length: float = LENGTH,
        noise: float = NOISE,
        linear: int | None = None,
    ) -> None:
        self.prior_mean = prior_mean
        self.prior_covariance = prior_covariance
        self.amplitude = amplitude
        self.length = length
        self.noise = noise
        self.linear = linear

    def fit(self, X: ArrayLike, y: ArrayLike, relative_error: ArrayLike | None = None) -> Self:
        """Fit to ``y`` at the rows of ``X``; ``relative_error`` adds to the noise, row by row."""
        rows, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        error = np.zeros(len(rows)) if relative_error is None else np.asarray(relative_error)
        features = self._features(rows)
        self.mean_, self.spread_ = self._prior(features.shape[1])
        self.rows_: Floats = rows
        cover = self._kernel(rows, rows) + np.diag(self.noise**2 + error**2)
        self.inverse_ = inverse(cover)
        self.pull_: Floats = self.inverse_ @ (target - features @ self.mean_)
        self.coef_ = self.mean_ + self.spread_ @ features.T @ self.pull_
        self.leave_one_out_ = self.pull_ / np.diag(self.inverse_)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return the mean at each row; with ``return_std``, return also its standard deviation,
        which includes the noise.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        features, across = self._features(rows), self._kernel(rows, self.rows_)
        mean = features @ self.mean_ + across @ self.pull_
        if not return_std:
            return mean
        alone = np.einsum("ij,ij->i", features @ self.spread_, features) + self.amplitude**2
        known = np.einsum("ij,ij->i", across @ self.inverse_, across)
        return mean, np.sqrt(np.maximum(alone - known, 0.0) + self.noise**2)

    def _features(self, X: Floats) -> Floats:
        return X[:, : self.linear]

    def _kernel(self, one: Floats, other: Floats) -> Floats:
        straight = self._features(one) @ self.spread_ @ self._features(other).T
        start = self.linear or 0
        gaps = one[:, None, start:] - other[None, :, start:]
        away = np.einsum("ijk,ijk->ij", gaps, gaps)
        found: Floats = straight + self.amplitude**2 * np.exp(-away / (2 * self.length**2))
        return found

    def _prior(self, width: int) -> tuple[Floats, Floats]:
        mean = np.zeros(width) if self.prior_mean is None else np.asarray(self.prior_mean)
        if self.prior_covariance is None:
            return mean, np.eye(width)
        return mean, np.asarray(self.prior_covariance)


def features(X: ArrayLike, reference: float) -> Floats:
    """Return the features of which log step time is a linear function (models.md section 2.8).

        1, u, min(u, 3)^2 / 4, s, s L, i, i L, i ln(N / n), u s, u i

    with ``u = ln(local batch / reference)``, which is clipped to at least -3 before it is squared,
    ``L`` the doublings of replicas beyond two, ``s`` and ``i`` flags of an exchange within one node
    and over several. Accumulation is not a feature, because the estimator gets the micro-step that
    synchronises.

    >>> features(np.array([[1.0, 1.0, 8.0, 1.0]]), reference=8.0).tolist()
    [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    nodes, replicas, batch, _ = design(X).T
    u, rounds = np.log(batch / reference), doublings(replicas)
    over = (nodes > 1).astype(float)
    within = ((nodes == 1) & (replicas > 1)).astype(float)
    return np.column_stack(
        [
            np.ones(len(u)),
            u,
            np.clip(u, -3.0, 3.0) ** 2 / 4,
            within,
            within * rounds,
            over,
            over * rounds,
            over * np.log(replicas / nodes),
            u * within,
            u * over,
        ]
    )


def coordinates(X: ArrayLike) -> Floats:
    """Return the coordinates in which the departure from the line is smooth.

    They are the logarithms of batch, replicas and nodes.
    """
    nodes, replicas, batch, _ = design(X).T
    return np.column_stack([np.log(batch), np.log(replicas), np.log(nodes)])
