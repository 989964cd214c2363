"""A job of Sia's simulator in virtual time: its accelerators, progress and measurements."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.jct.applications import Application
from benchmarks.jct.sia.cluster import RESTART_SECONDS, SLOWDOWN, Tables
from benchmarks.jct.sia.model import Gradients, Limits, best, fitted
from benchmarks.models.peers import Pollux

_EPSILON = 1e-8
#: More replicas than this are never asked for.
LARGEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The accelerators that a job gets for a round."""

    kind: str
    #: GPUs on each of its nodes, in the order of the ring.
    shape: tuple[int, ...]
    #: The nodes, one per entry of ``shape``.
    nodes: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """Return the number of accelerators."""
        return sum(self.shape)


#: Local batch and micro-batches of a job on a kind and shape; None leaves it to its agent.
Batching = Callable[["Job", str, tuple[int, ...]], tuple[int, int] | None]


@dataclass(slots=True, kw_only=True)
class Job:
    """The state of one job.

    Clock, fits, batch sizes and restarts follow the artifact, including its rounding of the seconds
    in which an epoch ends.
    """

    name: str
    application: str
    tables: Tables
    submitted: float
    asked_batch: int
    batching: Batching | None = None

    kind: str | None = None
    shape: tuple[int, ...] = ()
    local: int = 0
    micro: int = 1
    progress: float = 0.0
    epoch: int = 0
    clock: float = 0.0
    restoring: float = 0.0
    #: Starts after the first one; None before it.
    restarts: int | None = None
    finished: float | None = None
    gpu_seconds: float = 0.0
    gradients: Gradients | None = None
    profiles: dict[str, dict[tuple[int, int, int], tuple[float, float]]] = field(
        default_factory=dict
    )
    fits: dict[str, tuple[int, Pollux]] = field(default_factory=dict)
    _largest_local: dict[str, Mapping[int, int]] = field(default_factory=dict)

    def limits(self, kind: str) -> Limits:
        """Return the limits that Sia assumes for a kind."""
        table = self.tables[kind]
        return Limits(
            largest=self.asked_batch,
            smallest_local=table.smallest_local,
            largest_local=table.largest_local,
        )

    def model(self, kind: str) -> Pollux:
        """Return the fit of all the job's measurements on a kind; it is computed on demand."""
        profile = self.profiles[kind]
        if kind not in self.fits or self.fits[kind][0] != len(profile):
            self.fits[kind] = len(profile), fitted(profile)
        return self.fits[kind][1]

    @property
    def most_replicas(self) -> int:
        """Return twice the most replicas with which the job ran on any kind, as far as batches can
        be divided.
        """
        return max(
            min(max(2 * self.profiled(kind), 1), LARGEST, t.largest_batch // t.smallest_local)
            for kind, t in self.tables.items()
        )

    def profiled(self, kind: str) -> int:
        """Return the most replicas with which the job ran on a kind."""
        return max((replicas for _, replicas, _ in self.profiles.get(kind, ())), default=0)

    def place(self, grant: Grant | None) -> None:
        """Take the accelerators of a round; a change of kind or shape is a restart, a suspension is
        free.
        """
        if grant is None:
            self.kind, self.shape, self.local = None, (), 0
            return
        if (grant.kind, grant.shape) == (self.kind, self.shape):
            return
        self.kind, self.shape = grant.kind, grant.shape
        self._rebatch()
        self.restoring = RESTART_SECONDS[self.application]
        self.restarts = 0 if self.restarts is None else self.restarts + 1

    def step(self, seconds: float) -> None:
        """Let the job train for one round."""
        if self.finished is not None:
            return
        if self.kind is None:
            self.clock += seconds
            return
        held = min(self.restoring, seconds)
        self.restoring -= held
        self._pass(held)
        left = seconds - held
        while left > 0 and self.finished is None:
            left -= self._train(self.tables[self.kind], left)
            self._rebatch()
        self.clock += left

    def _pass(self, seconds: float) -> None:
        self.clock += seconds
        self.gpu_seconds += seconds * sum(self.shape)

    def _train(self, table: Application, seconds: float) -> float:
        """Train until the seconds or the epoch end; return the seconds spent."""
        step, sync = table.seconds(self.shape, self.local)
        self._learn(table, step, sync)
        assert self.gradients is not None
        gain = float(self.gradients.gain(np.array(float(self.batch))))
        rate = gain / (step + (self.micro - 1) * (step - sync)) / SLOWDOWN[self.application]
        target = table.progress[self.epoch + 1]
        if self.progress + rate * seconds < target:
            self.progress += rate * seconds
            self._pass(seconds)
            return seconds
        spent = round((target - self.progress) / rate)
        self.epoch += 1
        self.progress = target
        if self.epoch == table.epochs:
            self.finished = self.clock + spent
        self._pass(spent)
        return spent

    @property
    def batch(self) -> int:
        """Return the examples per step."""
        return sum(self.shape) * self.local * self.micro

    def _learn(self, table: Application, step: float, sync: float) -> None:
        """Record a step's times and gradients."""
        assert self.kind is not None
        square, variance = table.gradients(self.batch, self.epoch)
        self.gradients = Gradients(square=square, variance=variance, first_batch=table.first_batch)
        key = len(self.shape), sum(self.shape), self.local
        self.profiles.setdefault(self.kind, {}).setdefault(key, (step, sync))

    def _rebatch(self) -> None:
        """Choose the batch size for the present accelerators."""
        assert self.kind is not None
        table = self.tables[self.kind]
        chosen = None if self.batching is None else self.batching(self, self.kind, self.shape)
        if chosen is None:
            chosen = self._agents_batch(table)
        self.local, self.micro = self.cut(self.kind, self.shape, *chosen)

    def _agents_batch(self, table: Application) -> tuple[int, int]:
        assert self.kind is not None
        replicas, largest_local = sum(self.shape), largest_local_at(table, self.shape)
        if self.gradients is None or self.kind not in self.profiles:
            batch = max(table.first_batch, table.smallest_local * replicas)
            share = math.ceil(batch / replicas - _EPSILON)
            micro = math.ceil(share / largest_local - _EPSILON)
            if replicas == 1 and batch > table.first_batch:
                micro = max(2, micro)
            return math.ceil(share / micro - _EPSILON), micro
        limits = Limits(
            largest=table.largest_batch,
            smallest_local=table.smallest_local,
            largest_local=largest_local,
        )
        model = self.model(self.kind)
        _, local, micros = best(model, self.gradients, len(self.shape), replicas, limits)
        return int(local[0]), int(micros[0])

    def cut(self, kind: str, shape: tuple[int, ...], local: int, micro: int) -> tuple[int, int]:
        """Return the batch size, reduced to the largest measured at this size and to the largest at
        any size.
        """
        table, replicas = self.tables[kind], sum(shape)
        if kind not in self._largest_local:
            self._largest_local[kind] = largest_local_of(table)
        measured = self._largest_local[kind].get(replicas, local)
        return min(local, measured, table.largest_batch // (replicas * micro)), micro


def largest_local_at(table: Application, shape: tuple[int, ...]) -> int:
    """Return the largest local batch size measured at a placement, or at any placement of the same
    number of replicas.
    """
    ring = min(shape[i:] + shape[:i] for i in range(len(shape)))
    if ring in table.placements:
        return int(table.placements[ring][0][-1])
    rows = table.scale[0]
    as_large = (rows[:, 0] >= len(shape)) & (rows[:, 1] >= sum(shape))
    return int(rows[as_large, 2].max())


def largest_local_of(table: Application) -> Mapping[int, int]:
    """Return the largest local batch size measured for each number of replicas, over all
    placements.
    """
    found: dict[int, int] = {}
    for placement, (batches, _) in table.placements.items():
        replicas = sum(placement)
        found[replicas] = max(found.get(replicas, 0), int(batches[-1]))
    return found
