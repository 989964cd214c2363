"""The published fits of Pollux and Optimus, re-implemented from their descriptions.

``Pollux`` (Qiao et al., OSDI 2021, and the artifact's ``fit_perf_params``) has seven parameters,
the root mean squared logarithmic error, two regularisers, bounds, a start, and rules for effects
that were not observed. It uses L-BFGS-B; the gradient is analytic here instead of automatic.
``Optimus`` (Peng et al., EuroSys 2018) models step time as a non-negative combination of costs of
batch size and replicas.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

Floats = NDArray[np.float64]


class Pollux:
    """T = ((a_c + b_c m)^g + T_net^g)^(1/g), T_net = a + b max(N - 2, 0) by node or within.

    ``tolerance`` ends the search early, as Sia's artifact does (1e-5).
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self.tolerance = tolerance

    def fit(self, X: Floats, step_seconds: Floats, compute_seconds: Floats | None = None) -> None:
        """Fit the parameters; without ``compute_seconds`` the error has no compute term."""
        nodes, replicas, batch = X[:, 0], X[:, 1], X[:, 2]
        start = np.array([1e-1, 1e-2] * 3 + [1.0 + 1e-3])
        lower = np.array([1e-8] * 6 + [1.0])
        upper = np.array([np.inf] * 6 + [10.0])
        if len(np.unique(batch)) == 1:
            known = step_seconds if compute_seconds is None else compute_seconds
            start[0] = lower[0] = upper[0] = known.mean() / 2
        over, within = nodes > 1, (nodes == 1) & (replicas > 1)
        unseen = [2, 3] * (not over.any()) + [4, 5] * (not within.any())
        unseen += [3, 5] * (not (replicas > 2).any())
        start[unseen] = upper[unseen] = lower[unseen]
        with np.errstate(over="ignore", invalid="ignore"):
            found = minimize(
                self._objective,
                start,
                args=(X, np.log(step_seconds), compute_seconds),
                jac=True,
                bounds=list(zip(lower, upper, strict=True)),
                method="L-BFGS-B",
                tol=self.tolerance,
            )
        self.parameters = np.array(found.x)
        if not over.any():
            self.parameters[2] = max(self.parameters[2], self.parameters[4] * 1.1)
            self.parameters[3] = max(self.parameters[3], self.parameters[5] * 1.1)

    def predict(self, X: Floats) -> Floats:
        """Return the seconds per step."""
        return np.exp(self._log_times(self.parameters, X)[0])

    def _objective(
        self, p: Floats, X: Floats, log_step: Floats, compute: Floats | None
    ) -> tuple[float, Floats]:
        log_t, by, log_c, by_c = self._log_times(p, X)
        cost, gradient = _rmse(log_t - log_step, by)
        if compute is not None:
            more, slope = _rmse(log_c - np.log(compute), by_c)
            cost, gradient = cost + more, gradient + slope
        cost += 1e-3 * (p[6] - 1) ** 2
        gradient[6] += 2e-3 * (p[6] - 1)
        for a, b in ((2, 3), (4, 5)):
            ratio = p[b] / p[a]
            cost += 1e-2 * ratio**2
            gradient[b] += 2e-2 * ratio / p[a]
            gradient[a] -= 2e-2 * ratio**2 / p[a]
        return cost, gradient

    @staticmethod
    def _log_times(p: Floats, X: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        nodes, replicas, batch = X[:, 0], X[:, 1], X[:, 2]
        over, within = nodes > 1, (nodes == 1) & (replicas > 1)
        alone = ~(over | within)
        extra = np.maximum(replicas - 2, 1e-8)
        compute = p[0] + p[1] * batch
        a = np.where(over, p[2], np.where(within, p[4], 1e-8))
        b = np.where(over, p[3], np.where(within, p[5], 1e-8))
        network = a + b * extra
        gamma = p[6]
        log_c, log_n = np.log(compute), np.log(network)
        log_t = np.logaddexp(gamma * log_c, gamma * log_n) / gamma
        share = np.exp(gamma * (log_c - log_t))
        zero = np.zeros_like(batch)
        by_c = np.column_stack([1 / compute, batch / compute, *[zero] * 5])
        by_n = np.column_stack(
            [zero, zero, over, over * extra, within, within * extra, zero]
        ) / np.where(alone, 1.0, network).reshape(-1, 1)
        by = share[:, None] * by_c + (1 - share)[:, None] * by_n
        by[:, 6] = (share * log_c + (1 - share) * log_n - log_t) / gamma
        return log_t, by, log_c, by_c


class Optimus:
    """T = c . (1, m, 1 / N, log N, N - 1 over nodes) with c >= 0, weighted by 1 / T."""

    def fit(self, X: Floats, step_seconds: Floats, compute_seconds: Floats | None = None) -> None:
        """Minimise the relative errors by non-negative least squares."""
        del compute_seconds
        columns = self._columns(X) / step_seconds[:, None]
        self.parameters, _ = nnls(columns, np.ones(len(columns)))

    def predict(self, X: Floats) -> Floats:
        """Return the seconds per step."""
        return np.maximum(self._columns(X) @ self.parameters, 1e-9)

    @staticmethod
    def _columns(X: Floats) -> Floats:
        nodes, replicas, batch = X[:, 0], X[:, 1], X[:, 2]
        more = replicas > 1
        return np.column_stack(
            [np.ones_like(batch), batch, more, more * replicas, (nodes > 1) * replicas]
        )


def _rmse(miss: Floats, by: Floats) -> tuple[float, Floats]:
    cost = float(np.sqrt((miss**2).mean()))
    return cost, by.T @ miss / (len(miss) * max(cost, 1e-12))
