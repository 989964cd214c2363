"""The step-time model that Sia's agents fit, one per kind of accelerator, and its predictions.

The model has seven parameters (Pollux; ``benchmarks.models.peers``), fitted to all measurements of
a job on a kind. Goodput is throughput times statistical efficiency, with the best of 50 global
batch sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.models.peers import Pollux

Floats = NDArray[np.float64]

#: Nodes, replicas and local batch of what was run: seconds of its step and synchronisation.
Profile = Mapping[tuple[int, int, int], tuple[float, float]]
#: Stops the fit where the artifact does.
TOLERANCE = 1e-5
_TRIED = 50
_EPSILON = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """The last measured squared norm and variance of gradients, and their batch size."""

    square: float
    variance: float
    first_batch: int

    def gain(self, batch: Floats) -> Floats:
        """Return how many steps with the first batch size one step of ``batch`` replaces."""
        scale = batch / self.first_batch
        denominator = self.variance / scale + self.square
        safe = np.where(denominator > 0, denominator, 1.0)
        return np.where(denominator > 0, (self.variance + self.square) / safe, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The batch sizes that may be tried: the largest global one, and the limits of one GPU."""

    largest: int
    smallest_local: int
    largest_local: int


def fitted(profile: Profile) -> Pollux:
    """Return the model of the measurements on one kind."""
    found = Pollux(tolerance=TOLERANCE)
    X = np.array([(*key, 1) for key in profile], dtype=np.float64)
    step, sync = np.array(list(profile.values())).T
    found.fit(X, step, step - sync)
    return found


def candidates(
    nodes: ArrayLike,
    replicas: ArrayLike,
    first_batch: int,
    limits: Limits,
    tried: int = _TRIED,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return nodes, replicas, local batch sizes and micro-batches per step to try, as arrays of
    shape (tried, sizes).
    """
    count = np.atleast_1d(np.asarray(replicas, dtype=np.float64))
    smallest = np.maximum(first_batch, limits.smallest_local * count)
    share = np.geomspace(smallest, np.full_like(smallest, limits.largest), tried) / count
    micro = np.ceil(share / limits.largest_local - _EPSILON)
    # One replica sees its gradients' noise only across micro-batches.
    lonely = (count == 1) & (share > first_batch + _EPSILON)
    micro = np.maximum(micro, np.where(lonely, 2.0, 1.0))
    local = np.ceil(share / micro - _EPSILON)
    spread = np.broadcast_to(np.asarray(nodes, dtype=np.float64), local.shape)
    return spread, np.broadcast_to(count, local.shape), local, micro


def best(
    model: Pollux, gradients: Gradients, nodes: ArrayLike, replicas: ArrayLike, limits: Limits
) -> tuple[Floats, Floats, Floats]:
    """Return the goodput of each size (examples of the first batch size per second), its local
    batch size, and its micro-batches.
    """
    on, count, local, micro = candidates(nodes, replicas, gradients.first_batch, limits)
    seconds = step_seconds(model, on, count, local, micro)
    goodput = gradients.first_batch * gradients.gain(count * local * micro) / seconds
    allowed = (limits.smallest_local <= local) & (local <= limits.largest_local)
    goodput = np.where(allowed, goodput, 0.0)
    at = goodput.argmax(axis=0), np.arange(goodput.shape[1])
    return goodput[at], local[at], micro[at]


def step_seconds(
    model: Pollux, nodes: Floats, replicas: Floats, local: Floats, micro: Floats
) -> Floats:
    """Return the seconds of a step with accumulation; only the last micro-batch synchronises."""
    a, b, far, far_more, near, near_more, gamma = model.parameters
    compute = a + b * local
    more = np.maximum(replicas - 2, _EPSILON)
    network = np.where(
        nodes > 1,
        far + far_more * more,
        np.where(replicas > 1, near + near_more * more, _EPSILON * (1 + more)),
    )
    last = np.exp(np.logaddexp(*(gamma * np.log([compute, network]))) / gamma)
    return np.asarray((micro - 1) * compute + last)
