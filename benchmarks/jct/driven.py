"""Drives Brain's service from another system's simulator: it tells the service the events, and asks
for the desired worlds.

The service is ``cycle.turn`` on in-memory stores. The simulator provides physics, rounds, restarts
and arrivals. ``brain.simulator.service`` plays the scaler, the coordinators and the probes, as
under ``brain simulate``: scripts use the batch size that Brain requests, and measurements scatter.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

from benchmarks.jct.applications import Application
from brain.models.efficiency import LARGEST, SMALLEST
from brain.ports import Stores
from brain.settings import settings_from
from brain.simulator.applications import DeviceKind, Shape, split
from brain.simulator.placing import Placement
from brain.simulator.run import NOISE
from brain.simulator.service import Service
from brain.simulator.spec import NodeKind, Spec
from brain.simulator.workload import Arrival
from brain.simulator.world import (
    SimulatedCluster,
    SimulatedEvent,
    SimulatedEventKind,
    SimulatedJob,
    SimulatedNode,
)
from brain.types.allocation import Bounds
from brain.types.job import OptimizeMode

#: More replicas than this are never asked for.
_MOST = 64
#: Turns of one round at most.
_TURNS = 4


class Knowledge(StrEnum):
    """Facts that Brain is told in addition to its measurements."""

    NONE = "measurements"
    HISTORY = "declared epochs and history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A measured application in the form that ``brain.simulator`` needs."""

    #: By which runs of it are known for the same.
    name: str
    #: By kind of node.
    tables: Mapping[str, Application]
    #: How much slower it runs than they say.
    slowdown: float = 1.0
    #: Seconds that a change of its world costs; None: what the cluster says.
    restart_seconds: float | None = None
    #: What progress and gradients are read from: they are the same on every kind.
    any_table: Application = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "any_table", next(iter(self.tables.values())))

    @property
    def fixed(self) -> bool:
        """Return True if the application trains on one GPU with its largest batch size."""
        return self.any_table.fixed

    @property
    def first_batch(self) -> int:
        """Return the global batch size in which work is counted."""
        return self.largest_batch if self.fixed else self.any_table.first_batch

    @property
    def largest_batch(self) -> int:
        """Return the largest global batch size with which the application was trained."""
        return self.any_table.largest_batch

    @property
    def epochs(self) -> int:
        """Return the number of epochs of a whole run."""
        return self.any_table.epochs

    @property
    def examples(self) -> float:
        """Return the work of a whole run, in examples at ``first_batch``."""
        table = self.any_table
        steps = table.iterations(self.first_batch, table.epochs - 1)
        return (steps if self.fixed else table.progress[-1]) * self.first_batch

    def holds(self, device: DeviceKind) -> int:
        """Return the largest micro-batch."""
        return self.tables[device.name].largest_local

    def seconds(self, device: DeviceKind, shape: Shape, local: int, accumulation: int) -> float:
        """Return the seconds of one optimizer step; micro-batches before the last do not
        synchronise.
        """
        table = self.tables[device.name]
        micro, parts = self.parts(device.name, shape, local)
        step, sync = table.seconds(shape, max(micro, table.smallest_local))
        return self.slowdown * (step + (accumulation * parts - 1) * (step - sync))

    def parts(self, kind: str, shape: Shape, local: int) -> tuple[int, int]:
        """Return the size of a micro-batch as it is trained, and the number of parts into which one
        that is too large is divided.
        """
        return min(local, self.tables[kind].largest_local), 1

    def noise(self, share: float, batch: int) -> float:
        """Return the gradient noise scale in examples once ``share`` of the work is done."""
        table = self.any_table
        first = table.first_batch
        epoch = min(int(share * table.epochs), table.epochs - 1)
        square, variance = table.gradients(min(max(batch, first), table.largest_batch), epoch)
        return min(max(first * variance / max(square, 1e-30), SMALLEST * first), LARGEST * first)


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a job in the simulator: the completed share of its work, and the time of its
    end if it has ended.
    """

    share: float
    ended_at: float | None = None


class Named(Protocol):
    """A job of a simulator."""

    name: str

    @property
    def submitted(self) -> float:
        """Return the time of submission in virtual seconds."""
        ...


J = TypeVar("J", bound=Named)


class Driven:
    """One service, and its knowledge of the simulator's jobs."""

    def __init__(
        self,
        kinds: Mapping[str, NodeKind],
        knowledge: Knowledge,
        *,
        restart_seconds: float,
        migrate: bool = False,
    ) -> None:
        """
        Args:
            kinds: The kinds of nodes, by name.
            knowledge: The facts that jobs declare.
            restart_seconds: Cost of a restart of a script that has no cost of its own.
            migrate: Brain's setting: True if a job may change its kind of node.
        """
        self._knowledge = knowledge
        self._world = SimulatedCluster(Spec(nodes=kinds, restart_seconds=restart_seconds), (), {})
        settings = settings_from({"policy_mode": "auto", "migrate": migrate})
        self._service = Service(
            self._world, settings, mode=OptimizeMode.CLUSTER, seed=0, noise=NOISE
        )
        self._came: list[SimulatedEvent] = []
        self._turned_at = 0.0
        #: How far those are that were there in the last round.
        self._there: dict[str, Callable[[], Standing]] = {}
        #: By name of the job, ended ones included.
        self.runs: dict[str, SimulatedJob] = {}
        self.scripts: dict[str, Script] = {}

    @property
    def stores(self) -> Stores:
        """Return the service's stores."""
        return self._service.stores

    @property
    def nodes(self) -> list[SimulatedNode]:
        """Return the nodes in the order of the indices that placements use."""
        return self._world.nodes

    def round(
        self,
        now: float,
        jobs: Sequence[J],
        script: Callable[[J], Script],
        standing: Callable[[J], Standing],
    ) -> dict[str, Placement]:
        """Report the events of a round, let the service take a turn, and apply the desired worlds.

        Args:
            now: Virtual seconds.
            jobs: The jobs that have arrived and not ended.
            script: Returns the script of a job; called once for each job.
            standing: Returns the progress of a job; called once more after its end.

        Returns:
            The nodes of each job's replicas, by the job's name; no nodes if the job waits.
        """
        for job in jobs:
            if job.name not in self.runs:
                self._come(job.name, job.submitted, script(job), now)
        self._turn(now, {name: look() for name, look in self._there.items()})
        self._there = {job.name: partial(standing, job) for job in jobs}
        return {job.name: self.runs[job.name].placement for job in jobs}

    def _come(self, name: str, submitted: float, script: Script, now: float) -> None:
        knows, most = self._knowledge, min(_MOST, self._world.spec.accelerators)
        arrival = Arrival(
            name=name,
            at_seconds=submitted,
            application=script.name,
            wanted=1,
            batch=script.first_batch,
            bounds=Bounds(min=1, max=1 if script.fixed else most),
            declared=knows is Knowledge.HISTORY,
            tunes=not script.fixed,
            submitted_as=script.name if knows is Knowledge.HISTORY else "",
        )
        run = SimulatedJob(
            arrival=arrival, application=script, work=script.examples, batch=arrival.batch
        )
        self.runs[name], self.scripts[name] = run, script
        self._world.runs.append(run)
        self._world.present.append(run)
        self._came.append(SimulatedEvent(now, SimulatedEventKind.ARRIVED, run))

    def _turn(self, now: float, standings: Mapping[str, Standing]) -> None:
        happened = sorted([*self._brought(now, standings), *self._came], key=_instant)
        self._came = []
        self._world.now, self._turned_at = now, now
        # The service turns every other second: who was to get what others leave gets it now.
        for _ in range(_TURNS):
            if not self._service.govern(happened, time.process_time).freed:
                break
            happened = []

    def _brought(self, now: float, standings: Mapping[str, Standing]) -> Iterator[SimulatedEvent]:
        arrived = {id(one.run) for one in self._came}
        for run in [one for one in self._world.present if id(one) not in arrived]:
            standing = standings[run.name]
            if standing.ended_at is not None:
                run.done, run.finished_at, run.placement = run.work, standing.ended_at, ()
                self._world.present.remove(run)
                yield SimulatedEvent(standing.ended_at, SimulatedEventKind.FINISHED, run)
                continue
            run.done = run.work * min(standing.share, 1 - 1e-9)
            if run.placement and self._turned_at < run.ready_at <= now:
                yield SimulatedEvent(run.ready_at, SimulatedEventKind.STEPPED, run)

    def batch(self, name: str, kind: str, shape: Shape) -> tuple[int, int]:
        """Return the micro-batch size and the micro-batches of a step, as a script divides the
        batch that it was told.
        """
        run = self.runs[name]
        script = self.scripts[name]
        table = script.tables[kind]
        most = min(table.largest_local, run.most_local or run.batch)
        local, accumulation = split(run.batch, sum(shape), most)
        micro, parts = script.parts(kind, shape, local)
        return max(micro, table.smallest_local), accumulation * parts


def _instant(one: SimulatedEvent) -> float:
    return one.at_seconds
