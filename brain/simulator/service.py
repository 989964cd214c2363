"""Brain in the loop of a simulation: Brain's own ``cycle.turn`` on in-memory stores, in virtual
time.

The module simulates the scaler and the coordinators: it reads the desired world of each job,
assigns nodes to it, and reports replicas, worlds and samples through the same functions that the
routes call.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from brain import cycle, lifecycle
from brain.inmemory import MemoryStores
from brain.pool.rounds import Memo
from brain.ports import Transaction
from brain.settings import Settings
from brain.simulator.placing import Placement, of_kind, place
from brain.simulator.submitted import POOL, document_of, name_of, policy_of, steps_for, stored
from brain.simulator.telling import WINDOW_SECONDS, Telling, ended, members, running
from brain.simulator.world import (
    Governed,
    SimulatedCluster,
    SimulatedEvent,
    SimulatedEventKind,
    SimulatedJob,
)
from brain.types.job import (
    JobId,
    OptimizeMode,
)
from brain.types.resources import NodeName
from brain.types.telemetry import ThroughputSample
from brain.types.world import (
    Cause,
    DesiredWorld,
    ReplicaExit,
    ReplicaReport,
    ReplicaState,
    WorldEvent,
    WorldReport,
)

#: The time at which virtual time begins, which has no meaning as a date.
BEGAN = datetime(2000, 1, 1, tzinfo=UTC)
#: Seconds after which samples are deleted, and between deletions: decisions rest on newer samples,
#: and worlds are stored as points.
_KEPT_SECONDS, _FORGET_SECONDS = 1200.0, 300.0
#: Time, in turns, after which Brain counts as having been absent, and after half of which a job is
#: looked at again. The service has a turn every two seconds, but virtual time only one a minute.
_PRESENT_TURNS = 1.5


@dataclass(slots=True)
class KnownJob:
    """The knowledge of the coordinator and the scaler about one job."""

    id: JobId
    run: SimulatedJob
    telling: Telling
    epoch: int = 0
    #: Ids and nodes of the replicas of the job's world, in the order of ranks.
    replicas: tuple[int, ...] = ()
    nodes: tuple[NodeName, ...] = ()
    next_replica: int = 0
    #: Cause of the job's next world.
    cause: Cause = Cause.START
    generation: int = 0
    #: Time at which the workers stopped, for the downtime of the next world.
    stopped_at: float | None = None
    #: Work that lost nodes had cost by the start of the present world.
    redone: float = 0.0
    #: Time up to which the job's probes have sent their samples.
    told_at: float = 0.0


class Service:
    """Governs a ``SimulatedCluster`` with Brain."""

    def __init__(
        self,
        world: SimulatedCluster,
        settings: Settings,
        *,
        mode: OptimizeMode,
        seed: int,
        noise: float,
    ) -> None:
        # With this value Brain never counts as absent between two turns, and every turn looks at
        # every job.
        present = max(settings.stale_seconds, _PRESENT_TURNS * world.spec.turn_seconds)
        settings = replace(settings, stale_seconds=present)
        self._world, self._settings, self._mode = world, settings, mode
        self._seed, self._noise = seed, noise
        self.stores = MemoryStores()
        self._seen: dict[str, KnownJob] = {}
        #: The memo that the service passes from turn to turn.
        self._memo = Memo(POOL)
        self._forgotten_at = 0.0
        self._index = {name_of(node): node.index for node in world.nodes}
        with self.stores.transaction() as tx:
            if world.spec.projects:
                tx.pools.put_policy(policy_of(world.spec, self._at(0.0)))

    def govern(
        self, happenings: Sequence[SimulatedEvent], stopwatch: Callable[[], float]
    ) -> Governed:
        """Report the events to Brain, let it decide, and carry out its decisions."""
        with self.stores.transaction() as tx:
            for node in self._world.nodes:
                tx.nodes.put(stored(node, self._now))
            for one in happenings:
                self._report(tx, one)
            samples = [sample for seen in self._here() for sample in self._samples(seen)]
            tx.telemetry.add(samples, received_at=self._now)
            self._forget(tx)
        began = stopwatch()
        turn = cycle.turn(self.stores, POOL, self._settings, self._now, memo=self._memo).checked()
        took = stopwatch() - began
        shared = self._mode is OptimizeMode.CLUSTER
        return Governed(
            seconds=took,
            freed=self._carry_out(),
            decided=turn.round is not None or not shared,
            awaited=any(self._awaited(seen) for seen in self._here() if seen.run.placement),
        )

    def _awaited(self, seen: KnownJob) -> bool:
        """Return True if Brain waits for the next samples of a job's probes."""
        looked = self._memo.looked.get(seen.id)
        starts = seen.run.ready_at >= self._world.now
        return starts or looked is None or looked.awaited

    def _forget(self, tx: Transaction) -> None:
        """Delete samples that no decision reads any more, which later reads would have to skip."""
        if self._world.now >= self._forgotten_at + _FORGET_SECONDS:
            self._forgotten_at = self._world.now
            before = self._at(self._world.now - _KEPT_SECONDS)
            now = self._now
            tx.telemetry.retire(raw_before=before, means_before=now, hours_before=now)

    @property
    def _now(self) -> datetime:
        return self._at(self._world.now)

    def _at(self, seconds: float) -> datetime:
        return BEGAN + timedelta(seconds=seconds)

    def _here(self) -> list[KnownJob]:
        return [self._seen[run.name] for run in self._world.present if run.name in self._seen]

    # Reports of events to Brain.

    def _report(self, tx: Transaction, one: SimulatedEvent) -> None:
        at = self._at(one.at_seconds)
        if one.run is None:
            return
        if one.event is SimulatedEventKind.ARRIVED:
            self._submit(tx, one.run, at)
            return
        seen = self._seen[one.run.name]
        match one.event:
            case SimulatedEventKind.STEPPED:
                self._stepping(tx, seen, one.at_seconds)
            case SimulatedEventKind.FINISHED:
                self._tell_world(tx, seen, WorldEvent.FINISHED, at)
                self._exit(tx, seen, ReplicaExit.SUCCEEDED, at)
            case SimulatedEventKind.LOST:
                seen.stopped_at, seen.cause = one.at_seconds, Cause.MEMBERSHIP
                self._tell_world(tx, seen, WorldEvent.LOST, at, detail="a node was lost")
                self._exit(tx, seen, ReplicaExit.LOST, at)

    def _submit(self, tx: Transaction, run: SimulatedJob, at: datetime) -> None:
        order = len(self._seen)
        if run.arrival.tunes:
            run.batch = run.application.first_batch
        document = document_of(run, self._mode, self._holds(run))
        if any(job.document.name == document.name for job in tx.jobs.unfinished(POOL)):
            document = replace(document, name=run.name)
        job = lifecycle.submit(
            tx,
            document,
            job_id=JobId(f"00000000-0000-7000-8000-{order:012x}"),
            owner="workload",
            pool=POOL,
            settings=self._settings,
            now=at,
        )
        generator = np.random.default_rng([self._seed, 0, order])
        self._seen[run.name] = KnownJob(job.id, run, Telling(generator, self._noise))

    def _holds(self, run: SimulatedJob) -> dict[str, int]:
        """Return the largest micro-batch that each kind of node holds."""
        kinds = self._world.spec.nodes
        return {kind: run.application.holds(self._world.device(kind)) for kind in kinds}

    def _stepping(self, tx: Transaction, seen: KnownJob, at_seconds: float) -> None:
        if not seen.run.placement and seen.run.finished_at is None:
            return  # The replica was lost again before its report.
        down = None if seen.stopped_at is None else at_seconds - seen.stopped_at
        redone = None if down is None else steps_for(seen.run, seen.run.redone - seen.redone)
        seen.stopped_at, seen.redone = None, seen.run.redone
        self._tell_world(
            tx,
            seen,
            WorldEvent.STEPPING,
            self._at(at_seconds),
            downtime_seconds=down,
            steps_redone=redone,
        )

    def _samples(self, seen: KnownJob) -> Iterable[ThroughputSample]:
        run, world = seen.run, self._world
        began = max(seen.told_at, run.ready_at)
        told = world.now - began
        # Samples for which Brain does not wait may be reported with the next ones.
        if not run.placement or told <= 0 or (told < WINDOW_SECONDS and not self._awaited(seen)):
            return ()
        seen.told_at = world.now
        return seen.telling.windows(
            run,
            world,
            job=seen.id,
            epoch=seen.epoch,
            generation=seen.generation,
            replicas=seen.replicas,
            since=began,
            at=self._at,
        )

    # Changes that Brain wants.

    def _carry_out(self) -> bool:
        with self.stores.transaction(read_only=True) as tx:
            wished = [(seen, self._wish(tx, seen)) for seen in self._here()]
        freed = False
        for seen, wish in wished:
            if wish.batch is not None:
                seen.run.batch, seen.run.most_local = wish.batch.global_size, wish.batch.local_most
        for seen, wish in wished:
            if wish.replicas < len(seen.run.placement):
                freed = self._change(seen, wish) or freed
        for seen, wish in wished:
            if wish.replicas >= len(seen.run.placement):
                self._change(seen, wish)
        return freed

    def _wish(self, tx: Transaction, seen: KnownJob) -> DesiredWorld:
        return lifecycle.wish(tx, tx.jobs.get(seen.id), self._settings)

    def _change(self, seen: KnownJob, wish: DesiredWorld) -> bool:
        run, had = seen.run, seen.run.placement
        placement = self._nodes_for(run, wish)
        if placement == had:
            return False
        if had:
            seen.stopped_at, seen.cause = self._world.now, Cause.PLAN
        with self.stores.transaction() as tx:
            self._exit(tx, seen, ReplicaExit.LEFT, self._now)
            self._world.place(run, placement)
            if placement:
                self._form(tx, seen, wish)
            else:
                self._tell_world(tx, seen, WorldEvent.STOPPED, self._now)
        return len(placement) < len(had)

    def _nodes_for(self, run: SimulatedJob, wish: DesiredWorld) -> Placement:
        """Return the nodes that a wish names, else as few nodes of one kind as possible.

        A job stays on its kind; a job without one takes the kind with the most room. If not all
        replicas fit, as many units as fit are placed.
        """
        free = self._world.free()
        for node in run.placement:
            free[node] += 1
        named = self._named(wish)
        if named and all(free.get(node, 0) >= named.count(node) for node in named):
            return named
        if wish.replicas == len(run.placement):
            return run.placement
        kinds = of_kind(self._world.machines, free)
        kind = run.kind
        if not run.placement:
            kind = max(kinds, key=lambda name: sum(kinds[name].values()), default="")
        room = sum(kinds.get(kind, {}).values())
        size = min(wish.replicas, room) // wish.unit * wish.unit
        if wish.replicas and (size < wish.minimum or size <= len(run.placement) < wish.replicas):
            return run.placement
        return place(kinds.get(kind, {}), size) or ()

    def _named(self, wish: DesiredWorld) -> Placement:
        """Return the nodes that Brain chose; empty if Brain left them open."""
        nodes = [self._index[name] for name, count in wish.nodes for _ in range(count)]
        return tuple(sorted(nodes)) if len(nodes) == wish.replicas else ()

    def _form(self, tx: Transaction, seen: KnownJob, wish: DesiredWorld) -> None:
        run, count = seen.run, len(seen.run.placement)
        seen.replicas = tuple(range(seen.next_replica, seen.next_replica + count))
        seen.next_replica += count
        seen.epoch += 1
        seen.generation = wish.generation
        seen.nodes = tuple(name_of(self._world.nodes[node]) for node in run.placement)
        new = running(seen.replicas, seen.nodes, wish.generation, self._now)
        report = ReplicaReport(job=seen.id, replicas=new, at=self._now)
        lifecycle.replicas_reported(tx, report, settings=self._settings, now=self._now)
        self._tell_world(tx, seen, WorldEvent.FORMED, self._now)

    def _exit(self, tx: Transaction, seen: KnownJob, how: ReplicaExit, at: datetime) -> None:
        known = [r for r in tx.worlds.replicas(seen.id) if r.state is not ReplicaState.EXITED]
        gone = [ended(replica, how, at) for replica in known]
        if gone:
            tx.worlds.put_replicas(seen.id, gone)

    def _tell_world(
        self,
        tx: Transaction,
        seen: KnownJob,
        event: WorldEvent,
        at: datetime,
        *,
        downtime_seconds: float | None = None,
        steps_redone: int | None = None,
        detail: str = "",
    ) -> None:
        report = WorldReport(
            job=seen.id,
            event=event,
            epoch=seen.epoch,
            generation=seen.generation,
            cause=seen.cause,
            members=members(seen.replicas, seen.nodes),
            at=at,
            downtime_seconds=downtime_seconds,
            steps_redone=steps_redone,
            detail=detail,
        )
        lifecycle.world_reported(tx, report, settings=self._settings, now=at)
