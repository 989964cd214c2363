"""Values for tests: each builder fills in what a test is not about."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from brain.ports import Stores
from brain.types.allocation import Allocation, Bounds
from brain.types.explanation import Explanation
from brain.types.job import Job, JobDocument, JobId
from brain.types.plan import PlanKind, ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.record import Event, Role, Token
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.telemetry import (
    HostSample,
    LossSample,
    Phase,
    SampleSource,
    SaveSample,
    SourceId,
    ThroughputSample,
)
from brain.types.world import Cause, Member, Replica, ReplicaState, World

#: The instant that tests begin at.
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = JobId("0197f000-0000-7000-8000-000000000001")


def at(seconds: float) -> datetime:
    """``seconds`` after ``NOW``."""
    return NOW + timedelta(seconds=seconds)


def document(name: str = "digits", **fields: Any) -> JobDocument:
    """A job of one to four replicas."""
    given: dict[str, Any] = {"command": ("python", "train.py"), "replicas": Bounds(min=1, max=4)}
    return JobDocument(name=name, **(given | fields))


def job(id: str = JOB, *, name: str = "digits", project: str = "default", **fields: Any) -> Job:
    """A queued job."""
    made: dict[str, Any] = {
        "pool": PoolName("local"),
        "owner": "ada",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Job(id=JobId(id), document=document(name, project=project), **(made | fields))


def explanation(code: str = "scales-well") -> Explanation:
    """Why, in a word."""
    return Explanation(code=code, reason="2 replicas do 1.9 times as much as 1", next_step="wait")


def plan(generation: int = 1, *, job: str = JOB, replicas: int = 2, **fields: Any) -> ScalePlan:
    """A proposal to go from one replica to ``replicas``."""
    made: dict[str, Any] = {
        "kind": PlanKind.RESIZE,
        "current": Allocation(replicas=1),
        "target": Allocation(replicas=replicas),
        "explanation": explanation(),
        "created_at": NOW,
        "updated_at": NOW,
        "expires_at": at(3600),
    }
    return ScalePlan(job=JobId(job), generation=generation, **(made | fields))


def recommendation(replicas: int = 2, **fields: Any) -> Recommendation:
    """A decision to go from one replica to ``replicas``."""
    made: dict[str, Any] = {
        "current": Allocation(replicas=1),
        "target": Allocation(replicas=replicas),
        "explanation": explanation(),
        "decided_at": NOW,
    }
    return Recommendation(**(made | fields))


def place(
    *, job: str = JOB, rank: int = 0, epoch: int = 1, source: str | None = None
) -> SampleSource:
    """A worker that is alone in its replica."""
    return SampleSource(
        job=JobId(job),
        source=SourceId(source or f"worker-{rank}"),
        replica=rank,
        local_rank=0,
        rank=rank,
        epoch=epoch,
        generation=0,
    )


def throughput(
    sequence: int = 0,
    *,
    job: str = JOB,
    rank: int = 0,
    epoch: int = 1,
    source: str | None = None,
    **fields: Any,
) -> ThroughputSample:
    """One worker's second number ``sequence``: ten steps of 0.1 s, 320 examples."""
    made: dict[str, Any] = {
        "measured_at": at(sequence),
        "phase": Phase.TRAINING,
        "nodes": 1,
        "replicas": 1,
        "processes": 1,
        "accelerator": "cpu",
        "local_batch": 32,
        "accumulation": 1,
        "steps": 10,
        "step": (sequence + 1) * 10,
        "step_seconds": 0.1,
        "step_seconds_mean": 0.1,
        "data_wait_seconds": 0.02,
        "examples_per_second": 320.0,
    }
    where = place(job=job, rank=rank, epoch=epoch, source=source)
    return ThroughputSample(place=where, sequence=sequence, **(made | fields))


def save(sequence: int = 0, *, rank: int = 0, **fields: Any) -> SaveSample:
    """A checkpoint of 1 MB that took 0.2 s."""
    made: dict[str, Any] = {
        "measured_at": at(sequence),
        "path": "/runs/digits/last.pt",
        "step": 100,
        "save_seconds": 0.2,
        "size_bytes": 1_000_000,
    }
    return SaveSample(place=place(rank=rank), sequence=sequence, **(made | fields))


def host(sequence: int = 0, *, job: str = JOB, **fields: Any) -> HostSample:
    """A machine of two cores and 8 GB, half of each used by the job."""
    made: dict[str, Any] = {
        "measured_at": at(sequence),
        "node": NodeName("laptop"),
        "cpu_millis": 1500,
        "cpu_capacity_millis": 2000,
        "memory_bytes": 6_000_000_000,
        "memory_capacity_bytes": 8_000_000_000,
        "job_cpu_millis": 1000,
        "job_memory_bytes": 4_000_000_000,
        "network_receive_bytes_per_second": 10.0,
        "network_send_bytes_per_second": 20.0,
        "disk_read_bytes_per_second": 30.0,
        "disk_write_bytes_per_second": 40.0,
    }
    source = SourceId("collector")
    return HostSample(job=JobId(job), source=source, sequence=sequence, **(made | fields))


def loss(dropped: int, *, sequence: int = 0, source: str = "worker-0") -> LossSample:
    """``dropped`` samples that nobody listened to."""
    return LossSample(
        job=JOB,
        source=SourceId(source),
        measured_at=at(sequence),
        sequence=sequence,
        where="probe",
        dropped=dropped,
    )


def world(epoch: int = 1, *, replicas: int = 1, **fields: Any) -> World:
    """A world of ``replicas`` single processes on one node."""
    members = tuple(
        Member(
            replica=rank,
            group_rank=rank,
            processes=1,
            node=NodeName("laptop"),
            address=f"127.0.0.1:{5000 + rank}",
        )
        for rank in range(replicas)
    )
    made: dict[str, Any] = {"job": JOB, "generation": 0, "cause": Cause.START, "formed_at": NOW}
    return World(epoch=epoch, members=members, **(made | fields))


def replica(id: int = 0, **fields: Any) -> Replica:
    """A running replica."""
    made: dict[str, Any] = {
        "node": NodeName("laptop"),
        "state": ReplicaState.RUNNING,
        "generation": 0,
        "started_at": NOW,
    }
    return Replica(id=id, **(made | fields))


def node(name: str = "laptop", *, pool: str = "local", cpus: int = 2, **fields: Any) -> Node:
    """A machine of ``cpus`` cores and 8 GB."""
    capacity = Resources(cpu_millis=1000 * cpus, memory_bytes=8_000_000_000)
    made: dict[str, Any] = {"capacity": capacity, "seen_at": NOW}
    return Node(name=NodeName(name), pool=PoolName(pool), **(made | fields))


def report_nodes(stores: Stores, now: datetime, *, gone: Collection[str] = ()) -> None:
    """Report every node again, as a scaler does all the time, except those that are gone."""
    with stores.transaction() as tx:
        for each in tx.nodes.of():
            if each.name not in gone:
                tx.nodes.put(replace(each, seen_at=now))


def event(kind: str = "job.Running", *, job: str | None = JOB, **fields: Any) -> Event:
    """Something that happened."""
    made: dict[str, Any] = {"at": NOW, "message": "it happened"}
    return Event(kind=kind, job=None if job is None else JobId(job), **(made | fields))


def token(id: str = "t1", **fields: Any) -> Token:
    """An operator's token."""
    made: dict[str, Any] = {
        "name": id,
        "role": Role.OPERATOR,
        "sha256": f"hash of {id}",
        "created_at": NOW,
    }
    return Token(id=id, **(made | fields))


def finished(value: Job, state: Any) -> Job:
    """``value`` in a final ``state``, wherever it was."""
    return replace(value, state=state, finished_at=NOW)
