"""What Brain knows of a job's speed: measurements kept, goodput predicted for every shape.

A shape is how many replicas a job has and over how many nodes they are spread. Step times are
predicted by ``brain.models.step_time`` and corrected where the shape was measured; gradient noise
is taken from where it was measured nearest, in epochs and in batch size. One experience belongs to
one job, or, with a history, to all jobs that share a name: it begins empty in every run.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.jct.pollux import Job, Sight
from brain.models.efficiency import LARGEST, SMALLEST, efficiency
from brain.models.step_time.ensemble import StepTime

Floats = NDArray[np.float64]

#: Replicas that a job may have.
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Batches tried at each shape, evenly in logarithms.
_TRIED = 24
#: Local batches of one shape closer than this teach nothing new.
_ALIKE = math.log(1.25)
#: Over how many epochs, and over what factor of batch size, gradient noise stays alike.
_EPOCHS, _BATCHES = 2.0, 0.5
#: Deviation of log step time at a shape that was measured.
_MEASURED = 0.03
_EPSILON = 1e-8

Shape = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a job's script declares: the batches that it can train with."""

    first: int
    largest: int
    smallest_local: int
    largest_local: int
    #: Replicas that it can have at most.
    most: int

    @classmethod
    def of(cls, job: Job) -> "Bounds":
        """Those of a job; one whose batch is fixed at the start keeps it."""
        table = job.application
        fixed = job.batch
        return cls(
            first=fixed or table.first_batch,
            largest=fixed or table.largest_batch,
            smallest_local=table.smallest_local,
            largest_local=table.largest_local,
            most=1 if fixed else min(64, table.largest_batch // table.smallest_local),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Every shape with the batches to try at it: S shapes, B batches."""

    #: Shape (S, 1).
    nodes: Floats
    replicas: Floats
    #: Shape (S, B).
    local: Floats
    micro: Floats
    allowed: NDArray[np.bool_]
    index: dict[Shape, int]

    @cached_property
    def sizes(self) -> tuple[Floats, NDArray[np.int64]]:
        """Different batches, rising, and which of them is where in ``batch``, in one row."""
        found, back = np.unique(self.batch, return_inverse=True)
        return found, back.reshape(-1)

    @property
    def batch(self) -> Floats:
        """Examples per step, shape (S, B)."""
        return self.replicas * self.local * self.micro

    @property
    def rows(self) -> Floats:
        """A row for ``StepTime`` each, with one micro-batch."""
        columns = (self.nodes, self.replicas, self.local, np.ones(1))
        return np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, 4)


@lru_cache
def grid(bounds: Bounds, nodes: int, per_node: int) -> Grid:
    """The grid of a job on a cluster of equal nodes."""
    shapes = list(_shapes(bounds, nodes, per_node))
    count = np.array([n for _, n in shapes], dtype=np.float64)[:, None]
    replicas = np.array([size for size, _ in shapes], dtype=np.float64)[:, None]
    least = np.maximum(bounds.first, bounds.smallest_local * replicas)
    steps = np.linspace(0, 1, _TRIED if bounds.largest > bounds.first else 1)
    each = np.ceil(least * (bounds.largest / least) ** steps / replicas - _EPSILON)
    micro = np.ceil(each / bounds.largest_local - _EPSILON)
    alone = (replicas == 1) & (each > bounds.first)
    micro = np.where(alone, np.maximum(2, micro), micro)
    local = np.ceil(each / micro - _EPSILON)
    local = np.minimum(local, np.floor(bounds.largest / (replicas * micro)))
    allowed = (bounds.smallest_local <= local) & (local <= bounds.largest_local)
    allowed &= replicas * local * micro >= bounds.first
    return Grid(
        nodes=count,
        replicas=replicas,
        local=np.maximum(local, 1),
        micro=micro,
        allowed=allowed,
        index={shape: index for index, shape in enumerate(shapes)},
    )


def _shapes(bounds: Bounds, nodes: int, per_node: int) -> Iterator[Shape]:
    for size in SIZES:
        if size <= min(bounds.most, nodes * per_node):
            for spread in range(math.ceil(size / per_node), min(size, nodes) + 1):
                yield size, spread


@dataclass(slots=True, kw_only=True)
class Speed:
    """What every shape achieves with its best batch; arrays of shape (S,)."""

    #: Useful examples a second, 0 where no batch is allowed, and deviation of their logarithm.
    goodput: Floats
    deviation: Floats
    batch: Floats


@dataclass(slots=True, kw_only=True)
class Experience:
    """Measurements of one job, or of all that share a name."""

    grid: Grid
    #: Batch that an example is counted in.
    first: int
    #: By shape and local batch: log seconds of a micro-step that synchronises, and of its compute.
    times: dict[Shape, dict[int, tuple[float, float]]] = field(default_factory=dict)
    #: Gradient noise in examples by epoch, then batch.
    noise: dict[int, dict[int, float]] = field(default_factory=dict)
    most_replicas: int = 0
    _model: StepTime = field(default_factory=lambda: StepTime(warm_start=True))
    _seconds: tuple[Floats, Floats] | None = None
    #: By epoch; and how far from it, in epochs, noise was measured nearest.
    _speeds: dict[int, tuple[float, Speed]] = field(default_factory=dict)
    #: How much a batch that was measured says about each size of the grid.
    _alike: dict[int, Floats] = field(default_factory=dict)

    def add(self, sight: Sight) -> None:
        """Keep what was measured, if it is new."""
        batch = sight.replicas * sight.local_batch * sight.accumulation
        if sight.square > 0 and batch not in self.noise.get(sight.epoch, ()):
            noise = self.first * sight.variance / sight.square
            self.noise.setdefault(sight.epoch, {})[batch] = noise
            self._forget(sight.epoch)
        known = self.times.setdefault((sight.replicas, sight.nodes), {})
        if any(abs(math.log(sight.local_batch / old)) < _ALIKE for old in known):
            return
        compute = sight.step_seconds - sight.sync_seconds
        known[sight.local_batch] = math.log(sight.step_seconds), math.log(compute)
        self.most_replicas = max(self.most_replicas, sight.replicas)
        self._seconds = None
        self._speeds.clear()

    @property
    def measured(self) -> bool:
        """Whether anything was."""
        return bool(self.times)

    def speed(self, epoch: int) -> Speed:
        """What every shape would achieve in an epoch."""
        if epoch not in self._speeds:
            self._speeds[epoch] = self._nearest(epoch), self._best(epoch)
        return self._speeds[epoch][1]

    def _forget(self, changed: int) -> None:
        """Drop what rested on noise about as far as that of an epoch."""
        for epoch, (nearest, _) in list(self._speeds.items()):
            if abs(epoch - changed) <= nearest + 2 * _EPOCHS:
                del self._speeds[epoch]

    def _nearest(self, epoch: int) -> float:
        return min((abs(seen - epoch) for seen in self.noise), default=math.inf)

    def _best(self, epoch: int) -> Speed:
        mean, deviation = self.log_seconds()
        batch = self.grid.batch
        worth = efficiency(batch, first_batch=self.first, noise=None)
        if (noise := self.noise_at(epoch)) is not None:
            worth = (noise + self.first) / (noise + batch)
        rate = np.where(self.grid.allowed, batch * worth * np.exp(-mean), 0.0)
        at = np.arange(len(rate)), rate.argmax(axis=1)
        return Speed(goodput=rate[at], deviation=deviation[at], batch=batch[at])

    def noise_at(self, epoch: int) -> Floats | None:
        """Gradient noise expected in an epoch at each batch: that of the nearest measurements.

        Shape (S, B). Measurements count by ``exp(-epochs / 2 - (ln batches / 0.5)^2 / 2)``.
        """
        if not self.noise:
            return None
        nearest = self._nearest(epoch)
        said: dict[int, tuple[float, float]] = {}
        for seen, found in self.noise.items():
            away = abs(seen - epoch) - nearest
            if away <= 2 * _EPOCHS:
                trust = math.exp(-away / _EPOCHS)
                for batch, noise in found.items():
                    weight, total = said.get(batch, (0.0, 0.0))
                    said[batch] = weight + trust, total + trust * math.log(self._bounded(noise))
        weights, totals = np.array(list(said.values())).T
        alike = np.stack([self._likeness(batch) for batch in said])
        logs = (totals @ alike) / (weights @ alike)
        found_at: Floats = np.exp(logs)[self.grid.sizes[1]].reshape(self.grid.batch.shape)
        return found_at

    def _bounded(self, noise: float) -> float:
        return min(max(noise, SMALLEST * self.first), LARGEST * self.first)

    def _likeness(self, batch: int) -> Floats:
        found = self._alike.get(batch)
        if found is None:
            gap = np.log(self.grid.sizes[0] / batch) / _BATCHES
            found = self._alike[batch] = np.exp(-(gap**2) / 2)
        return found

    def log_seconds(self) -> tuple[Floats, Floats]:
        """Log seconds of whole steps over the grid, and their deviation; shape (S, B)."""
        if self._seconds is None:
            self._seconds = self._predict()
        return self._seconds

    def _predict(self) -> tuple[Floats, Floats]:
        X, step, compute = self._table()
        self._model.fit(X, step, None, compute)
        asked, shape = _beside(self.grid.rows), self.grid.local.shape
        mean, deviation = (
            values.reshape(shape) for values in self._model.predict(asked, return_std=True)
        )
        alone = self._model.physical_.predict_compute
        local, seen = np.log(self.grid.local), np.log(X[:, 2])
        wait = alone(asked).reshape(shape) + _between(local, seen, compute - alone(X))
        missed = step - self._model.predict(_beside(X))
        for size in self.times:
            row = self.grid.index.get(size)
            if row is not None:
                here = (X[:, 1] == size[0]) & (X[:, 0] == size[1])
                mean[row] += _between(local[row], seen[here], missed[here])
                deviation[row] = _MEASURED
        return np.log(np.exp(mean) + (self.grid.micro - 1) * np.exp(wait)), deviation

    def _table(self) -> tuple[Floats, Floats, Floats]:
        rows = [
            (nodes, replicas, local, 1, *seconds)
            for (replicas, nodes), found in self.times.items()
            for local, seconds in found.items()
        ]
        table = np.array(rows, dtype=np.float64)
        return table[:, :4], table[:, 4], table[:, 5]


def _beside(X: Floats) -> Floats:
    """Rows next to ``X``: of measured rows themselves the model recalls the measurement."""
    found: Floats = X * np.array([1, 1, 1 + 1e-9, 1])
    return found


def _between(x: Floats, seen: Floats, values: Floats) -> Floats:
    """Interpolate, several values at one place averaged; constant outside."""
    places, back = np.unique(seen, return_inverse=True)
    means = np.bincount(back, values) / np.bincount(back)
    found: Floats = np.interp(x, places, means)
    return found
