"""Nodes and jobs at one virtual time, and their changes over time.

A job makes progress while it is placed on nodes and its last restart is over; during a restart it
holds its accelerators without using them. A planned change happens at a safe point and loses no
work; a lost node costs all work since the last checkpoint.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from brain.simulator.applications import Application, DeviceKind, progress
from brain.simulator.faults import Blow, Fault, Faults
from brain.simulator.placing import Placement, UsableNode, shape
from brain.simulator.spec import Spec
from brain.simulator.workload import Arrival

#: Share of a job's work below which the rest is rounding.
_ROUNDING = 1e-9


@dataclass(slots=True)
class SimulatedNode:
    index: int
    kind: str
    capacity: int
    up: bool = True
    #: Step time relative to other nodes of its kind.
    slowness: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStay:
    """An interval in which a job had one placement."""

    began: float
    ended: float
    #: Time at which its restart was over.
    stepped: float
    placement: Placement
    kind: str


@dataclass(slots=True)
class SimulatedJob:
    arrival: Arrival
    application: Application
    #: Work of the whole run, done so far, and saved in the last checkpoint, in examples of the
    #: first batch.
    work: float
    done: float = 0.0
    saved: float = 0.0
    #: Examples of an optimizer step, and of the largest micro-batch; None: as many as a device
    #: holds.
    batch: int = 0
    most_local: int | None = None
    #: Seconds of training since the last checkpoint.
    unsaved_seconds: float = 0.0
    placement: Placement = ()
    kind: str = ""
    #: Time of the placement, and time from which the job works.
    placed_at: float = 0.0
    ready_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    #: Accelerator-seconds that it held.
    held: float = 0.0
    #: Changes of placement after the first, and changes that a fault forced.
    restarts: int = 0
    lost: int = 0
    #: Work that was repeated.
    redone: float = 0.0
    stays: list[PlacementStay] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.arrival.name

    @property
    def left(self) -> float:
        return self.work - self.done


class SimulatedEventKind(StrEnum):
    STEPPED = "stepped"
    FINISHED = "finished"
    NODE_DOWN = "node down"
    NODE_UP = "node up"
    LOST = "lost"
    ARRIVED = "arrived"


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """Something that happened at an instant, to a job or a node."""

    at_seconds: float
    event: SimulatedEventKind
    run: SimulatedJob | None = None
    node: int | None = None


class Governed(NamedTuple):
    """The result of asking a policy which jobs run where."""

    #: Seconds that the decision took.
    seconds: float
    #: True if accelerators were released, so that another decision may use them.
    freed: bool = False
    #: True if anything was decided; Brain does not divide a pool again at once.
    decided: bool = True
    #: True if the decider waits for the next measurements.
    awaited: bool = False


class SimulatedCluster:
    """The simulated cluster: ``advance`` lets time pass, ``place`` changes the placement of
    jobs.
    """

    def __init__(
        self,
        spec: Spec,
        workload: Sequence[Arrival],
        applications: Mapping[str, Application],
        *,
        seed: int = 0,
    ) -> None:
        self.spec, self.now = spec, 0.0
        self.nodes = _nodes(spec)
        self.runs: list[SimulatedJob] = []
        #: Jobs that have arrived and not finished, in the order of their arrival.
        self.present: list[SimulatedJob] = []
        self._devices = spec.devices
        self._faults = Faults(spec, len(self.nodes), seed)
        self._coming = [
            (arrival.at_seconds, order, _run(arrival, applications))
            for order, arrival in enumerate(workload)
        ]
        heapq.heapify(self._coming)

    @property
    def over(self) -> bool:
        """Return True if every job has finished."""
        return not self._coming and not self.present

    @property
    def next_arrival(self) -> float | None:
        """Return the time of the next arrival of a job; None if no more jobs come."""
        return self._coming[0][0] if self._coming else None

    @property
    def machines(self) -> tuple[UsableNode, ...]:
        return tuple(
            UsableNode(index=node.index, kind=node.kind, capacity=node.capacity)
            for node in self.nodes
            if node.up
        )

    def free(self) -> dict[int, int]:
        """Return the free accelerators of each node that is up."""
        left = {node.index: node.capacity for node in self.nodes if node.up}
        for run in self.present:
            for node in run.placement:
                left[node] -= 1
        return left

    def device(self, kind: str) -> DeviceKind:
        """Return the device properties of a kind of node."""
        return self._devices[kind]

    def restart_seconds(self, run: SimulatedJob) -> float:
        """Return the cost of a change of this job's world, in seconds."""
        own = run.application.restart_seconds
        return self.spec.restart_seconds if own is None else own

    def rate(self, run: SimulatedJob) -> float:
        """Return a placed job's work per second at this time, as if its restart were over."""
        return self.rate_of(run, run.placement, run.kind) / self.slowness(run)

    def rate_of(self, run: SimulatedJob, placement: Placement, kind: str) -> float:
        """Return a job's work per second at the given placement, if no node is slow."""
        share = min(1.0, run.done / run.work)
        where = shape(placement)
        return progress(
            run.application, self.device(kind), where, run.batch, share, most=run.most_local
        )

    def slowness(self, run: SimulatedJob) -> float:
        """Return the factor by which the slowest node lengthens the job's steps."""
        return max((self.nodes[node].slowness for node in run.placement), default=1.0)

    def place(self, run: SimulatedJob, placement: Placement) -> None:
        """Give a job these nodes from now on; do nothing if the job already has them.

        Raises:
            ValueError: a node is down or full, or the nodes are of different kinds.
        """
        if placement == run.placement or run.finished_at is not None:
            return
        self._leave(run)
        if not placement:
            return
        self._check(run, placement)
        first = run.started_at is None
        run.started_at = self.now if run.started_at is None else run.started_at
        run.restarts += not first
        run.placement, run.kind = placement, self.nodes[placement[0]].kind
        run.placed_at, run.ready_at = self.now, self.now + self.restart_seconds(run)

    def advance(self, until: float) -> list[SimulatedEvent]:
        """Let time pass; return the events of that time, in order.

        Time stops at ``until``, or ``settle_seconds`` after the first event.
        """
        happened: list[SimulatedEvent] = []
        while self.now < until:
            arrival = self.next_arrival
            to = until if arrival is None else min(until, max(arrival, self.now))
            to = min([to, *(self._end(run, to) for run in self.present if run.placement)])
            fault = self._faults.until(to)
            to = to if fault is None else max(self.now, fault.at_seconds)
            happened += self._pass(to)
            if fault is not None:
                happened += self._strike(fault)
            happened += self._arrive()
            if happened:
                until = min(until, self.now + self.spec.settle_seconds)
        return happened

    def _end(self, run: SimulatedJob, limit: float) -> float:
        """Return when a job would finish at its present rate; ``limit`` if that is later."""
        rate = self.rate(run)
        begins = max(self.now, run.ready_at)
        return begins + run.left / rate if run.left < rate * max(0.0, limit - begins) else limit

    def _pass(self, to: float) -> list[SimulatedEvent]:
        happened: list[SimulatedEvent] = []
        for run in list(self.present):
            if not run.placement:
                continue
            if self.now < run.ready_at <= to or (run.ready_at == self.now == run.placed_at < to):
                happened.append(SimulatedEvent(run.ready_at, SimulatedEventKind.STEPPED, run))
            rate = self.rate(run)
            worked = max(0.0, to - max(self.now, run.ready_at))
            run.held += len(run.placement) * (to - self.now)
            run.done += rate * worked
            self._save(run, rate, worked)
            if run.left <= run.work * _ROUNDING:
                happened.append(self._finish(run, to))
        self.now = to
        return sorted(happened, key=lambda one: one.at_seconds)

    def _save(self, run: SimulatedJob, rate: float, worked: float) -> None:
        run.unsaved_seconds += worked
        if run.unsaved_seconds >= self.spec.checkpoint_seconds:
            run.unsaved_seconds %= self.spec.checkpoint_seconds
            run.saved = run.done - rate * run.unsaved_seconds

    def _finish(self, run: SimulatedJob, at: float) -> SimulatedEvent:
        run.done, run.finished_at = run.work, at
        self._close(run, at)
        self.present.remove(run)
        return SimulatedEvent(at, SimulatedEventKind.FINISHED, run)

    def _arrive(self) -> list[SimulatedEvent]:
        happened = []
        while self._coming and self._coming[0][0] <= self.now:
            at, _, run = heapq.heappop(self._coming)
            self.runs.append(run)
            self.present.append(run)
            happened.append(SimulatedEvent(at, SimulatedEventKind.ARRIVED, run))
        return happened

    def _strike(self, fault: Fault) -> list[SimulatedEvent]:
        node = self.nodes[fault.node]
        match fault.blow:
            case Blow.SLOW:
                node.slowness = self.spec.stragglers.factor
            case Blow.EVEN:
                node.slowness = 1.0
            case Blow.UP:
                node.up = True
                return [SimulatedEvent(self.now, SimulatedEventKind.NODE_UP, node=node.index)]
            case Blow.DOWN:
                node.up = False
                return [
                    SimulatedEvent(self.now, SimulatedEventKind.NODE_DOWN, node=node.index),
                    *self._lose(run for run in self.present if node.index in run.placement),
                ]
        return []

    def _lose(self, runs: Iterable[SimulatedJob]) -> list[SimulatedEvent]:
        happened = []
        for run in list(runs):
            run.lost += 1
            run.redone += run.done - run.saved
            run.done, run.unsaved_seconds = run.saved, 0.0
            self._close(run, self.now)
            happened.append(SimulatedEvent(self.now, SimulatedEventKind.LOST, run))
        return happened

    def _leave(self, run: SimulatedJob) -> None:
        """Stop a job at a safe point: all its work so far is saved."""
        if run.placement:
            run.saved, run.unsaved_seconds = run.done, 0.0
            self._close(run, self.now)

    def _close(self, run: SimulatedJob, at: float) -> None:
        if at > run.placed_at:
            run.stays.append(
                PlacementStay(
                    began=run.placed_at,
                    ended=at,
                    stepped=min(run.ready_at, at),
                    placement=run.placement,
                    kind=run.kind,
                )
            )
        run.placement = ()

    def _check(self, run: SimulatedJob, placement: Placement) -> None:
        free = self.free()
        kinds = {self.nodes[node].kind for node in placement}
        for node in set(placement):
            if free.get(node, 0) < placement.count(node):
                raise ValueError(f"node {node} has no room for {placement} of {run.name}")
        if len(kinds) > 1:
            raise ValueError(f"{run.name} was placed on nodes of {' and '.join(sorted(kinds))}")


def _nodes(spec: Spec) -> list[SimulatedNode]:
    kinds = [(name, kind) for name, kind in spec.nodes.items() for _ in range(kind.count)]
    return [
        SimulatedNode(index=index, kind=name, capacity=kind.gpus)
        for index, (name, kind) in enumerate(kinds)
    ]


def _run(arrival: Arrival, applications: Mapping[str, Application]) -> SimulatedJob:
    application = applications[arrival.application]
    work = application.examples * arrival.scale
    return SimulatedJob(arrival=arrival, application=application, work=work, batch=arrival.batch)
