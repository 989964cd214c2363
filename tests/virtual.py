"""A pool, a Brain and one training job in virtual time: the loop without processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from brain import cycle, lifecycle
from brain.inmemory import MemoryStores
from brain.lifecycle.observed import ThroughputObserved, look
from brain.ports import Stores, Transaction
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.job import BatchBounds, Checkpoint, Job, JobDocument, JobId
from brain.types.plan import ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.resources import PoolName
from brain.types.roles import Roles, groups_of, is_group, ranked, role_at
from brain.types.telemetry import Phase, SaveSample, SourceId, ThroughputSample
from brain.types.world import Cause, Replica, ReplicaReport, World, WorldEvent, WorldReport
from collectors.probe import measures
from tests import builders

POOL = PoolName("local")
#: Waiting times as short as the demo's.
QUICK = Settings(policy_mode="auto", dwell_seconds=10.0, restart_seconds=5.0, verify_seconds=120.0)


def scaling_by(exponent: float, *, first: float = 0.2) -> Callable[[int], float]:
    """Step seconds of a fixed global batch whose throughput grows as replicas ** exponent."""
    return lambda replicas: first / replicas**exponent


def _roles(size: int, roles: Roles) -> list[str]:
    """The role of each rank; groups have the last ranks."""
    groups = [name for name, size in groups_of(roles) for _ in range(size.replicas)]
    return [role_at(rank, ranked(roles)) for rank in range(size - len(groups))] + groups


class Laptop:
    """One job on one node. ``step_seconds`` is the truth that Brain has to find out."""

    def __init__(
        self,
        step_seconds: Callable[[int], float],
        *,
        settings: Settings = QUICK,
        cpus: int = 2,
        global_batch: int | None = 64,
        noise: float = 0.0,
        behind_seconds: float = 0.0,
        save_every: int = 0,
        save_seconds: float = 0.0,
        stores: Stores | None = None,
        **document: Any,
    ) -> None:
        self.step_seconds, self.settings = step_seconds, settings
        self.global_batch, self.noise = global_batch, noise
        #: How far the clock of its senders is behind Brain's.
        self.behind_seconds = behind_seconds
        #: Rank 0 saves after each of this number of steps, while all others wait.
        self.save_every, self.save_seconds = save_every, save_seconds
        self._phases = measures.Phases()
        #: What else the probe measures, of every rank alike.
        self.also: dict[str, Any] = {}
        self.now = builders.NOW
        #: Nodes that their scaler no longer reports.
        self.gone: set[str] = set()
        self.stores: Stores = stores or MemoryStores()
        self._random, self._step, self._sequence, self._elapsed = Random(7), 0, 0, 0.0
        self._stepping_seconds = 0.0
        given = {
            "replicas": Bounds(min=1, max=cpus),
            "checkpoint": Checkpoint(path="last.pt"),
            "batch": BatchBounds(global_size=global_batch),
        }
        self.document: JobDocument = builders.document(**(given | document))
        with self.stores.transaction() as tx:
            tx.nodes.put(builders.node(cpus=cpus))
        self.id = self.submit(self.document)

    def submit(self, document: JobDocument, *, id: str = builders.JOB) -> JobId:
        """Queue a job."""
        with self.stores.transaction() as tx:
            job = lifecycle.submit(
                tx,
                document,
                job_id=JobId(id),
                owner="ada",
                pool=POOL,
                settings=self.settings,
                now=self.now,
            )
        return job.id

    def bound(self, replicas: Bounds) -> None:
        """Let the owner change the bounds of the job."""
        with self.transaction() as (tx, job):
            tx.jobs.put(replace(job, document=replace(job.document, replicas=replicas)))

    def wait(self, seconds: float) -> "Laptop":
        """Let time pass without anything being measured."""
        self.now += timedelta(seconds=seconds)
        builders.report_nodes(self.stores, self.now, gone=self.gone)
        return self

    def turn(self) -> cycle.Turn:
        """One turn of the pool."""
        return cycle.turn(self.stores, POOL, self.settings, self.now).checked()

    def start(self) -> "Laptop":
        """Have the job admitted, and its first world formed."""
        self.turn()
        return self.coordinate()

    def coordinate(self, *, downtime_seconds: float = 3.0) -> "Laptop":
        """Do what a coordinator does: make the world what is wished, and report it."""
        wish = self.wish()
        world = self.world
        restarts = wish.anew and world is not None and world.generation < wish.generation
        if world and (world.replicas, world.ended_at) == (wish.replicas, None) and not restarts:
            return self
        cause = Cause.PLAN if world else Cause.START
        epoch, size = (world.epoch + 1 if world else 1), wish.replicas
        self.report(WorldEvent.FORMED, epoch=epoch, size=size, cause=cause)
        self.wait(downtime_seconds)
        down = {"downtime_seconds": downtime_seconds, "steps_redone": 2} if world else {}
        self.report(WorldEvent.STEPPING, epoch=epoch, size=size, cause=cause, **down)
        self._step, self._phases = 0, measures.Phases()
        return self

    def report(
        self, event: WorldEvent, *, epoch: int | None = None, size: int | None = None, **more: Any
    ) -> Job:
        """Send a coordinator's report."""
        known = self.world
        roles = self.wish().roles
        plain = builders.world(replicas=size if size is not None else self.size).members
        members = tuple(
            replace(member, role=name, processes=dict(roles)[name].processes_per_replica or 1)
            if is_group(name)
            else replace(member, role=name)
            for member, name in zip(plain, _roles(len(plain), roles), strict=True)
        )
        made: dict[str, Any] = {
            "epoch": epoch if epoch is not None else (known.epoch if known else 1),
            "generation": self.wish().generation,
            "cause": Cause.START,
            "at": self.now - timedelta(seconds=self.behind_seconds),
        }
        report = WorldReport(job=self.id, event=event, members=members, **(made | more))
        with self.stores.transaction() as tx:
            return lifecycle.world_reported(tx, report, settings=self.settings, now=self.now)

    def observe(self, *replicas: Replica, waiting: str | None = None) -> Job:
        """Send a scaler's report."""
        report = ReplicaReport(job=self.id, replicas=replicas, waiting=waiting, at=self.now)
        with self.stores.transaction() as tx:
            return lifecycle.replicas_reported(tx, report, settings=self.settings, now=self.now)

    def train(self, seconds: float, *, slow_rank: int | None = None) -> "Laptop":
        """Let the present world train and be measured, a sample a second and rank."""
        world = self.world
        assert world is not None, "a world trains"
        for _ in range(round(seconds)):
            self.wait(1.0)
            self._stepping_seconds += 1.0
            saves = self.save_every > 0 and self._step % self.save_every == 0
            truth = self.step_seconds(self.size) + (self.save_seconds if saves else 0.0)
            if self._stepping_seconds < truth:
                continue  # a slow step goes on
            self._stepping_seconds = 0.0
            steps = max(1, round(1 / truth))
            self._step += steps
            self._sequence += 1
            samples = [
                self._sample(world, rank, truth * (1.5 if rank == slow_rank else 1.0), steps)
                for rank in range(world.processes)
            ]
            if self.save_every:
                samples[0] = replace(samples[0], phase=self._phase(saves))
            with self.stores.transaction() as tx:
                tx.telemetry.add(
                    [*samples, *([self._save(world)] if saves else [])],
                    received_at=self.now,
                    offset_seconds=self.behind_seconds,
                )
        return self

    def live(self, seconds: float, *, every: int = 2) -> list[cycle.Turn]:
        """Train, with a turn and a coordinator's look every few seconds."""
        turns = []
        for _ in range(round(seconds / every)):
            self.train(every)
            turns.append(self.turn())
            self.coordinate()
        return turns

    @contextmanager
    def transaction(self) -> Iterator[tuple[Transaction, Job]]:
        """A transaction and the job in it."""
        with self.stores.transaction() as tx:
            yield tx, tx.jobs.get(self.id)

    @property
    def job(self) -> Job:
        with self.transaction() as (_, job):
            return job

    @property
    def world(self) -> World | None:
        with self.transaction() as (tx, job):
            return tx.worlds.latest(job.id)

    @property
    def size(self) -> int:
        return self.world.replicas if self.world else 0

    @property
    def plans(self) -> list[ScalePlan]:
        """Highest generation first."""
        with self.transaction() as (tx, job):
            return list(tx.plans.of(job.id))

    @property
    def decision(self) -> Recommendation:
        with self.transaction() as (tx, job):
            decision = tx.plans.decision(job.id)
        assert decision is not None, "something was decided"
        return decision

    @property
    def sight(self) -> ThroughputObserved:
        with self.transaction() as (tx, job):
            return look(tx, job, settings=self.settings, now=self.now)

    def wish(self) -> Any:
        with self.transaction() as (tx, job):
            return lifecycle.wish(tx, job, self.settings)

    def events(self, prefix: str) -> list[str]:
        """Kinds of events that begin with ``prefix``, with their subject, in order."""
        with self.stores.transaction() as tx:
            found = [event for event in tx.events.after(0) if event.kind.startswith(prefix)]
        return [f"{e.kind} {e.subject}" if e.subject is not None else e.kind for e in found]

    def _phase(self, saved: bool) -> Phase:
        """The phase that the probe gives to the present step of rank 0."""
        return Phase(measures.PHASES[self._phases.next(self._step, saved, evaluated=False)])

    def _save(self, world: World) -> SaveSample:
        """The save of rank 0 before the present step ended."""
        save = builders.save(
            self._sequence,
            measured_at=self.now - timedelta(seconds=self.behind_seconds),
            step=self._step - 1,
            save_seconds=self.save_seconds,
        )
        place = replace(save.place, job=self.id, epoch=world.epoch)
        return replace(save, place=replace(place, source=SourceId(f"{world.epoch}-0-saves")))

    def _sample(self, world: World, rank: int, truth: float, steps: int) -> ThroughputSample:
        step = truth * (1 + self._random.gauss(0, self.noise))
        local = None if self.global_batch is None else self.global_batch // world.processes
        made: dict[str, Any] = {
            "measured_at": self.now - timedelta(seconds=self.behind_seconds),
            "replicas": world.replicas,
            "processes": world.processes,
            "local_batch": local,
            "steps": steps,
            "step": self._step,
            "step_seconds": step,
            "step_seconds_mean": step,
            # Loaders keep up.
            "data_wait_seconds": 0.01 * step,
            "examples_per_second": None if local is None else local / step,
            **self.also,
        }
        sample = builders.throughput(
            self._sequence,
            rank=rank,
            epoch=world.epoch,
            source=SourceId(f"{world.epoch}-{rank}"),
            **made,
        )
        return replace(sample, place=replace(sample.place, job=self.id))
