"""What Brain knows of a job's speed: measurements kept, step times predicted on a fixed grid.

Step times are those of ``brain.models.step_time`` over all kinds of accelerators. A kind on which
a job never ran is known by the one profile on one GPU that Sia takes at submission, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.jct.applications import Application
from benchmarks.jct.sia.cluster import Kind, Tables
from benchmarks.jct.sia.jobs import LARGEST, Seen, largest_local_at
from benchmarks.jct.sia.model import Floats, Gradients, Limits, candidates
from benchmarks.jct.sia.policy import alone
from brain.models.step_time import accelerators
from brain.models.step_time.accelerators import Accelerators
from brain.models.step_time.columns import Configuration, Observation, rows
from brain.models.step_time.ensemble import StepTime

#: Local batches at one shape that are closer than this factor teach nothing new.
_ALIKE = 1.25
#: Measurements of a size that the model outweighs where they differ.
_MODEL = 0.25

#: Deviation of log step time at a shape that was measured.
_MEASURED = 0.02
#: Batches tried at each shape.
_TRIED = 24

Size = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Every shape on one kind with the batches to try at it; arrays (shapes, tried)."""

    kind: str
    nodes: Floats
    replicas: Floats
    local: Floats
    micro: Floats
    allowed: NDArray[np.bool_]
    #: First batch that progress is counted in.
    first: int

    @property
    def batch(self) -> Floats:
        """Examples per step."""
        return self.replicas * self.local * self.micro

    @property
    def rows(self) -> Floats:
        """Rows for ``StepTime``."""
        stacked = np.stack([self.nodes, self.replicas, self.local, self.micro], axis=-1)
        return stacked.reshape(-1, 4)


def sizes(kind: Kind) -> list[int]:
    """GPUs that a job may have: any that pack well.

    >>> sizes(Kind(name="aws", nodes=3, gpus_per_node=4))
    [1, 2, 3, 4, 8, 12]
    """
    per = kind.gpus_per_node
    within = [count for count in range(1, per + 1) if count <= 4 or count % 2 == 0]
    return within + [per * nodes for nodes in range(2, kind.nodes + 1)]


def shapes(kind: Kind) -> list[tuple[int, ...]]:
    """GPUs per node of every size over every number of nodes, level.

    >>> shapes(Kind(name="dgx-ext", nodes=2, gpus_per_node=2))
    [(1,), (2,), (1, 1), (2, 2)]
    """
    found = []
    for gpus in sizes(kind):
        for nodes in range(len(kind.packed(gpus)), min(kind.nodes, gpus) + 1):
            low, more = divmod(gpus, nodes)
            found.append((low + 1,) * more + (low,) * (nodes - more))
    return found


def grid(table: Application, kind: Kind) -> Grid:
    """The grid of an application on a kind."""
    columns = []
    for shape in shapes(kind):
        if sum(shape) * table.smallest_local > table.largest_batch:
            continue
        limits = Limits(
            largest=table.largest_batch,
            smallest_local=table.smallest_local,
            largest_local=min(table.largest_local, largest_local_at(table, shape)),
        )
        nodes, replicas, local, micro = candidates(
            len(shape), sum(shape), table.first_batch, limits, _TRIED
        )
        allowed = (limits.smallest_local <= local) & (local <= limits.largest_local)
        columns.append((nodes, replicas, local, micro, allowed))
    nodes, replicas, local, micro, allowed = (
        np.concatenate(arrays, axis=1).T for arrays in zip(*columns, strict=True)
    )
    return Grid(
        kind=kind.name,
        nodes=nodes,
        replicas=replicas,
        local=local,
        micro=micro,
        allowed=allowed,
        first=table.first_batch,
    )


@dataclass(slots=True, kw_only=True)
class Experience:
    """Measurements of one job, or with a history of all jobs of an application."""

    tables: Tables
    grids: Mapping[str, Grid]
    #: By kind, size (nodes, replicas) and local batch: seconds of a step, and of its exchange.
    times: dict[str, dict[Size, dict[int, tuple[float, float]]]] = field(default_factory=dict)
    #: Gradients by epoch, as seen last.
    gradients: dict[int, Gradients] = field(default_factory=dict)
    #: Downtime of a start; None before the first one.
    restart_seconds: float | None = None
    _models: dict[str, tuple[int, StepTime]] = field(default_factory=dict)
    #: All of them together; None after something new.
    _model: Accelerators | None = None
    _believed: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def add(self, seen: Seen) -> None:
        """Keep what a job measured, if it is new."""
        self.gradients[seen.epoch] = seen.gradients
        size = len(seen.shape), sum(seen.shape)
        known = self.times.setdefault(seen.kind, {}).setdefault(size, {})
        if any(max(seen.local / old, old / seen.local) < _ALIKE for old in known):
            return
        known[seen.local] = seen.step_seconds, seen.sync_seconds
        self._model = None
        self._believed.clear()

    @property
    def measured(self) -> bool:
        """Whether anything was."""
        return bool(self.times)

    @property
    def most_replicas(self) -> int:
        """Twice what was measured anywhere."""
        seen = max((n for sizes in self.times.values() for _, n in sizes), default=0)
        return min(max(2 * seen, 1), LARGEST)

    def log_seconds(self, kind: str) -> tuple[Floats, Floats]:
        """Log seconds of a whole step over the grid of a kind, and their deviation."""
        if kind not in self._believed:
            self._believed[kind] = self._believe(kind)
        return self._believed[kind]

    def _believe(self, kind: str) -> tuple[Floats, Floats]:
        if self._model is None:
            self._model = self._fitted()
        one, times = self.grids[kind], self._model.on(kind)
        mean, spread = times.predict(one.rows, return_std=True)
        mean, spread = mean.reshape(one.local.shape), spread.reshape(one.local.shape)
        for size, effect in self._effects(kind, times).items():
            here = (one.nodes == size[0]) & (one.replicas == size[1])
            mean, spread = mean + np.where(here, effect, 0.0), np.where(here, _MEASURED, spread)
        return mean, spread

    def _fitted(self) -> Accelerators:
        """As ``accelerators.fit`` does it, but only kinds with something new are fitted."""
        seen = {kind: self._observations(kind) for kind in self.tables}
        for kind, found in seen.items():
            if kind not in self._models or self._models[kind][0] != len(found):
                alone = accelerators.fit({kind: found}).models[kind]
                self._models[kind] = len(found), alone
        models = {kind: model for kind, (_, model) in self._models.items()}
        points = {kind: model.report_.configurations for kind, model in models.items()}
        known = max(sorted(points), key=lambda kind: points[kind])
        ratios = {}
        for kind, found in seen.items():
            measured = np.log([one.step_seconds for one in found])
            predicted = models[known].predict(rows([one.configuration for one in found]))
            ratios[kind] = float(np.median(measured - predicted))
        return Accelerators(models=models, points=points, ratios=ratios, known=known)

    def _observations(self, kind: str) -> Sequence[Observation]:
        found = [
            _observation(nodes, replicas, local, step, sync)
            for (nodes, replicas), known in self.times.get(kind, {}).items()
            for local, (step, sync) in known.items()
        ]
        return [*found, profile(self.tables[kind])]

    def _effects(self, kind: str, times: accelerators.OnAccelerator) -> dict[Size, float]:
        """By how much each measured size is slower than the model says, in logarithms."""
        measured = [
            (size, local, np.log(step))
            for size, known in self.times.get(kind, {}).items()
            for local, (step, _) in known.items()
        ]
        if not measured:
            return {}
        # A row that differs a little is not answered by its own measurement.
        asked = np.array([(*size, local * (1 + 1e-6), 1) for size, local, _ in measured])
        missed = np.array([step for _, _, step in measured]) - times.predict(asked)
        found: dict[Size, list[float]] = {}
        for (size, _, _), miss in zip(measured, missed.tolist(), strict=True):
            found.setdefault(size, []).append(miss)
        return {size: sum(one) / (len(one) + _MODEL) for size, one in found.items()}


def _observation(nodes: int, replicas: int, local: int, step: float, sync: float) -> Observation:
    return Observation(
        configuration=Configuration(nodes=nodes, replicas=replicas, local_batch=local),
        step_seconds=step,
        compute_seconds=max(step - sync, 1e-3 * step),
    )


def profile(table: Application) -> Observation:
    """The one profile that Sia has of a kind: one GPU with its largest batch."""
    local = int(table.placements[(1,)][0].max())
    return _observation(1, 1, local, local / alone(table), 0.0)


def goodput(
    one: Grid, seconds: tuple[Floats, Floats], gradients: Gradients
) -> tuple[Floats, Floats, Floats, Floats]:
    """Of each size: goodput of its best batch, deviation, local batch and micro-batches."""
    mean, spread = seconds
    rate = np.where(one.allowed, one.first * gradients.gain(one.batch) * np.exp(-mean), 0.0)
    at = np.arange(len(rate)), rate.argmax(axis=1)
    return rate[at], spread[at], one.local[at], one.micro[at]


def remaining_seconds(
    one: Grid, seconds: tuple[Floats, Floats], left: Sequence[tuple[float, Gradients]]
) -> float:
    """Seconds on one GPU for what is left: examples of the first batch and gradients by epoch."""
    examples = np.array([some for some, _ in left])
    ahead = [gradients for _, gradients in left]
    gains = np.array([gradients.gain(one.batch[0]) for gradients in ahead])
    rate = np.where(one.allowed[0], one.first * gains / np.exp(seconds[0][0]), 0.0)
    return float((examples / rate.max(axis=1)).sum())
