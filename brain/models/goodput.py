"""Goodput (throughput times statistical efficiency), and the best batch size at a job size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.models.efficiency import NoiseByBatch, efficiency
from brain.models.fitting import Z90
from brain.models.step_time.columns import Configuration, Floats, rows
from brain.types.recommendation import Prediction

#: Number of global batches tried between the smallest and the largest, evenly in logarithms.
_TRIED = 50


class StepTimePredictor(Protocol):
    """A predictor of step times: ``StepTime``, or ``OnAccelerator`` for one kind of device."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the log seconds per optimizer step of each row; if asked for, also the standard
        deviation.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batch sizes that a job may have, and the noise scale, which gives the value of their
    examples.
    """

    #: Global batch that the job was submitted with; larger batches are judged against it.
    first: float
    #: Largest global batch that the owner allows; ``first`` if the batch must stay.
    largest: float
    #: Local batches that the device holds and the script takes.
    smallest_local: float = 1.0
    largest_local: float = math.inf
    #: Gradient noise scale; None if it is not reported.
    noise: float | NoiseByBatch | None = None

    @property
    def top(self) -> float:
        """Return the largest global batch size that may be chosen; without a noise scale, the first
        batch size.
        """
        return self.first if self.noise is None else max(self.first, self.largest)

    def spread(self, copies: int) -> bool:
        """Return True if an allowed batch size gives each of ``copies`` at least the smallest local
        batch.
        """
        return max(self.first, self.smallest_local * copies) <= self.top * (1 + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The goodput of a job size with its best batch size."""

    configuration: Configuration
    #: Useful examples per second, in examples of the first batch, with a 90 % band.
    prediction: Prediction
    efficiency: float


def goodput(
    times: StepTimePredictor, configurations: Sequence[Configuration], batches: Batches
) -> list[Goodput]:
    """Return the goodput of each configuration.

    goodput = N m a / T(n, N, m, a) * E(N m a)        (Pollux, equation 6)

    for ``N`` replicas on ``n`` nodes, local batch ``m``, ``a`` micro-batches, and step time ``T``.
    """
    if not configurations:
        return []
    mean, spread = times.predict(rows(configurations), return_std=True)
    batch = np.array([one.batch for one in configurations])
    worth = efficiency(batch, first_batch=batches.first, noise=batches.noise)
    log_rate = np.log(batch * worth) - mean
    return [
        Goodput(
            configuration=one,
            prediction=_prediction(center, deviation),
            efficiency=float(share),
        )
        for one, center, deviation, share in zip(
            configurations, log_rate, spread, worth, strict=True
        )
    ]


def best(times: StepTimePredictor, nodes: int, replicas: int, batches: Batches) -> Goodput:
    """Return the configuration with the most expected goodput for ``replicas`` on ``nodes``.

    Raises:
        Undetermined: no allowed batch can be spread over ``replicas``.
    """
    found = curve(times, [(nodes, replicas)], batches)[0]
    if found is None:
        raise Undetermined(
            f"no batch from {batches.first:g} to {batches.top:g} examples splits over {replicas} "
            f"replicas with local batches from {batches.smallest_local:g} to "
            f"{batches.largest_local:g}; widen these ranges or take fewer replicas",
            code="no-batch",
        )
    return found


def curve(
    times: StepTimePredictor, sizes: Sequence[tuple[int, int]], batches: Batches
) -> list[Goodput | None]:
    """Return the goodput of each size (nodes, replicas) with its best batch size.

    The goodput is None at a size where no batch size is allowed.

    All sizes are predicted in one call, because an allocator needs dozens of sizes for every job.
    """
    if not sizes:
        return []
    table, allowed = candidates(sizes, batches)
    shape = allowed.shape
    mean, spread = times.predict(table.reshape(-1, 4), return_std=True)
    batch = np.prod(table[..., 1:], axis=-1)
    worth = efficiency(batch, first_batch=batches.first, noise=batches.noise)
    log_rate = np.where(allowed, np.log(batch * worth) - mean.reshape(shape), -np.inf)
    at = np.arange(len(sizes)), log_rate.argmax(axis=1)
    return [
        Goodput(
            configuration=_configuration(row),
            prediction=_prediction(float(center), float(deviation)),
            efficiency=float(share),
        )
        if np.isfinite(center)
        else None
        for row, center, deviation, share in zip(
            table[at], log_rate[at], spread.reshape(shape)[at], worth[at], strict=True
        )
    ]


def chosen(
    times: StepTimePredictor, sizes: Sequence[tuple[int, int]], batches: Batches
) -> list[Configuration]:
    """Return the configuration with the most goodput at each size (nodes, replicas).

    If no batch size is allowed at a size, its configuration has the first batch size, rounded up to
    whole examples for each replica.
    """
    return [
        Configuration(
            nodes=nodes,
            replicas=replicas,
            local_batch=math.ceil(batches.first / replicas),
            accumulation=1,
        )
        if found is None
        else found.configuration
        for (nodes, replicas), found in zip(sizes, curve(times, sizes, batches), strict=True)
    ]


def candidates(
    sizes: Sequence[tuple[int, int]], batches: Batches
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return rows for ``StepTime`` with the batch sizes to try at each size, and for each row
    whether it is allowed.

    If a replica's share of the batch does not fit the device, the share is split evenly into
    micro-batches. Local batch sizes are whole numbers, so a global batch may exceed the requested
    one by less than one example per micro-batch.

    Returns:
        Arrays of shape (sizes, tried, 4) and (sizes, tried).

    >>> rows, allowed = candidates([(1, 2)], Batches(first=128, largest=128, largest_local=32))
    >>> rows[allowed].tolist()
    [[1.0, 2.0, 32.0, 2.0]]
    """
    nodes, replicas = np.array(sizes, dtype=np.float64).T[:, :, None]
    smallest = np.maximum(batches.first, batches.smallest_local * replicas)
    top = batches.top * (1 + 1e-9)
    steps = np.linspace(0, 1, _TRIED if batches.top > batches.first else 1)
    share = smallest * (np.maximum(top, smallest) / smallest) ** steps / replicas
    accumulation = np.maximum(1.0, np.ceil(share / batches.largest_local - 1e-6))
    local = np.ceil(share / accumulation - 1e-6)
    allowed = (smallest <= top) & (local >= batches.smallest_local)
    allowed = allowed & (local <= batches.largest_local)
    table = np.stack(np.broadcast_arrays(nodes, replicas, local, accumulation), axis=-1)
    return table, allowed


def _configuration(row: Floats) -> Configuration:
    return Configuration(
        nodes=int(row[0]),
        replicas=int(row[1]),
        local_batch=float(row[2]),
        accumulation=int(row[3]),
    )


def rate(times: StepTimePredictor, configuration: Configuration) -> Prediction:
    """Return the throughput of a configuration in examples per second, without its statistical
    efficiency, with a 90 % band.
    """
    mean, spread = times.predict(rows([configuration]), return_std=True)
    return _prediction(math.log(configuration.batch) - float(mean[0]), float(spread[0]))


def _prediction(log_rate: float, deviation: float) -> Prediction:
    half = Z90 * deviation
    return Prediction(
        examples_per_second=math.exp(log_rate),
        low=math.exp(log_rate - half),
        high=math.exp(log_rate + half),
    )
