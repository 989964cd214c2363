"""The operations that Brain's own programs use: agents, scalers and collectors."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from brain import wire
from brain.calls.making import V1, get, part, poll, post, tell
from brain.client import Call
from brain.types.job import JobCopy, ObjectCondition
from brain.types.resources import Node
from brain.types.telemetry import Receipt, Sample
from brain.types.world import DesiredWorld, ReplicaReport, WorldReport
from brain.views import DesiredPool, JobView, NewToken, Page, PodSeen, ScalerAnswer, ScalerRequest


def mirror(job: str, copy: JobCopy) -> Call[JobView]:
    """Store Brain's copy of a job that an object in a cluster describes; the job gets the object's
    uid as its id. Only a scaler's token may do this.
    """
    path = f"{V1}/jobs/{part(job)}"
    return Call(method="PUT", path=path, reads=JobView, body=wire.encode(copy))


def conditions(job: str, said: Sequence[ObjectCondition]) -> Call[None]:
    """Report the conditions of a job's object in its cluster; they replace the conditions that were
    reported before. Only a scaler's token may do this.
    """
    path = f"{V1}/jobs/{part(job)}/conditions"
    return Call(method="PUT", path=path, reads=type(None), body=wire.encode(said))


def world(
    job: str, *, etag: str | None = None, wait_seconds: float = 0
) -> Call[DesiredWorld | None]:
    """Read the world that Brain wants for a job.

    If ``etag`` is given, wait up to ``wait_seconds`` for a change of the world, and return None if
    the world did not change.
    """
    return poll(f"/jobs/{part(job)}/world", DesiredWorld | None, etag, wait_seconds)


def report_world(report: WorldReport) -> Call[None]:
    """Report a change of a job's world, as its coordinator saw it. A repeated report changes
    nothing.
    """
    return tell(f"/jobs/{part(report.job)}/world", report)


def report_replicas(report: ReplicaReport) -> Call[None]:
    """Report the state of all replicas of a job, as the scaler sees them. A repeated report changes
    nothing.
    """
    return tell(f"/jobs/{part(report.job)}/replicas", report)


def pod(job: str, replica: int) -> Call[PodSeen]:
    """Ask the cluster if a replica's pod runs and was not deleted; only for agents and the scaler.

    The call fails with ``Unavailable`` if no scaler of the pool answers.
    """
    call: Call[PodSeen] = get(f"/jobs/{part(job)}/replicas/{replica}/pod", PodSeen)
    # The cluster is asked.
    return replace(call, timeout_seconds=60.0)


def wishes(
    pool: str, *, etag: str | None = None, wait_seconds: float = 0
) -> Call[DesiredPool | None]:
    """Read the desired state of all jobs of a pool, which the pool's scaler has to bring about.

    None if the state still matches ``etag`` after ``wait_seconds``.
    """
    return poll(f"/pools/{part(pool)}/wishes", DesiredPool | None, etag, wait_seconds)


def scaler_requests(pool: str, *, wait_seconds: float = 0) -> Call[Page[ScalerRequest]]:
    """Take the requests (submissions, logs) that wait for the scaler of a pool. Only a scaler's
    token may do this.
    """
    return poll(f"/pools/{part(pool)}/requests", Page[ScalerRequest], None, wait_seconds)


def answer_request(pool: str, id: str, answer: ScalerAnswer) -> Call[None]:
    """Answer a request to a scaler, or send a part of the answer.

    The call fails with ``NotFound`` if no sender waits for the answer any more.
    """
    call = tell(f"/pools/{part(pool)}/requests/{part(id)}", answer)
    # A slow reader delays the answer.
    return replace(call, timeout_seconds=60.0)


def environment(job: str) -> Call[dict[str, str]]:
    """Read the environment of a job with its values. Only a scaler's token may do this."""
    return get(f"/jobs/{part(job)}/environment", dict[str, str])


def mint_agent_token(job: str) -> Call[NewToken]:
    """Create the token that the agents of one job use. Only a scaler's token may do this."""
    return post(f"/jobs/{part(job)}/token", {}, NewToken)


def put_node(node: Node) -> Call[None]:
    """Register a node, or renew its registration."""
    path = f"{V1}/nodes/{part(node.name)}"
    return Call(method="PUT", path=path, reads=type(None), body=wire.encode(node))


def telemetry(samples: Sequence[Sample], *, sent_at: datetime) -> Call[Receipt]:
    """Send samples of telemetry. When the receipt arrives, Brain has stored all samples except
    those that the receipt lists as rejected.
    """
    body = wire.encode_batch(samples, sent_at=sent_at)
    return Call(method="POST", path=f"{V1}/telemetry", reads=Receipt, body=body)
