"""Brain's service in Pollux's simulator: ``cycle.turn`` on stores in memory, once a round.

Physics, rounds, restarts and arrivals are the simulator's (``pollux``). What a scaler, coordinators
and probes do around Brain is ``brain.simulator.service``'s, as under ``brain simulate``: scripts
take the batch that Brain tells them, and measurements scatter. Beside Pollux's information Brain
lacks one thing: the gradient noise of a worker that makes one micro-batch a step.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.jct.applications import Application
from benchmarks.jct.brain import Knowledge
from benchmarks.jct.pollux import GPUS_PER_NODE, NODES, RESTART_SECONDS, Allocation, Job
from brain.models.efficiency import LARGEST, SMALLEST
from brain.ports import Stores
from brain.settings import settings_from
from brain.simulator.applications import Device, Shape, split
from brain.simulator.run import NOISE
from brain.simulator.service import Service
from brain.simulator.spec import NodeKind, Spec
from brain.simulator.workload import Arrival
from brain.simulator.world import Event, Happening, Run, World
from brain.types.allocation import Bounds
from brain.types.job import OptimizeMode

_KIND = "gpu"
#: Turns of one round at most.
_TURNS = 4


@dataclass(frozen=True, slots=True)
class Table:
    """An application of Pollux's as ``brain.simulator`` asks it."""

    table: Application

    @property
    def first_batch(self) -> int:
        """Global batch that work is counted in."""
        return self.table.largest_batch if self.table.fixed else self.table.first_batch

    @property
    def largest_batch(self) -> int:
        """Largest global batch that it was trained with."""
        return self.table.largest_batch

    @property
    def epochs(self) -> int:
        """Epochs of a whole run."""
        return self.table.epochs

    @property
    def examples(self) -> float:
        """Work of a whole run, in examples of ``first_batch``."""
        if self.table.fixed:
            return self.table.iterations(self.first_batch, self.table.epochs - 1) * self.first_batch
        return self.table.progress[-1] * self.table.first_batch

    restart_seconds: None = field(default=None, init=False)

    def holds(self, device: Device) -> int:
        """Largest micro-batch."""
        return self.table.largest_local

    def seconds(self, device: Device, shape: Shape, local: int, accumulation: int) -> float:
        """Seconds of one optimizer step."""
        bounded = min(max(local, self.table.smallest_local), self.table.largest_local)
        step, sync = self.table.seconds(shape, bounded)
        return step + (accumulation - 1) * (step - sync)

    def noise(self, share: float, batch: int) -> float:
        """Gradient noise scale in examples once ``share`` of the work is done."""
        first = self.table.first_batch
        epoch = min(int(share * self.table.epochs), self.table.epochs - 1)
        bounded = min(max(batch, first), self.table.largest_batch)
        square, variance = self.table.gradients(bounded, epoch)
        return min(max(first * variance / max(square, 1e-30), SMALLEST * first), LARGEST * first)


class Turn:
    """The policy: what happened is told to the service, and its wishes are the allocation."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        restart_seconds: float = RESTART_SECONDS,
        nodes: int = NODES,
        per_node: int = GPUS_PER_NODE,
    ) -> None:
        self._knowledge = knowledge
        kinds = {_KIND: NodeKind(count=nodes, gpus=per_node)}
        spec = Spec(nodes=kinds, restart_seconds=restart_seconds)
        self._world = World(spec, (), {})
        settings = settings_from({"policy_mode": "auto"})
        self._service = Service(
            self._world, settings, mode=OptimizeMode.CLUSTER, seed=0, noise=NOISE
        )
        self._runs: dict[str, Run] = {}
        self._jobs: dict[str, Job] = {}
        self._asked_at = 0.0

    @property
    def stores(self) -> Stores:
        """What the service stored."""
        return self._service.stores

    def admit(self, job: Job) -> None:
        """The policy sets batches."""
        job.batch = job.application.largest_batch if job.application.fixed else None

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """Tell the service what the round brought, let it turn, and do what it wishes."""
        world, happened = self._world, self._ended(jobs)
        for run, job in ((self._runs[one.name], one) for one in jobs if one.name in self._runs):
            run.done = run.work * min(job.progress / job.application.progress[-1], 1 - 1e-9)
            if run.placement and self._asked_at < run.ready_at <= now:
                happened.append(Happening(run.ready_at, Event.STEPPED, run))
        happened += [Happening(now, Event.ARRIVED, self._come(one)) for one in self._new(jobs)]
        world.now = now
        happened.sort(key=lambda one: one.at_seconds)
        # The service turns every other second: who was to get what others leave gets it now.
        for _ in range(_TURNS):
            if not self._service.govern(happened, time.process_time).freed:
                break
            happened = []
        self._asked_at = now
        for job in jobs:
            self._batch(job, self._runs[job.name])
        return {job.name: list(self._runs[job.name].placement) for job in jobs}

    def _new(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if job.name not in self._runs]

    def _come(self, job: Job) -> Run:
        table = Table(job.application)
        most = 1 if job.application.fixed else min(64, self._world.spec.accelerators)
        known = self._knowledge
        arrival = Arrival(
            name=job.name,
            at_seconds=job.submitted,
            application=job.application.name,
            wanted=1,
            batch=table.first_batch,
            bounds=Bounds(min=1, max=most),
            declared=known is not Knowledge.NONE,
            tunes=not job.application.fixed,
            submitted_as=job.application.name if known is Knowledge.HISTORY else "",
        )
        run = Run(arrival=arrival, application=table, work=table.examples, batch=arrival.batch)
        self._runs[job.name], self._jobs[job.name] = run, job
        self._world.runs.append(run)
        self._world.present.append(run)
        return run

    def _ended(self, jobs: Sequence[Job]) -> list[Happening]:
        there, found = {job.name for job in jobs}, []
        for run in [one for one in self._world.present if one.name not in there]:
            at = self._jobs[run.name].completed
            assert at is not None, "it has left the cluster"
            run.done, run.finished_at, run.placement = run.work, at, ()
            self._world.present.remove(run)
            found.append(Happening(at, Event.FINISHED, run))
        return found

    def _batch(self, job: Job, run: Run) -> None:
        """Split the batch that Brain told as a script does that follows it."""
        if not run.placement or job.batch is not None:
            return
        holds = min(job.application.largest_local, run.most_local or run.batch)
        local, job.accumulation = split(run.batch, len(run.placement), holds)
        job.local_batch = max(local, job.application.smallest_local)
        if len(run.placement) == job.replicas:
            job.split()
