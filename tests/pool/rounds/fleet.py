"""Several jobs on several nodes in virtual time, with the truth that Brain has to find out."""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from brain import cycle, lifecycle
from brain.inmemory import MemoryStores
from brain.pool.rounds import Memo
from brain.ports import Stores
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, Checkpoint, Job, JobId, OptimizeMode, PolicyMode
from brain.types.plan import ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.sharing import PoolRound
from brain.types.telemetry import SourceId
from brain.types.world import (
    Cause,
    Member,
    Replica,
    ReplicaExit,
    ReplicaReport,
    ReplicaState,
    WorldEvent,
    WorldReport,
)
from tests import builders

POOL = PoolName("local")
#: Waiting times as short as the demo's.
QUICK = Settings(
    policy_mode="auto",
    shared_dwell_seconds=20.0,
    restart_seconds=2.0,
    verify_seconds=30.0,
    round_seconds=2,
)


#: How much faster than the others a kind of accelerator is.
FASTER = {"A100": 3.0}


@dataclass
class Running:
    """One job as the world has it."""

    id: JobId
    #: Seconds of a step by number of replicas.
    step_seconds: Callable[[int], float]
    #: Share of a step in which its workers wait for data.
    waits: float = 0.0
    step: int = 0
    replicas: dict[int, Replica] = field(default_factory=dict)
    made: int = 0


class Fleet:
    """Does what coordinators and scalers do for every job of a pool."""

    def __init__(
        self,
        nodes: Mapping[str, int],
        *,
        kinds: Mapping[str, str] | None = None,
        settings: Settings = QUICK,
        stores: Stores | None = None,
        seed: int = 7,
    ) -> None:
        self.settings, self.now = settings, builders.NOW
        self.stores: Stores = stores or MemoryStores()
        self.jobs: dict[str, Running] = {}
        #: Nodes that their scaler no longer reports.
        self.gone: set[str] = set()
        #: None: every turn looks at everything.
        self.memo: Memo | None = None
        #: Jobs whose new worlds do not step.
        self.starting: set[str] = set()
        #: How much longer steps take on some nodes.
        self.slow: dict[str, float] = {}
        #: Jobs that get no room on other nodes.
        self.stuck: set[str] = set()
        #: Nodes whose idle resources others take before a job's new replicas come.
        self.taken: set[str] = set()
        #: Factor on the steps of a job whose replicas are on several nodes.
        self.apart = 1.0
        self._random, self._sequence, self._submitted = Random(seed), 0, 0
        with self.stores.transaction() as tx:
            for name, cpus in nodes.items():
                made = gpus(name, cpus, kinds[name]) if kinds else builders.node(name, cpus=cpus)
                tx.nodes.put(made)
        self._kinds: Mapping[str, str] = kinds or {}

    def copied(self) -> "Fleet":
        """Another fleet with the same past; stores in memory share the lock, which has no copy."""
        lock = vars(self.stores)["_turn"]
        return deepcopy(self, {id(lock): lock})

    def submit(
        self,
        name: str,
        step_seconds: Callable[[int], float],
        *,
        mode: str = "auto",
        waits: float = 0.0,
        **document: Any,
    ) -> JobId:
        """Queue a job that shares the pool."""
        id = JobId(f"0197f000-0000-7000-8000-{self._submitted:012}")
        given: dict[str, Any] = {
            "command": ("python", f"{name}.py"),
            "replicas": Bounds(min=1, max=4),
            "checkpoint": Checkpoint(path="last.pt"),
            "optimize_mode": OptimizeMode.CLUSTER,
            "policy": ApprovalPolicy(mode=PolicyMode(mode)),
        }
        with self.stores.transaction() as tx:
            lifecycle.submit(
                tx,
                builders.document(name, **(given | document)),
                job_id=id,
                owner="ada",
                pool=POOL,
                settings=self.settings,
                now=self.now,
            )
        self.jobs[name] = Running(id, step_seconds, waits)
        self._submitted += 1
        return id

    def turn(self) -> cycle.Turn:
        """One turn of the pool."""
        return self.turn_with_bugs().checked()

    def turn_with_bugs(self) -> cycle.Turn:
        """The same where bugs are what is looked for."""
        return cycle.turn(self.stores, POOL, self.settings, self.now, memo=self.memo)

    def live(self, seconds: int, *, every: int = 2) -> list[cycle.Turn]:
        """Train, with a turn and the looks of scalers and coordinators every few seconds."""
        turns = []
        for _ in range(seconds // every):
            self.train(every)
            turns.append(self.turn())
            self.settle()
        return turns

    def settle(self) -> "Fleet":
        """Make every world what is wished, and report it."""
        for name, running in self.jobs.items():
            if not self.job(running.id).finished and name not in self.stuck:
                self._scale(running, steps=name not in self.starting)
        return self

    def pass_time(self, seconds: float) -> None:
        """Move the clock on; scalers go on reporting nodes."""
        self.now += timedelta(seconds=seconds)
        builders.report_nodes(self.stores, self.now, gone=self.gone)

    def train(self, seconds: int, *, silent: str = "") -> "Fleet":
        """Let all worlds train and be measured, a sample a second and rank."""
        for _ in range(seconds):
            self.pass_time(1)
            self._sequence += 1
            for name, running in self.jobs.items():
                if name != silent:
                    self._train(running)
        return self

    def finish(self, name: str) -> None:
        """Let a job end well."""
        running = self.jobs.pop(name)
        self._report(running, WorldEvent.FINISHED, epoch=self._epoch(running))
        ended = [_exited(replica, self.now) for replica in running.replicas.values()]
        self._observe(running, ended)

    def stop_world(self, name: str) -> None:
        """Let a job's coordinator report that its world stopped; its replicas have not exited."""
        running = self.jobs[name]
        self._report(running, WorldEvent.STOPPED, epoch=self._epoch(running))

    def job(self, id: JobId) -> Job:
        with self.stores.transaction(read_only=True) as tx:
            return tx.jobs.get(id)

    def size(self, name: str) -> int:
        """Replicas that a job has."""
        return len(self.jobs[name].replicas)

    def plans(self, name: str) -> list[ScalePlan]:
        """Highest generation first."""
        with self.stores.transaction(read_only=True) as tx:
            return list(tx.plans.of(self.jobs[name].id))

    def decision(self, name: str) -> Recommendation:
        with self.stores.transaction(read_only=True) as tx:
            found = tx.plans.decision(self.jobs[name].id)
        assert found is not None, "something was decided"
        return found

    @property
    def round(self) -> PoolRound:
        with self.stores.transaction(read_only=True) as tx:
            found = tx.pools.round(POOL)
        assert found is not None, "there was a round"
        return found

    def held(self) -> dict[str, int]:
        """Replicas on each node."""
        counted: dict[str, int] = {}
        for running in self.jobs.values():
            for replica in running.replicas.values():
                counted[replica.node] = counted.get(replica.node, 0) + 1
        return counted

    def _scale(self, running: Running, *, steps: bool) -> None:
        with self.stores.transaction(read_only=True) as tx:
            job = tx.jobs.get(running.id)
            wish = lifecycle.wish(tx, job, self.settings)
            nodes = list(tx.nodes.of(POOL))
            world = tx.worlds.latest(job.id)
        chosen = Counter(dict(wish.nodes))
        here = Counter(replica.node for replica in running.replicas.values())
        settled = chosen in (Counter(), here) or bool(self.taken)
        if wish.replicas == len(running.replicas) and settled:
            return
        gone = self._shrink(running, wish.replicas, chosen)
        self._grow(running, wish.replicas, dict(wish.nodes), nodes, wish.generation)
        cause = Cause.PLAN if world else Cause.START
        epoch = 1 + (world.epoch if world else 0)
        self._report(running, WorldEvent.FORMED, epoch=epoch, cause=cause)
        self._observe(running, [*running.replicas.values(), *gone])
        if running.replicas and steps:
            down = {"downtime_seconds": 2.0, "steps_redone": 0} if world else {}
            self._report(running, WorldEvent.STEPPING, epoch=epoch, cause=cause, **down)
        running.step = 0

    def _shrink(self, running: Running, size: int, chosen: Counter[NodeName]) -> list[Replica]:
        """Let go of what is on a node that was not chosen, else of the youngest."""
        kept: Counter[NodeName] = Counter()
        gone = []
        for id, replica in list(running.replicas.items()):
            most = chosen[replica.node] if chosen else size
            if kept[replica.node] >= most or kept.total() >= size:
                gone.append(_exited(running.replicas.pop(id), self.now))
            else:
                kept[replica.node] += 1
        return gone

    def _grow(
        self,
        running: Running,
        size: int,
        chosen: dict[NodeName, int],
        nodes: list[Node],
        generation: int,
    ) -> None:
        while len(running.replicas) < size:
            held = self.held()
            here = [r.node for r in running.replicas.values()]
            wanted = [name for name, n in chosen.items() if here.count(name) < n]
            usable = [node for node in nodes if node.schedulable and node.name not in self.taken]
            free = [n.name for n in usable if held.get(n.name, 0) < _slots(n)]
            node = next((name for name in (*wanted, *free) if name in free), None)
            if node is None:
                return
            running.replicas[running.made] = builders.replica(
                running.made, node=node, generation=generation, started_at=self.now
            )
            running.made += 1

    def _observe(self, running: Running, replicas: list[Replica]) -> None:
        report = ReplicaReport(job=running.id, replicas=tuple(replicas), at=self.now)
        with self.stores.transaction() as tx:
            lifecycle.replicas_reported(tx, report, settings=self.settings, now=self.now)

    def _report(self, running: Running, event: WorldEvent, *, epoch: int, **more: Any) -> None:
        members = tuple(
            Member(
                replica=id, group_rank=rank, processes=1, node=r.node, address=f"127.0.0.1:{rank}"
            )
            for rank, (id, r) in enumerate(running.replicas.items())
        )
        with self.stores.transaction() as tx:
            wish = lifecycle.wish(tx, tx.jobs.get(running.id), self.settings)
            made: dict[str, Any] = {"cause": Cause.START, "generation": wish.generation}
            report = WorldReport(
                job=running.id,
                event=event,
                epoch=epoch,
                members=members,
                at=self.now,
                **(made | more),
            )
            lifecycle.world_reported(tx, report, settings=self.settings, now=self.now)

    def _epoch(self, running: Running) -> int:
        with self.stores.transaction(read_only=True) as tx:
            world = tx.worlds.latest(running.id)
        return world.epoch if world else 1

    def _train(self, running: Running) -> None:
        size = len(running.replicas)
        if not size:
            return
        kind = self._kinds.get(next(iter(running.replicas.values())).node, "cpu")
        truth = running.step_seconds(size) * (1 + self._random.gauss(0, 0.002))
        truth /= FASTER.get(kind, 1.0)
        truth *= self.apart if len({r.node for r in running.replicas.values()}) > 1 else 1.0
        steps = max(1, round(1 / truth))
        running.step += steps
        epoch, nodes = self._epoch(running), {r.node for r in running.replicas.values()}
        samples = [
            builders.throughput(
                self._sequence,
                job=running.id,
                rank=rank,
                epoch=epoch,
                source=SourceId(f"{running.id}-{epoch}-{rank}"),
                measured_at=self.now,
                nodes=len(nodes),
                replicas=size,
                processes=size,
                accelerator=kind,
                local_batch=64 // size,
                steps=steps,
                step=running.step,
                step_seconds=truth * self.slow.get(replica.node, 1.0),
                step_seconds_mean=truth * self.slow.get(replica.node, 1.0),
                examples_per_second=64 / size / truth,
                data_wait_seconds=running.waits * truth,
            )
            for rank, replica in enumerate(running.replicas.values())
        ]
        ids = list(running.replicas)
        placed = [replace(s, place=replace(s.place, replica=ids[s.place.rank])) for s in samples]
        with self.stores.transaction() as tx:
            tx.telemetry.add(placed, received_at=self.now)


def scaling_by(exponent: float, *, first: float = 0.2) -> Callable[[int], float]:
    """Step seconds of a fixed global batch whose throughput grows as replicas ** exponent."""
    return lambda replicas: first / replicas**exponent


def gpus(name: str, count: int, kind: str) -> Node:
    """A machine of ``count`` accelerators."""
    capacity = Resources(cpu_millis=64_000, memory_bytes=2**38, gpus=count)
    return builders.node(name, capacity=capacity, accelerator=kind)


def _slots(node: Node) -> int:
    return node.capacity.gpus or node.capacity.cpu_millis // 1000


def _exited(replica: Replica, at: datetime) -> Replica:
    return replace(replica, state=ReplicaState.EXITED, exit=ReplicaExit.LEFT, ended_at=at)
