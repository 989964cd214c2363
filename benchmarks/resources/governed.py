"""Lets the service govern a made-up job with parameter servers: ``cycle.turn`` on in-memory stores.

The reports that a scaler, a coordinator, the chief's probe and a collector would send are stored by
the functions that the routes call. The job's next size is the service's desired world.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from benchmarks.resources.dlrm import GIB, Amount, Size
from benchmarks.resources.playing import MOST_REPLICAS, Reading
from brain import cycle, lifecycle
from brain.inmemory import MemoryStores
from brain.pool.rounds import Memo
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.job import ApprovalPolicy, Checkpoint, JobDocument, JobId, PolicyMode
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.roles import CHIEF, PS, WORKER, RoleSize, role_at
from brain.types.telemetry import (
    HostSample,
    Phase,
    ReplicaReading,
    SampleSource,
    SourceId,
    ThroughputSample,
)
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

#: Readings between deletions of old samples.
_RETIRE = 240
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_POOL, _NODE = PoolName("pool"), NodeName("node")
_ROOM = Resources(cpu_millis=4_000_000, memory_bytes=int(16_384 * GIB))
_CHIEF = Resources(cpu_millis=1000, memory_bytes=int(GIB))
_JOB = JobId("00000000-0000-7000-8000-000000000001")


class Governed:
    """One job, and a service that governs only this job."""

    #: Seconds between readings, as those of a collector; a turn follows each reading.
    reads_seconds = 5.0

    def __init__(self, steps: float) -> None:
        self._settings, self._stores = Settings(), MemoryStores()
        self._memo, self._steps = Memo(_POOL), steps
        self._epoch = self._first = self._ticks = self._sequence = self._in_world = 0
        self._size: Size
        self._generation, self._cause, self._stopped_at = 0, Cause.START, 0.0
        self._members: tuple[Member, ...] = ()
        self._chief = _CHIEF

    def begin(self, declared: Size) -> Size:
        document = JobDocument(
            name="job",
            command=("python", "job.py"),
            replicas=Bounds(
                min=declared.servers + 2,
                max=MOST_REPLICAS,
                start=declared.servers + declared.workers + 1,
            ),
            roles={
                CHIEF: RoleSize(resources=_CHIEF),
                PS: RoleSize(replicas=declared.servers, resources=_resources(declared.server)),
            },
            resources=_resources(declared.worker),
            checkpoint=Checkpoint(path="simulated"),
            steps=round(self._steps),
            policy=ApprovalPolicy(mode=PolicyMode.AUTO),
        )
        with self._stores.transaction() as tx:
            lifecycle.submit(
                tx,
                document,
                job_id=_JOB,
                owner="bench",
                pool=_POOL,
                settings=self._settings,
                now=_at(0),
            )
        self._turn(0)
        self._size = declared
        self._form(0)
        self._step(0)
        return declared

    def see(self, reading: Reading) -> Size:
        self._ticks += 1
        with self._stores.transaction() as tx:
            self._tell(tx, reading)
            if self._ticks % _RETIRE == 0:
                old = _at(reading.at - 1800)
                tx.telemetry.retire(raw_before=old, means_before=old, hours_before=old)
        self._turn(reading.at)
        return self._follow(reading.at)

    def killed(self, at: float, server: int) -> tuple[Size, float]:
        replica = next(one.replica for one in self._members if one.role == PS) + server
        found = Diagnosis(
            kind=FailureKind.MEMORY, sentence="a server ran out of memory", replica=replica
        )
        with self._stores.transaction() as tx:
            self._report(tx, WorldEvent.LOST, at, diagnosis=found)
            self._end(tx, at)
        self._cause, self._stopped_at = Cause.FAILURE, at
        self._turn(at)
        self._size = self._wished()
        self._form(at)
        return self._size, 0.0

    def started(self, at: float) -> None:
        self._step(at)

    def stops(self, had: Size, has: Size) -> bool:
        return (had.workers, had.servers) != (has.workers, has.servers)

    def _turn(self, at: float) -> None:
        with self._stores.transaction() as tx:
            tx.nodes.put(Node(name=_NODE, pool=_POOL, capacity=_ROOM, seen_at=_at(at)))
        cycle.turn(self._stores, _POOL, self._settings, _at(at), memo=self._memo).checked()

    def _wished(self) -> Size:
        with self._stores.transaction(read_only=True) as tx:
            job = tx.jobs.get(_JOB)
            wish = lifecycle.wish(tx, job, self._settings)
        self._generation = wish.generation
        roles = dict(wish.roles)
        servers, self._chief = roles[PS], roles[CHIEF].resources or _CHIEF
        return Size(
            workers=wish.replicas - servers.replicas - 1,
            servers=servers.replicas,
            worker=_amount(wish.resources or job.document.resources),
            server=_amount(servers.resources or job.document.resources),
        )

    def _follow(self, at: float) -> Size:
        had, chief, self._size = self._size, self._chief, self._wished()
        if self.stops(had, self._size):
            with self._stores.transaction() as tx:
                self._end(tx, at)
            self._cause, self._stopped_at = Cause.PLAN, at
            self._form(at)
        elif (had, chief) != (self._size, self._chief):
            with self._stores.transaction() as tx:
                self._provide(tx, at)
        return self._size

    def _form(self, at: float) -> None:
        """Report a new world's replicas, and that the world formed."""
        size = self._size
        roles = ((CHIEF, RoleSize()), (PS, RoleSize(replicas=size.servers)))
        self._epoch, self._in_world = self._epoch + 1, 0
        self._members = tuple(
            Member(
                replica=self._first + rank,
                group_rank=rank,
                processes=1,
                node=_NODE,
                address="node:1",
                role=role_at(rank, roles),
            )
            for rank in range(1 + size.servers + size.workers)
        )
        self._first += len(self._members)
        with self._stores.transaction() as tx:
            self._provide(tx, at)
            self._report(tx, WorldEvent.FORMED, at)

    def _step(self, at: float) -> None:
        with self._stores.transaction() as tx:
            down = at - self._stopped_at if self._epoch > 1 else None
            self._report(
                tx,
                WorldEvent.STEPPING,
                at,
                downtime_seconds=down,
                steps_redone=None if down is None else 0,
            )

    def _report(self, tx: Transaction, event: WorldEvent, at: float, **more: object) -> None:
        report = WorldReport(
            job=_JOB,
            event=event,
            epoch=self._epoch,
            generation=self._generation,
            cause=self._cause,
            members=self._members,
            at=_at(at),
            **more,  # type: ignore[arg-type]
        )
        lifecycle.world_reported(tx, report, settings=self._settings, now=_at(at))

    def _provide(self, tx: Transaction, at: float) -> None:
        amounts = {
            CHIEF: self._chief,
            PS: _resources(self._size.server),
            WORKER: _resources(self._size.worker),
        }
        replicas = tuple(
            Replica(
                id=one.replica,
                node=_NODE,
                state=ReplicaState.RUNNING,
                generation=self._generation,
                started_at=_at(at),
                resources=amounts[one.role],
            )
            for one in self._members
        )
        report = ReplicaReport(job=_JOB, replicas=replicas, at=_at(at))
        lifecycle.replicas_reported(tx, report, settings=self._settings, now=_at(at))

    def _end(self, tx: Transaction, at: float) -> None:
        live = [r for r in tx.worlds.replicas(_JOB) if r.state is not ReplicaState.EXITED]
        tx.worlds.put_replicas(
            _JOB,
            [
                replace(r, state=ReplicaState.EXITED, exit=ReplicaExit.LEFT, ended_at=_at(at))
                for r in live
            ],
        )

    def _tell(self, tx: Transaction, reading: Reading) -> None:
        """Report what the chief's probe and the collector would report about the last seconds."""
        self._sequence += 1
        steps = max(1, round(reading.steps_per_second * reading.seconds))
        self._in_world += steps
        step = ThroughputSample(
            place=SampleSource(
                job=_JOB,
                source=SourceId(f"chief-{self._epoch}"),
                replica=self._members[0].replica,
                local_rank=0,
                rank=0,
                epoch=self._epoch,
                generation=self._generation,
            ),
            measured_at=_at(reading.at),
            sequence=self._sequence,
            phase=Phase.TRAINING,
            nodes=1,
            replicas=len(self._members),
            processes=1,
            accelerator="cpu",
            local_batch=None,
            accumulation=1,
            steps=steps,
            step=self._in_world,
            step_seconds=1 / reading.steps_per_second,
            step_seconds_mean=1 / reading.steps_per_second,
            data_wait_seconds=0.0,
            examples_per_second=None,
            met=True,
        )
        tx.telemetry.add([step, self._host(reading)], received_at=_at(reading.at))

    def _host(self, reading: Reading) -> HostSample:
        use = {
            CHIEF: [(0.1, 0.2 * GIB)],
            PS: list(zip(reading.server_cpus, reading.server_bytes, strict=True)),
            WORKER: list(zip(reading.worker_cpus, reading.worker_bytes, strict=True)),
        }
        left = {role: iter(some) for role, some in use.items()}
        each = [(one.replica, *next(left[one.role])) for one in self._members]
        cpus, memory = sum(cpu for _, cpu, _ in each), sum(held for _, _, held in each)
        return HostSample(
            job=_JOB,
            source=SourceId("collector"),
            node=_NODE,
            measured_at=_at(reading.at),
            sequence=self._sequence,
            cpu_millis=round(1000 * cpus),
            cpu_capacity_millis=_ROOM.cpu_millis,
            memory_bytes=round(memory),
            memory_capacity_bytes=_ROOM.memory_bytes,
            job_cpu_millis=round(1000 * cpus),
            job_memory_bytes=round(memory),
            network_receive_bytes_per_second=0.0,
            network_send_bytes_per_second=0.0,
            disk_read_bytes_per_second=0.0,
            disk_write_bytes_per_second=0.0,
            throttled_share=reading.stopped,
            replica_readings=tuple(
                ReplicaReading(replica=id, cpu_millis=round(1000 * cpu), memory_bytes=round(held))
                for id, cpu, held in each
            ),
        )


def _at(seconds: float) -> datetime:
    return _BEGAN + timedelta(seconds=seconds)


def _resources(amount: Amount) -> Resources:
    return Resources(cpu_millis=round(1000 * amount.cpus), memory_bytes=round(amount.memory_bytes))


def _amount(resources: Resources) -> Amount:
    return Amount(cpus=resources.cpu_millis / 1000, memory_bytes=float(resources.memory_bytes))
