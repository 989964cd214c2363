"""Brain in Pollux's simulator: its own models of each job, and ``brain.pool.allocator``.

It sees what Pollux's policy sees (measurements of jobs while they run, bounds of their batches),
and, by level of knowledge, the work that a job declares, and what earlier jobs of the same name
measured in this run. It sets placements and batches; restarts and progress are the simulator's.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from benchmarks.jct.experience import Bounds, Experience, Speed, grid
from benchmarks.jct.pollux import GPUS_PER_NODE, NODES, RESTART_SECONDS, Allocation, Job
from brain.models.remaining import expected
from brain.pool.allocator import (
    ClusterView,
    Curve,
    JobView,
    NodeView,
    Placement,
    Prices,
    Weights,
    allocate,
)

_KIND = "gpu"


class Knowledge(StrEnum):
    """What Brain is told beside what it measures."""

    NONE = "measurements"
    DECLARED = "declared epochs"
    HISTORY = "declared epochs and history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of Brain in this benchmark."""

    knowledge: Knowledge
    weights: Weights = field(default_factory=Weights)
    restart_seconds: float = RESTART_SECONDS
    nodes: int = NODES
    per_node: int = GPUS_PER_NODE
    #: Largest size considered, in sizes that were measured.
    ramp: float = 2.0
    #: Replicas that a job of which nothing is known begins with at most.
    start: int = 1


@dataclass(slots=True)
class Known:
    """One job as Brain sees it."""

    bounds: Bounds
    experience: Experience
    #: Jobs that learn from each other.
    group: Hashable
    #: Examples in all; None where nobody declared them.
    declared: float | None
    waited_since: float | None = None
    attained_seconds: float = 0.0


class Brain:
    """The policy."""

    def __init__(self, settings: Settings, declared: dict[str, float] | None = None) -> None:
        """
        Args:
            settings: Of this run.
            declared: Factor on a job's true work that its owner declares, by name of the job.
        """
        self.settings = settings
        self._wrong = declared or {}
        self._known: dict[str, Known] = {}
        self._shared: dict[Hashable, Experience] = {}
        self._finished: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
        self._names = [f"node-{index:02d}" for index in range(settings.nodes)]
        self._number = {name: index for index, name in enumerate(self._names)}
        self._prices: Prices | None = None
        self._active: dict[str, Job] = {}

    def admit(self, job: Job) -> None:
        """Fix the batch of what cannot adapt; learn what its owner declares."""
        if job.application.fixed:
            job.batch = job.application.largest_batch
        bounds = Bounds.of(job)
        shape = grid(bounds, self.settings.nodes, self.settings.per_node)
        fresh = Experience(grid=shape, first=bounds.first)
        group: Hashable = job.name
        if self.settings.knowledge is Knowledge.HISTORY:
            group = job.application.name, bounds
            fresh = self._shared.setdefault(group, fresh)
        work = job.application.progress[-1] * job.application.first_batch
        told = None if self.settings.knowledge is Knowledge.NONE else work
        if told is not None:
            told *= self._wrong.get(job.name, 1.0)
        self._known[job.name] = Known(bounds, fresh, group, told)
        if job.batch is None:
            job.batch = bounds.first

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """Learn from the last round, then divide the cluster."""
        for job in jobs:
            self._learn(job)
        self._close(jobs)
        views = [self._view(now, job, current) for job in jobs]
        nodes = [
            NodeView(name=name, accelerator=_KIND, capacity=gpus)
            for name, gpus in zip(self._names, capacity, strict=True)
        ]
        found = allocate(
            views, ClusterView(nodes=nodes), prices=self._prices, settings=self.settings.weights
        )
        self._prices = found.prices
        chosen = {
            key: sorted(self._number[name] for name in grant.placement.nodes)
            for key, grant in found.grants.items()
            if grant.placement
        }
        for job in jobs:
            self._batch(job, chosen.get(job.name, ()), current.get(job.name, ()))
        return chosen

    def _learn(self, job: Job) -> None:
        known = self._known[job.name]
        for sight in job.sights:
            known.experience.add(sight)
        job.sights.clear()

    def _close(self, jobs: Sequence[Job]) -> None:
        """Learn from jobs that ended how much work they had."""
        active = {job.name: job for job in jobs}
        for name, job in self._active.items():
            if name not in active:
                self._learn(job)
                known = self._known[name]
                if known.declared:
                    done = job.progress * job.application.first_batch
                    self._finished[known.group].append((known.declared, done))
        self._active = active

    def _left(self, job: Job) -> float | None:
        """Examples to come."""
        known = self._known[job.name]
        if known.declared is None:
            return None
        total = expected(known.declared, self._finished[known.group])
        done = job.progress * job.application.first_batch
        return total - done if total > done else None

    def _view(self, now: float, job: Job, current: Allocation) -> JobView:
        known = self._known[job.name]
        held = current.get(job.name)
        if known.waited_since is None or held:
            known.waited_since = now
        curve, base = self._curve(job, known, held)
        left = self._left(job)
        done = job.progress * job.application.first_batch
        return JobView(
            key=job.name,
            curves={_KIND: curve},
            attained_seconds=done / base,
            remaining_seconds=left / base if left and known.experience.measured else None,
            waited_seconds=now - known.waited_since,
            age_seconds=now - job.submitted,
            current=Placement(_KIND, tuple(self._names[node] for node in held)) if held else None,
            restart_seconds=self.settings.restart_seconds,
        )

    def _curve(self, job: Job, known: Known, held: Sequence[int] | None) -> tuple[Curve, float]:
        """What the job would achieve, and what it would with one replica."""
        shape = known.experience.grid
        replicas, nodes = shape.replicas[:, 0], shape.nodes[:, 0]
        if not known.experience.measured:
            may = replicas <= max(self.settings.start, 1)
            return Curve.of(replicas[may], replicas[may] ** 0.8, 0.3, nodes[may]), 1.0
        speed = known.experience.speed(job.epoch)
        most = max(self.settings.ramp * known.experience.most_replicas, 1)
        may = (replicas <= most) & (speed.goodput > 0)
        curve = Curve.of(replicas[may], speed.goodput[may], speed.deviation[may], nodes[may])
        return curve, _alone(speed)

    def _batch(self, job: Job, nodes: Sequence[int], held: Sequence[int]) -> None:
        """Set the batch that suits what the job gets."""
        known = self._known[job.name]
        if not nodes or known.bounds.first == known.bounds.largest:
            return
        if known.experience.measured:
            row = known.experience.grid.index[len(nodes), len(set(nodes))]
            job.batch = round(float(known.experience.speed(job.epoch).batch[row]))
        if list(nodes) == list(held):
            job.split()


def _alone(speed: Speed) -> float:
    return float(speed.goodput[np.flatnonzero(speed.goodput > 0)[0]])
