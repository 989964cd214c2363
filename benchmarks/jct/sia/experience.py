"""What Brain knows of a job's speed: measurements kept, step times predicted on a fixed grid.

Step times are those of ``brain.models.step_time`` over all kinds of accelerators. A kind on which
a job never ran is known by the one profile on one GPU that Sia takes at submission, too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.jct.applications import Application
from benchmarks.jct.sia.cluster import Kind, Tables
from benchmarks.jct.sia.jobs import LARGEST, Seen, largest_local_at
from benchmarks.jct.sia.model import Floats, Gradients, Limits, candidates
from benchmarks.jct.sia.policy import alone
from brain.models.step_time import accelerators
from brain.models.step_time.columns import Configuration, Observation

#: Local batches at one size that are closer than this factor teach nothing new.
_ALIKE = 1.15
#: Measurements after which one more size effect is believed half.
_HALF = 0.25

Size = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Every size on one kind with the batches to try at it; arrays (sizes, tried)."""

    kind: str
    nodes: Floats
    replicas: Floats
    local: Floats
    micro: Floats
    allowed: np.ndarray
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


def grid(table: Application, kind: Kind) -> Grid:
    """The grid of an application on a kind."""
    columns = []
    for gpus in sizes(kind):
        if gpus * table.smallest_local > table.largest_batch:
            continue
        shape = kind.packed(gpus)
        limits = Limits(
            largest=table.largest_batch,
            smallest_local=table.smallest_local,
            largest_local=min(table.largest_local, largest_local_at(table, shape)),
        )
        nodes, replicas, local, micro = candidates(len(shape), gpus, table.first_batch, limits)
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
    version: int = 0
    _believed: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def add(self, seen: Seen) -> None:
        """Keep what a job measured, if it is new."""
        self.gradients[seen.epoch] = seen.gradients
        size = len(seen.shape), sum(seen.shape)
        known = self.times.setdefault(seen.kind, {}).setdefault(size, {})
        if any(max(seen.local / old, old / seen.local) < _ALIKE for old in known):
            return
        known[seen.local] = seen.step_seconds, seen.sync_seconds
        self.version += 1
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
            self._believe()
        return self._believed[kind]

    def _believe(self) -> None:
        observed = {kind: self._observations(kind) for kind in self.tables}
        model = accelerators.fit(observed)
        for kind, one in self.grids.items():
            times = model.on(kind)
            mean, spread = times.predict(one.rows, return_std=True)
            mean, spread = mean.reshape(one.local.shape), spread.reshape(one.local.shape)
            for size, effect in self._effects(kind, times).items():
                here = (one.nodes == size[0]) & (one.replicas == size[1])
                mean, spread = mean + np.where(here, effect, 0.0), np.where(here, 0.02, spread)
            self._believed[kind] = mean, spread

    def _observations(self, kind: str) -> Sequence[Observation]:
        found = [
            _observation(nodes, replicas, local, step, sync)
            for (nodes, replicas), known in self.times.get(kind, {}).items()
            for local, (step, sync) in known.items()
        ]
        return found or [profile(self.tables[kind])]

    def _effects(self, kind: str, times: accelerators.OnAccelerator) -> dict[Size, float]:
        """By how much each measured size is slower than the model says, in logarithms."""
        found = {}
        for (nodes, replicas), known in self.times.get(kind, {}).items():
            rows = np.array([(nodes, replicas, local, 1) for local in known], dtype=np.float64)
            # A row that differs a little is not answered by its own measurement.
            rows[:, 2] *= 1 + 1e-6
            miss = np.log([step for step, _ in known.values()]) - times.predict(rows)
            found[nodes, replicas] = float(miss.sum() / (len(miss) + _HALF))
        return found


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
    total = 0.0
    steps = np.exp(seconds[0][0])
    for examples, gradients in left:
        rate = one.first * gradients.gain(one.batch[0]) / steps
        total += examples / float(np.where(one.allowed[0], rate, 0.0).max())
    return total if math.isfinite(total) else 0.0
