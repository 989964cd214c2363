"""The input of the estimators of step time: four columns, one row per configuration."""

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

    For a job that is also tensor- or pipeline-parallel, ``replicas`` is its data-parallel degree,
    and ``nodes`` counts the nodes that one gradient exchange spans.
    """

    nodes: int
    replicas: int
    #: Examples of one micro-batch of one replica.
    local_batch: float
    #: Micro-batches per optimizer step, at least 1.
    accumulation: int = 1

    @property
    def batch(self) -> float:
        """Return the examples per optimizer step over all replicas."""
        return self.replicas * self.local_batch * self.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The measured step time of a configuration."""

    configuration: Configuration
    step_seconds: float
    #: Relative standard error of the step time.
    relative_error: float = 0.0
    #: Seconds that one micro-batch computes without waiting for others; None if not measured.
    compute_seconds: float | None = None
    #: Share of a step that waits for data.
    wait_share: float = 0.0


def rows(configurations: Sequence[Configuration]) -> Floats:
    """Return one row per configuration.

    >>> rows([Configuration(nodes=1, replicas=4, local_batch=32)]).tolist()
    [[1.0, 4.0, 32.0, 1.0]]
    """
    found = [(c.nodes, c.replicas, c.local_batch, c.accumulation) for c in configurations]
    return np.array(found, dtype=np.float64).reshape(-1, len(COLUMNS))


def design(X: ArrayLike) -> Floats:
    """Return ``X`` as floats; raise an error for rows that are not configurations.

    Raises:
        ValueError: the number of columns is wrong, a value is not finite, a row has fewer replicas
            than nodes, a batch size is not above 0, or another value is below 1.
    """
    found: Floats = np.asarray(X, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != len(COLUMNS):
        raise ValueError(f"X has shape {found.shape}; it needs the columns {', '.join(COLUMNS)}")
    if not np.isfinite(found).all():
        raise ValueError("X has NaN or infinity; leave out configurations without a measurement")
    nodes, replicas, batch, accumulation = found.T
    if len(found) and (min(nodes.min(), accumulation.min()) < 1 or batch.min() <= 0):
        raise ValueError("nodes and accumulation must be at least 1, and the local batch above 0")
    if (replicas < nodes).any():
        raise ValueError("there are fewer replicas than nodes; leave out nodes without a replica")
    return found


def seconds(y: ArrayLike, count: int) -> Floats:
    """Return the log seconds ``y`` as floats.

    Raises:
        Undetermined: there are no times.
        ValueError: a value is not finite, or ``y`` and the configurations differ in number.
    """
    found: Floats = np.asarray(y, dtype=np.float64)
    if found.shape != (count,):
        raise ValueError(
            f"y has shape {found.shape}, but X has {count} configurations; give one step time "
            "for each"
        )
    if not count:
        raise Undetermined("no configuration was measured; measure one", code="no-steps")
    if not np.isfinite(found).all():
        raise ValueError("y has NaN or infinity; give positive seconds per step")
    return found


def doublings(replicas: Floats) -> Floats:
    """Return the number of doublings of the replicas beyond two.

    Each doubling adds a step to an exchange over a tree or ring.

    >>> doublings(np.array([1.0, 2.0, 8.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    found: Floats = np.log2(np.maximum(replicas, 2.0) / 2)
    return found


def micro_step(log_seconds: Floats, accumulation: Floats, log_compute: Floats) -> Floats:
    """Return the log seconds of the micro-step that synchronises, computed from the log seconds of
    the whole optimizer step.

    The other micro-steps take ``log_compute`` each, and the one that synchronises takes at least as
    long.

    >>> five = np.log(np.array([5.0])); one = np.log(np.array([1.0]))
    >>> np.exp(micro_step(five, np.array([4.0]), one)).round(6).tolist()
    [2.0]
    """
    others = (accumulation - 1) * np.exp(log_compute)
    rest: Floats = np.maximum(np.exp(log_seconds) - others, np.exp(log_compute))
    return np.where(accumulation > 1, np.log(rest), log_seconds)


def whole_step(log_micro: Floats, accumulation: Floats, log_compute: Floats) -> Floats:
    """Return the log seconds of an optimizer step: the inverse of ``micro_step``.

    >>> two, one = np.log(np.array([2.0])), np.log(np.array([1.0]))
    >>> np.exp(whole_step(two, np.array([4.0]), one)).round(6).tolist()
    [5.0]
    """
    with np.errstate(divide="ignore"):
        others = np.log(accumulation - 1) + log_compute
    found: Floats = np.logaddexp(others, log_micro)
    return found
