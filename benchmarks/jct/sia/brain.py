"""Brain's allocator in Sia's simulator, at three levels of knowledge.

    none       what Sia has: the job's own measurements and one profile of one GPU per kind
    declared   and the number of epochs that the job was submitted with
    history    and what earlier jobs of the same application measured since the run began

Without a history a job has at most twice the GPUs that it has run with, as Sia has it. Nothing is
looked up by an application's name but what its jobs measured in this run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from benchmarks.jct.sia.cluster import Kind
from benchmarks.jct.sia.experience import Experience, Grid, goodput, grid, remaining_seconds
from benchmarks.jct.sia.jobs import Grant, Job, Seen
from benchmarks.jct.sia.model import Gradients
from benchmarks.jct.sia.policy import alone
from benchmarks.jct.sia.run import Division
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

#: What a restart is taken to cost before any was measured.
_RESTART_SECONDS = 60.0


class Knowledge(StrEnum):
    """What Brain is told."""

    NONE = "none"
    DECLARED = "declared"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Observer:
    """Tells an experience what a job measures, and once what its start cost."""

    job: Job
    known: Experience

    def __call__(self, seen: Seen) -> None:
        if self.known.restart_seconds is None:
            self.known.restart_seconds = self.job.downtime
        self.known.add(seen)


class Brain:
    """Jobs as views, ``allocate``, placements as grants."""

    def __init__(
        self, kinds: Sequence[Kind], knowledge: Knowledge, settings: Weights | None = None
    ) -> None:
        self.kinds = kinds
        self.knowledge = knowledge
        self.settings = settings or Weights()
        self._grids: dict[str, dict[str, Grid]] = {}
        self._known: dict[str, Experience] = {}
        self._prices: Prices | None = None
        self._nodes = [
            NodeView(name=f"{kind.name}/{node}", accelerator=kind.name, capacity=kind.gpus_per_node)
            for kind in kinds
            for node in range(kind.nodes)
        ]

    def admit(self, job: Job) -> None:
        """Watch the job's measurements; choose its batch."""
        if job.application not in self._grids:
            self._grids[job.application] = {
                kind.name: grid(job.tables[kind.name], kind) for kind in self.kinds
            }
        grids = self._grids[job.application]
        pooled = self.knowledge is Knowledge.HISTORY
        known = self._known.setdefault(
            job.application if pooled else job.name, Experience(tables=job.tables, grids=grids)
        )
        self._known[job.name] = known
        job.observe = Observer(job, known)
        job.batching = self._batch

    def decide(
        self, now: float, jobs: Sequence[Job], kinds: Sequence[Kind], current: Division
    ) -> Division:
        """See ``Policy``."""
        held = compacted(current, kinds)
        views = [self._view(job, now, held.get(job.name)) for job in jobs]
        cluster = ClusterView(nodes=self._nodes)
        found = allocate(views, cluster, prices=self._prices, settings=self.settings)
        self._prices = found.prices
        return {
            name: granted(grant.placement)
            for name, grant in found.grants.items()
            if grant.placement is not None
        }

    def _view(self, job: Job, now: float, held: Grant | None) -> JobView:
        known = self._known[job.name]
        restart = known.restart_seconds
        curves, base, left = self._curves(job, known)
        return JobView(
            key=job.name,
            curves=curves,
            attained_seconds=job.progress * job.tables[self.kinds[0].name].first_batch / base,
            remaining_seconds=left,
            waited_seconds=0.0 if held else now - job.submitted,
            age_seconds=now - job.submitted,
            current=None if held is None else placement(held),
            restart_seconds=_RESTART_SECONDS if restart is None else restart,
            pinned=job.restoring > 0 and held is not None,
        )

    def _curves(
        self, job: Job, known: Experience
    ) -> tuple[Mapping[str, Curve], float, float | None]:
        """Curves by kind, the goodput that a speed-up of 1 is, and remaining seconds at it."""
        if not known.measured:
            rates = {kind.name: alone(job.tables[kind.name]) for kind in self.kinds}
            base = min(rates.values())
            curves = {name: Curve.of([1], [rate], [0.3]) for name, rate in rates.items()}
            return curves, base, self._untried(job, base)
        gradients = now_gradients(job, known)
        curves, slowest = {}, (np.inf, self.kinds[0].name)
        for kind in self.kinds:
            one = known.grids[kind.name]
            rate, spread, _, _ = goodput(one, known.log_seconds(kind.name), gradients)
            allowed = (one.replicas[:, 0] <= known.most_replicas) & (rate > 0)
            slowest = min(slowest, (float(rate[0]), kind.name))
            curves[kind.name] = Curve.of(
                one.replicas[allowed, 0], rate[allowed], spread[allowed], one.nodes[allowed, 0]
            )
        base, name = slowest
        if self.knowledge is Knowledge.NONE:
            return curves, base, None
        ahead = epochs_ahead(job, known, gradients)
        return curves, base, remaining_seconds(known.grids[name], known.log_seconds(name), ahead)

    def _untried(self, job: Job, base: float) -> float | None:
        if self.knowledge is Knowledge.NONE:
            return None
        table = job.tables[self.kinds[0].name]
        return table.progress[-1] * table.first_batch / base

    def _batch(self, job: Job, kind: str, shape: tuple[int, ...]) -> tuple[int, int] | None:
        known = self._known[job.name]
        one = known.grids[kind]
        here = (one.replicas[:, 0] == sum(shape)) & (one.nodes[:, 0] == len(shape))
        if not known.times.get(kind) or not here.any():
            return None
        gradients = now_gradients(job, known)
        _, _, local, micro = goodput(one, known.log_seconds(kind), gradients)
        return int(local[here][0]), int(micro[here][0])


def now_gradients(job: Job, known: Experience) -> Gradients:
    """The job's own, else those of its application at the same epoch or the nearest before."""
    if job.gradients is not None:
        return job.gradients
    return at_epoch(known, job.epoch)


def at_epoch(known: Experience, epoch: int) -> Gradients:
    """Gradients at an epoch, or at the nearest one that was seen."""
    found = known.gradients.get(epoch)
    if found is None:
        found = known.gradients[min(known.gradients, key=lambda seen: abs(seen - epoch))]
    return found


def epochs_ahead(
    job: Job, known: Experience, gradients: Gradients
) -> list[tuple[float, Gradients]]:
    """Examples of the first batch left in each epoch, and what gradients will be in it.

    Later epochs than any that was seen are as the last one seen; without a history that is now.
    """
    table = next(iter(job.tables.values()))
    first = table.first_batch
    last = max(known.gradients)
    ahead = [((table.progress[job.epoch + 1] - job.progress) * first, gradients)]
    for epoch in range(job.epoch + 1, table.epochs):
        examples = (table.progress[epoch + 1] - table.progress[epoch]) * first
        if epoch > last:
            rest = (table.progress[-1] - table.progress[epoch]) * first
            ahead.append((rest, at_epoch(known, last)))
            break
        ahead.append((examples, at_epoch(known, epoch)))
    return ahead


def placement(grant: Grant) -> Placement:
    """A grant as the allocator writes it."""
    pairs = zip(grant.nodes, grant.shape, strict=True)
    names = (f"{grant.kind}/{node}" for node, gpus in pairs for _ in range(gpus))
    return Placement(grant.kind, tuple(names))


def granted(found: Placement) -> Grant:
    """A placement as the simulator takes it, nodes with most GPUs first."""
    counts = Counter(int(name.rpartition("/")[2]) for name in found.nodes)
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return Grant(
        kind=found.accelerator,
        shape=tuple(gpus for _, gpus in ordered),
        nodes=tuple(node for node, _ in ordered),
    )


def compacted(current: Division, kinds: Sequence[Kind]) -> dict[str, Grant]:
    """What jobs hold, moved together: between nodes of a kind that is free in this simulator."""
    found: dict[str, Grant] = {}
    for kind in kinds:
        room = [kind.gpus_per_node] * kind.nodes
        own = [(name, grant) for name, grant in current.items() if grant.kind == kind.name]
        moved: dict[str, Grant] = {}
        for name, grant in sorted(own, key=lambda one: -one[1].gpus):
            nodes: list[int] = []
            for part in grant.shape:
                fits = [n for n, free in enumerate(room) if free >= part and n not in nodes]
                if not fits:
                    break
                node = min(fits, key=lambda n: room[n])
                room[node] -= part
                nodes.append(node)
            moved[name] = Grant(kind=kind.name, shape=grant.shape, nodes=tuple(nodes))
        whole = all(len(grant.nodes) == len(grant.shape) for grant in moved.values())
        found.update(moved if whole else dict(own))
    return found
