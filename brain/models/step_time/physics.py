"""The physical member's formula: compute, exchange of gradients, and their overlap."""

from dataclasses import dataclass

import numpy as np

from brain.models.step_time.columns import Floats, doublings

#: Names of the eight parameters, in the order of ``z``.
PARAMETERS = (
    "scale",
    "fixed share of compute",
    "exchange between nodes",
    "growth of that exchange with replicas",
    "contention for that exchange on a node",
    "exchange within a node",
    "growth of the exchange within a node with replicas",
    "overlap",
)
#: Prior means and deviations; the first is relative to the first step time (models.md section 2.8,
#: chosen by hand). The parameters are dimensionless, so jobs of milliseconds and of seconds share
#: the prior of their exchanges.
PRIOR_MEAN: Floats = np.array([-0.1, -3.0, -1.0, -1.5, 0.2, -2.0, -1.5, -2.0])
PRIOR_DEVIATION: Floats = np.array([2.0, 1.2, 1.5, 1.0, 0.4, 1.5, 1.0, 1.5])
#: Seconds to launch a step's compute, which depend little on the batch: they dominate a step of
#: milliseconds, but not one of seconds. A CPU computes without launches, so only Python's part of a
#: step remains.
LAUNCH_SECONDS = 0.1
CPU_LAUNCH_SECONDS = 0.005
LOWER = np.array([-9.0, -4.0, -6.0, -4.0, -0.5, -6.0, -4.0, -5.0])
UPPER = np.array([7.0, 4.0, 4.0, 2.5, 1.5, 4.0, 2.5, 5.0])

#: Scale of the residuals of log step time, and of measured log compute time.
SIGMA, SIGMA_COMPUTE = 0.08, 0.05
#: Log exchange relative to log compute if nothing is exchanged: small enough to vanish.
_NONE = 60.0


@dataclass(frozen=True, slots=True)
class LogTimes:
    """Logarithms of seconds, each with its derivatives with respect to the parameters."""

    step: Floats
    by_step: Floats
    compute: Floats
    by_compute: Floats


def launch_seconds(accelerator: str) -> float:
    """Return the assumed seconds of kernel launches in a step on a kind of accelerator.

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
