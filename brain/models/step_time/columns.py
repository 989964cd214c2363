"""Input of the estimators of step time: four columns, one row per configuration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brain.errors import Undetermined

Floats = NDArray[np.float64]

#: Columns of ``X``, in this order.
COLUMNS = ("nodes", "replicas", "local_batch", "accumulation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration of a job: data-parallel replicas on nodes, with a batch each.

    A job that is also tensor- or pipeline-parallel counts its data-parallel degree as ``replicas``,
    and as ``nodes`` those that one gradient exchange spans.
    """

    nodes: int
    replicas: int
    #: Examples of one micro-batch of one replica.
    local_batch: float
    #: Micro-batches per optimizer step, at least 1.
    accumulation: int = 1

    @property
    def batch(self) -> float:
        """Examples per optimizer step over all replicas."""
        return self.replicas * self.local_batch * self.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The measured step time of a configuration."""

    configuration: Configuration
    step_seconds: float
    #: Standard error of the step time as a share of it.
    relative_error: float = 0.0
    #: Seconds that one micro-batch computes without waiting for others; None where not measured.
    compute_seconds: float | None = None
    #: Share of a step that waits for data.
    wait_share: float = 0.0


def rows(configurations: Sequence[Configuration]) -> Floats:
    """One row per configuration.

    >>> rows([Configuration(nodes=1, replicas=4, local_batch=32)]).tolist()
    [[1.0, 4.0, 32.0, 1.0]]
    """
    found = [(c.nodes, c.replicas, c.local_batch, c.accumulation) for c in configurations]
    return np.array(found, dtype=np.float64).reshape(-1, len(COLUMNS))


def design(X: ArrayLike) -> Floats:
    """Return ``X`` as floats, refusing what is no configuration.

    Raises:
        ValueError: another number of columns, a value that is not finite, fewer replicas than
            nodes, or anything below 1 (a batch: at or below 0).
    """
    found: Floats = np.asarray(X, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != len(COLUMNS):
        raise ValueError(f"X has shape {found.shape}; it needs the columns {', '.join(COLUMNS)}")
    if not np.isfinite(found).all():
        raise ValueError("X holds NaN or infinity; leave out what was not measured")
    nodes, replicas, batch, accumulation = found.T
    if len(found) and (min(nodes.min(), accumulation.min()) < 1 or batch.min() <= 0):
        raise ValueError("nodes and accumulation begin at 1, a local batch above 0")
    if (replicas < nodes).any():
        raise ValueError("fewer replicas than nodes; a node without a replica is none of the job's")
    return found


def seconds(y: ArrayLike, count: int) -> Floats:
    """Return log seconds as floats.

    Raises:
        Undetermined: there are none.
        ValueError: a value is not finite, or there are more or fewer than configurations.
    """
    found: Floats = np.asarray(y, dtype=np.float64)
    if found.shape != (count,):
        raise ValueError(f"y has shape {found.shape} for {count} configurations")
    if not count:
        raise Undetermined("no configuration was measured; measure one", code="no-steps")
    if not np.isfinite(found).all():
        raise ValueError("y holds NaN or infinity; step times are positive seconds")
    return found


def doublings(replicas: Floats) -> Floats:
    """Return how often the replicas doubled beyond two: the rounds that a tree or ring adds.

    >>> doublings(np.array([1.0, 2.0, 8.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    found: Floats = np.log2(np.maximum(replicas, 2.0) / 2)
    return found


def micro_step(log_seconds: Floats, accumulation: Floats, log_compute: Floats) -> Floats:
    """Log seconds of the one micro-step that synchronises, out of those of an optimizer step.

    The others take ``log_compute`` each; a step that would leave less than that for the last one
    leaves exactly that.

    >>> five = np.log(np.array([5.0])); one = np.log(np.array([1.0]))
    >>> np.exp(micro_step(five, np.array([4.0]), one)).round(6).tolist()
    [2.0]
    """
    others = (accumulation - 1) * np.exp(log_compute)
    rest: Floats = np.maximum(np.exp(log_seconds) - others, np.exp(log_compute))
    return np.where(accumulation > 1, np.log(rest), log_seconds)


def whole_step(log_micro: Floats, accumulation: Floats, log_compute: Floats) -> Floats:
    """Log seconds of an optimizer step: inverse of ``micro_step``.

    >>> two, one = np.log(np.array([2.0])), np.log(np.array([1.0]))
    >>> np.exp(whole_step(two, np.array([4.0]), one)).round(6).tolist()
    [5.0]
    """
    with np.errstate(divide="ignore"):
        others = np.log(accumulation - 1) + log_compute
    found: Floats = np.logaddexp(others, log_micro)
    return found
