"""The service's stores, turn and advice for one job on one machine."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from brain import estimates
from brain.errors import Undetermined
from brain.inmemory import MemoryStores
from brain.lifecycle.observed import ThroughputObserved
from brain.settings import Settings
from brain.types.job import Job, JobDocument, JobId
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.telemetry import HostSample, SourceId
from brain.types.world import Cause, Member, World

CAPACITY_MILLIS = 10_000
_SETTINGS = Settings()
_JOB, _MACHINE = JobId("00000000-0000-7000-8000-000000000001"), NodeName("machine")
#: Readings after which those that are folded are dropped, as retention does.
_RETIRE = 100


class Service:
    """The service's knowledge of one job that runs on one machine."""

    def __init__(self, *, memory_bytes: int, independent: bool = False) -> None:
        self._stores, self._memory_bytes = MemoryStores(), memory_bytes
        self._at, self._sequence, self._event = datetime.fromtimestamp(0, UTC), 0, 0
        self._capacity = Resources(cpu_millis=CAPACITY_MILLIS, memory_bytes=memory_bytes)
        document = JobDocument(name="job", independent=independent, resources=Resources())
        self._job = Job(
            id=_JOB,
            document=document,
            pool=PoolName("local"),
            owner="bench",
            created_at=self._at,
            updated_at=self._at,
        )
        with self._stores.transaction() as tx:
            tx.jobs.add(self._job)

    def see(self, readings: Sequence[tuple[float, float, float]]) -> None:
        """Store readings (seconds, mCPU, bytes), oldest first, and process them as a turn does."""
        instants = [datetime.fromtimestamp(at, UTC) for at, _, _ in readings]
        begun, now = instants[0], instants[-1]
        samples = [
            self._sample(at, millis, used)
            for at, (_, millis, used) in zip(instants, readings, strict=True)
        ]
        with self._stores.transaction() as tx:
            if self._sequence == len(samples):
                tx.worlds.put(_world(begun))
                capacity = self._capacity
                tx.nodes.put(
                    Node(name=_MACHINE, pool=self._job.pool, capacity=capacity, seen_at=now)
                )
            tx.telemetry.add(samples, received_at=now)
            sight = ThroughputObserved(
                world=tx.worlds.latest(_JOB), present=Undetermined("not asked")
            )
            estimates.remember(tx, self._job, sight, now)
            if self._sequence % _RETIRE == 0:
                tx.telemetry.retire(raw_before=now, means_before=now, hours_before=now)
        self._at = now

    def cpu_target(self) -> float:
        """Return the advised mCPU."""
        with self._stores.transaction(read_only=True) as tx:
            found = estimates.advised(tx, self._job, _SETTINGS, self._at)
        assert found is not None
        assert found.cpu is not None
        return found.cpu.target

    def reserve(self, resources: Resources) -> None:
        """Let the job reserve an amount from now on."""
        document = replace(self._job.document, resources=resources)
        self._job = replace(self._job, document=document)

    def told(self, kind: str) -> bool:
        """Return True if an event of this kind was written since the last call."""
        with self._stores.transaction(read_only=True) as tx:
            events = tx.events.after(self._event)
        self._event = events[-1].id if events else self._event
        return any(event.kind == kind for event in events)

    def _sample(self, at: datetime, millis: float, used_bytes: float) -> HostSample:
        self._sequence += 1
        return HostSample(
            job=_JOB,
            source=SourceId("collector"),
            node=_MACHINE,
            measured_at=at,
            sequence=self._sequence,
            cpu_millis=round(millis),
            cpu_capacity_millis=CAPACITY_MILLIS,
            memory_bytes=round(used_bytes),
            memory_capacity_bytes=self._memory_bytes,
            job_cpu_millis=round(millis),
            job_memory_bytes=round(used_bytes),
            network_receive_bytes_per_second=0.0,
            network_send_bytes_per_second=0.0,
            disk_read_bytes_per_second=0.0,
            disk_write_bytes_per_second=0.0,
        )


def _world(now: datetime) -> World:
    member = Member(replica=0, group_rank=0, processes=1, node=_MACHINE, address="-:1")
    return World(
        job=_JOB,
        epoch=1,
        generation=0,
        cause=Cause.START,
        members=(member,),
        formed_at=now,
        stepping_at=now,
    )
