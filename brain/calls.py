"""The operations of the API as values for ``BrainClient.send``, with one function each.

This module defines each path, body and answer type for clients; the routes of ``brain.api``
correspond to them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from brain import wire
from brain.client import Call, idempotency_key
from brain.types.digest import Digest
from brain.types.estimate import Estimate, EstimateQuestion
from brain.types.job import JobCopy, ObjectCondition
from brain.types.pool import Freeze, FreezeScope
from brain.types.recommendation import Recommendation
from brain.types.record import AuditEntry, Event
from brain.types.report import JobReport
from brain.types.resources import Node
from brain.types.savings import Savings
from brain.types.sharing import StoredPolicy
from brain.types.telemetry import Receipt, Sample
from brain.types.world import DesiredWorld, ReplicaReport, WorldReport
from brain.views import (
    DesiredPool,
    EstimateRequest,
    Health,
    JobDetail,
    JobEdit,
    JobOutcome,
    JobsRequest,
    JobView,
    ModelsView,
    ModelView,
    NewToken,
    NodeView,
    Page,
    PlanDecision,
    PlanView,
    PodSeen,
    PoolView,
    ResizeRequest,
    ScalerAnswer,
    ScalerRequest,
    Scaling,
    Series,
    SignInCode,
    TokenView,
    WorkerView,
)

V1 = "/api/v1"


def submit(document: Mapping[str, Any], *, pool: str = "", dry_run: bool = False) -> Call[JobView]:
    """Start a job from its document, in the named pool; if no pool is named, in the only pool."""
    call: Call[JobView] = _post("/jobs", document, JobView, dry_run=dry_run)
    query = {**call.query, **({"pool": pool} if pool else {})}
    # The answer takes longer, because a cluster may be asked.
    return replace(call, query=query, timeout_seconds=60.0)


def mirror(job: str, copy: JobCopy) -> Call[JobView]:
    """Store Brain's copy of a job that an object in a cluster describes; the job gets the object's
    uid as its id. Only a scaler's token may do this.
    """
    path = f"{V1}/jobs/{job}"
    return Call(method="PUT", path=path, reads=JobView, body=wire.encode(copy))


def conditions(job: str, said: Sequence[ObjectCondition]) -> Call[None]:
    """Report the conditions of a job's object in its cluster; they replace the conditions that were
    reported before. Only a scaler's token may do this.
    """
    path = f"{V1}/jobs/{job}/conditions"
    return Call(method="PUT", path=path, reads=type(None), body=wire.encode(said))


def estimate(
    document: Mapping[str, Any], question: EstimateQuestion | None = None
) -> Call[Estimate]:
    """Estimate the needs of a job; nothing is started or stored."""
    body = EstimateRequest(document=document, question=question or EstimateQuestion())
    call: Call[Estimate] = _post("/jobs:estimate", body, Estimate)
    return call


def savings(*, since: datetime | None = None, until: datetime | None = None) -> Call[Savings]:
    """Read how many accelerator-hours Brain's plans saved between two instants; by default, in the
    last 24 hours.
    """
    span = {"since": since, "until": until}
    given = {name: instant.isoformat() for name, instant in span.items() if instant}
    return _get("/savings", Savings, **given)


def digest(*, owner: str = "", week: str = "") -> Call[Digest]:
    """Read what an owner's jobs requested, used, needed and wasted in a week."""
    given = {"owner": owner, "week": week}
    return _get("/digest", Digest, **{name: value for name, value in given.items() if value})


def jobs(
    *, page_token: str = "", filter: str = "", page_size: int = 100, sort: str = ""
) -> Call[Page[JobView]]:
    """Read one page of the list of jobs, newest first. ``filter`` (``state:Running owner:me``) and
    ``sort`` (``-created_at``) have the same form as in ``brain jobs``; ``page_token`` comes from
    the previous page.
    """
    query = {"page_size": str(page_size), "page_token": page_token, "filter": filter, "sort": sort}
    return _get("/jobs", Page[JobView], **query)


def job(job: str) -> Call[JobDetail]:
    """Read one job by id or name."""
    return _get(f"/jobs/{job}", JobDetail)


def cancel(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """End a job for good."""
    return _post(f"/jobs/{job}:cancel", {}, JobView, dry_run=dry_run)


def suspend(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """Stop a job at its next safe point and free the resources that it holds."""
    return _post(f"/jobs/{job}:suspend", {}, JobView, dry_run=dry_run)


def resume(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """Let a suspended job continue from its checkpoint."""
    return _post(f"/jobs/{job}:resume", {}, JobView, dry_run=dry_run)


def change_jobs(
    verb: str, jobs: Sequence[str] = (), *, filter: str = "", dry_run: bool = False
) -> Call[Page[JobOutcome]]:
    """Cancel, suspend or resume (``verb``) the given jobs, or all jobs that a filter matches."""
    wanted = JobsRequest(jobs=tuple(jobs), filter=filter)
    call: Call[Page[JobOutcome]] = _post(f"/jobs:{verb}", wanted, Page[JobOutcome], dry_run=dry_run)
    return call


def lift_advise_only(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """Let Brain act again on a job that is advise-only."""
    return _post(f"/jobs/{job}:lift-advise-only", {}, JobView, dry_run=dry_run)


def plans_of(
    job: str, *, page_token: str = "", page_size: int | None = None
) -> Call[Page[PlanView]]:
    """Read one page of the plans of a job, newest (highest generation) first."""
    query = {"page_size": str(page_size or ""), "page_token": page_token}
    return _get(f"/jobs/{job}/plans", Page[PlanView], **query)


def plan(job: str, generation: int) -> Call[PlanView]:
    """Read one plan of a job."""
    return _get(f"/jobs/{job}/plans/{generation}", PlanView)


def resize(job: str, request: ResizeRequest, *, dry_run: bool = False) -> Call[PlanView]:
    """Request a number of replicas. Brain accepts the number, reduces it to a number that fits, or
    refuses the request.
    """
    return _post(f"/jobs/{job}/plans", request, PlanView, dry_run=dry_run)


def edit(job: str, wanted: JobEdit, *, dry_run: bool = False) -> Call[PlanView]:
    """Change the amounts that each replica of a job reserves, its size, or its batch."""
    return _post(f"/jobs/{job}", wanted, PlanView, dry_run=dry_run, method="PATCH")


def plans(
    *, page_token: str = "", filter: str = "", page_size: int = 100, sort: str = ""
) -> Call[Page[PlanView]]:
    """Read one page of the plans of all jobs, newest first; ``filter`` selects plans, for example
    ``state:Proposed``.
    """
    query = {"page_size": str(page_size), "page_token": page_token, "filter": filter, "sort": sort}
    return _get("/plans", Page[PlanView], **query)


def approve(
    job: str, generation: int, decision: PlanDecision, *, dry_run: bool = False
) -> Call[PlanView]:
    """Approve a proposed plan. If the plan is no longer at ``version``, the service refuses with
    ``VersionMismatch``, so nobody approves a plan that has changed since they saw it.
    """
    return _post(f"/plans/{job}/{generation}:approve", decision, PlanView, dry_run=dry_run)


def reject(
    job: str, generation: int, decision: PlanDecision, *, dry_run: bool = False
) -> Call[PlanView]:
    """Reject a proposed or approved plan."""
    return _post(f"/plans/{job}/{generation}:reject", decision, PlanView, dry_run=dry_run)


def rollback(
    job: str, generation: int, decision: PlanDecision, *, dry_run: bool = False
) -> Call[PlanView]:
    """Create a plan that undoes an applied plan: the job returns to the size that it had before."""
    return _post(f"/plans/{job}/{generation}:rollback", decision, PlanView, dry_run=dry_run)


def pool(name: str) -> Call[PoolView]:
    """Read a pool: its nodes, the policy that divides it, and the result of its latest division."""
    return _get(f"/pools/{name}", PoolView)


def policies() -> Call[Page[StoredPolicy]]:
    """Read the policies of all pools; pools without a policy are left out."""
    return _get("/policies", Page[StoredPolicy])


def put_policy(
    pool: str, document: Mapping[str, Any], *, dry_run: bool = False
) -> Call[StoredPolicy]:
    """Store the policy that divides a pool among projects; it replaces the earlier policy."""
    return Call(
        method="PUT",
        path=f"{V1}/policies/{pool}",
        reads=StoredPolicy,
        query={"dry_run": "true"} if dry_run else {},
        body=_encoded(document),
    )


def recommendation(job: str) -> Call[Recommendation | None]:
    """Read Brain's latest decision about a job (a change or a hold); None if there is none yet."""
    return _get(f"/jobs/{job}/recommendation", Recommendation | None)


def what_if(job: str) -> Call[Scaling]:
    """Read the predicted throughput of a job, with its interval, at each size within its bounds."""
    return _get(f"/jobs/{job}/what-if", Scaling)


def report(job: str) -> Call[JobReport]:
    """Read the amounts that a job's replicas reserve, use and should reserve."""
    return _get(f"/jobs/{job}/report", JobReport)


def model(job: str) -> Call[ModelView]:
    """Read the fitted model of a job's throughput, with its measurements and the errors of its
    earlier predictions.
    """
    return _get(f"/jobs/{job}/model", ModelView)


def models() -> Call[ModelsView]:
    """Read how well the promises of past plans of all jobs matched the measured throughput."""
    return _get("/models", ModelsView)


def series(
    job: str, metric: str, *, since: datetime, until: datetime, width: int = 600
) -> Call[Series]:
    """Read a metric over time, downsampled for ``width`` pixels."""
    query = {
        "metric": metric,
        "since": since.isoformat(),
        "until": until.isoformat(),
        "width": str(width),
    }
    return _get(f"/jobs/{job}/series", Series, **query)


def workers(job: str) -> Call[Page[WorkerView]]:
    """Read the step time in seconds of each worker in the job's present world."""
    return _get(f"/jobs/{job}/workers", Page[WorkerView])


def logs(
    job: str,
    *,
    replica: int | None = None,
    rank: int | None = None,
    previous: bool = False,
    follow: bool = False,
) -> Call[bytes]:
    """Read the output of the workers, as lines of text. With ``follow``, pass this call to the
    client's method ``lines``, which removes the service's heartbeats (NUL bytes).

    ``rank`` selects the replica that has this rank in the present world; with ``previous``, it
    selects that replica's predecessor in this rank.
    """
    given = {"replica": replica, "rank": rank}
    query = {name: str(number) for name, number in given.items() if number is not None}
    flags = {"follow": "true", "heartbeat": "true"} if follow else {"follow": "false"}
    flags |= {"previous": "true"} if previous else {}
    return _get(f"/jobs/{job}/logs", bytes, **query, **flags)


def job_events(job: str, *, after: int = 0) -> Call[Page[Event]]:
    """List the events of a job, oldest first."""
    return _get(f"/jobs/{job}/events", Page[Event], after=str(after))


def events(*, after: int | None = None) -> Call[bytes]:
    """Read events as a stream of server-sent events; pass this call to the client's method
    ``lines``. With ``after``, the stream has only events with a higher id.
    """
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    return Call(method="GET", path=f"{V1}/events", reads=bytes, headers=headers)


def world(
    job: str, *, etag: str | None = None, wait_seconds: float = 0
) -> Call[DesiredWorld | None]:
    """Read the world that Brain wants for a job.

    If ``etag`` is given, wait up to ``wait_seconds`` for a change of the world, and return None if
    the world did not change.
    """
    return _poll(f"/jobs/{job}/world", DesiredWorld | None, etag, wait_seconds)


def report_world(report: WorldReport) -> Call[None]:
    """Report a change of a job's world, as its coordinator saw it. A repeated report changes
    nothing.
    """
    return _tell(f"/jobs/{report.job}/world", report)


def report_replicas(report: ReplicaReport) -> Call[None]:
    """Report the state of all replicas of a job, as the scaler sees them. A repeated report changes
    nothing.
    """
    return _tell(f"/jobs/{report.job}/replicas", report)


def pod(job: str, replica: int) -> Call[PodSeen]:
    """Ask the cluster if a replica's pod runs and was not deleted; only for agents and the scaler.

    The call fails with ``Unavailable`` if no scaler of the pool answers.
    """
    call: Call[PodSeen] = _get(f"/jobs/{job}/replicas/{replica}/pod", PodSeen)
    # The cluster is asked.
    return replace(call, timeout_seconds=60.0)


def wishes(
    pool: str, *, etag: str | None = None, wait_seconds: float = 0
) -> Call[DesiredPool | None]:
    """Read the desired state of all jobs of a pool, which the pool's scaler has to bring about.

    None if the state still matches ``etag`` after ``wait_seconds``.
    """
    return _poll(f"/pools/{pool}/wishes", DesiredPool | None, etag, wait_seconds)


def scaler_requests(pool: str, *, wait_seconds: float = 0) -> Call[Page[ScalerRequest]]:
    """Take the requests (submissions, logs) that wait for the scaler of a pool. Only a scaler's
    token may do this.
    """
    return _poll(f"/pools/{pool}/requests", Page[ScalerRequest], None, wait_seconds)


def answer_request(pool: str, id: str, answer: ScalerAnswer) -> Call[None]:
    """Answer a request to a scaler, or send a part of the answer.

    The call fails with ``NotFound`` if no sender waits for the answer any more.
    """
    call = _tell(f"/pools/{pool}/requests/{id}", answer)
    # A slow reader delays the answer.
    return replace(call, timeout_seconds=60.0)


def environment(job: str) -> Call[dict[str, str]]:
    """Read the environment of a job with its values. Only a scaler's token may do this."""
    return _get(f"/jobs/{job}/environment", dict[str, str])


def mint_agent_token(job: str) -> Call[NewToken]:
    """Create the token that the agents of one job use. Only a scaler's token may do this."""
    return _post(f"/jobs/{job}/token", {}, NewToken)


def put_node(node: Node) -> Call[None]:
    """Register a node, or renew its registration."""
    path = f"{V1}/nodes/{node.name}"
    return Call(method="PUT", path=path, reads=type(None), body=wire.encode(node))


def nodes(*, page_token: str = "", sort: str = "") -> Call[Page[NodeView]]:
    """Read a page of nodes, by name."""
    return _get("/nodes", Page[NodeView], page_token=page_token, sort=sort)


def telemetry(samples: Sequence[Sample], *, sent_at: datetime) -> Call[Receipt]:
    """Send samples of telemetry. When the receipt arrives, Brain has stored all samples except
    those that the receipt lists as rejected.
    """
    body = wire.encode_batch(samples, sent_at=sent_at)
    return Call(method="POST", path=f"{V1}/telemetry", reads=Receipt, body=body)


def freezes() -> Call[Page[Freeze]]:
    return _get("/freeze", Page[Freeze])


def freeze(scope: FreezeScope, target: str, *, why: str) -> Call[Page[Freeze]]:
    """Stop Brain from applying the plans of one job, of a project, or of all jobs."""
    return _post("/freeze", {"scope": scope, "target": target, "why": why}, Page[Freeze])


def thaw(scope: FreezeScope, target: str) -> Call[Page[Freeze]]:
    """Let Brain apply plans of one job, of a project, or of all jobs again."""
    path = f"{V1}/freeze/{scope}" + (f"/{target}" if target else "")
    return Call(method="DELETE", path=path, reads=Page[Freeze])


def audit(*, page_token: str = "", page_size: int = 100, sort: str = "") -> Call[Page[AuditEntry]]:
    """Read one page of the audit log, newest first: all actions with the people or programs that
    took them.
    """
    query = {"page_size": str(page_size), "page_token": page_token, "sort": sort}
    return _get("/audit", Page[AuditEntry], **query)


def tokens() -> Call[Page[TokenView]]:
    """Read all tokens, without their secrets."""
    return _get("/tokens", Page[TokenView])


def mint_token(name: str, role: str, *, days: float | None = None) -> Call[NewToken]:
    """Create a token. Only this answer contains the token's secret."""
    return _post("/tokens", {"name": name, "role": role, "days": days}, NewToken)


def revoke_token(id: str) -> Call[None]:
    return Call(method="DELETE", path=f"{V1}/tokens/{id}", reads=type(None))


def sign_in_code(name: str) -> Call[SignInCode]:
    """Create a code with which a person signs in to the dashboard; the code works once."""
    return _post("/sign-in-codes", {"name": name}, SignInCode)


def health() -> Call[Health]:
    """Read the health of the service, and the name and role of the token that is used."""
    return _get("/health", Health)


def _get(path: str, reads: Any, **query: str) -> Call[Any]:
    given = {key: value for key, value in query.items() if value}
    return Call(method="GET", path=V1 + path, reads=reads, query=given)


def _poll(path: str, reads: Any, etag: str | None, wait_seconds: float) -> Call[Any]:
    return Call(
        method="GET",
        path=V1 + path,
        reads=reads,
        query={"wait": str(wait_seconds)} if wait_seconds else {},
        headers={"If-None-Match": etag} if etag else {},
        timeout_seconds=wait_seconds + 10.0,
    )


def _tell(path: str, report: object) -> Call[None]:
    """Send a report; a repeated report changes nothing, so it needs no idempotency key."""
    return Call(method="POST", path=V1 + path, reads=type(None), body=wire.encode(report))


def _post(
    path: str, body: object, reads: Any, *, dry_run: bool = False, method: str = "POST"
) -> Call[Any]:
    return Call(
        method=method,
        path=V1 + path,
        reads=reads,
        query={"dry_run": "true"} if dry_run else {},
        body=_encoded(body),
        headers=idempotency_key(),
    )


def _encoded(body: object) -> bytes:
    """Encode a person's request; NaN and infinite numbers are refused, because they would be sent
    as null, and a limit would be dropped without a word.
    """
    wire.refuse_unstorable(wire.plain(body))
    return wire.encode(body)
