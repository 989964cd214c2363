"""The operations on jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from brain.calls.making import get, part, post
from brain.client import Call
from brain.types.estimate import Estimate, EstimateQuestion
from brain.types.record import Event
from brain.types.report import JobReport
from brain.views import (
    EstimateRequest,
    JobDetail,
    JobOutcome,
    JobsRequest,
    JobView,
    ModelView,
    Page,
    Series,
    WorkerView,
)


def submit(document: Mapping[str, Any], *, pool: str = "", dry_run: bool = False) -> Call[JobView]:
    """Start a job from its document, in the named pool; if no pool is named, in the only pool."""
    call: Call[JobView] = post("/jobs", document, JobView, dry_run=dry_run)
    query = {**call.query, **({"pool": pool} if pool else {})}
    # The answer takes longer, because a cluster may be asked.
    return replace(call, query=query, timeout_seconds=60.0)


def estimate(
    document: Mapping[str, Any], question: EstimateQuestion | None = None
) -> Call[Estimate]:
    """Estimate the needs of a job; nothing is started or stored."""
    body = EstimateRequest(document=document, question=question or EstimateQuestion())
    call: Call[Estimate] = post("/jobs:estimate", body, Estimate)
    return call


def jobs(
    *, page_token: str = "", filter: str = "", page_size: int = 100, sort: str = ""
) -> Call[Page[JobView]]:
    """Read one page of the list of jobs, newest first. ``filter`` (``state:Running owner:me``) and
    ``sort`` (``-created_at``) have the same form as in ``brain jobs``; ``page_token`` comes from
    the previous page.
    """
    query = {"page_size": str(page_size), "page_token": page_token, "filter": filter, "sort": sort}
    return get("/jobs", Page[JobView], **query)


def job(job: str) -> Call[JobDetail]:
    """Read one job by id or name."""
    return get(f"/jobs/{part(job)}", JobDetail)


def cancel(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """End a job for good."""
    return post(f"/jobs/{part(job)}:cancel", {}, JobView, dry_run=dry_run)


def suspend(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """Stop a job at its next safe point and free the resources that it holds."""
    return post(f"/jobs/{part(job)}:suspend", {}, JobView, dry_run=dry_run)


def resume(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """Let a suspended job continue from its checkpoint."""
    return post(f"/jobs/{part(job)}:resume", {}, JobView, dry_run=dry_run)


def change_jobs(
    verb: str, jobs: Sequence[str] = (), *, filter: str = "", dry_run: bool = False
) -> Call[Page[JobOutcome]]:
    """Cancel, suspend or resume (``verb``) the given jobs, or all jobs that a filter matches."""
    wanted = JobsRequest(jobs=tuple(jobs), filter=filter)
    call: Call[Page[JobOutcome]] = post(f"/jobs:{verb}", wanted, Page[JobOutcome], dry_run=dry_run)
    return call


def lift_advise_only(job: str, *, dry_run: bool = False) -> Call[JobView]:
    """Let Brain act again on a job that is advise-only."""
    return post(f"/jobs/{part(job)}:lift-advise-only", {}, JobView, dry_run=dry_run)


def report(job: str) -> Call[JobReport]:
    """Read the amounts that a job's replicas reserve, use and should reserve."""
    return get(f"/jobs/{part(job)}/report", JobReport)


def model(job: str) -> Call[ModelView]:
    """Read the fitted model of a job's throughput, with its measurements and the errors of its
    earlier predictions.
    """
    return get(f"/jobs/{part(job)}/model", ModelView)


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
    return get(f"/jobs/{part(job)}/series", Series, **query)


def workers(job: str) -> Call[Page[WorkerView]]:
    """Read the step time in seconds of each worker in the job's present world."""
    return get(f"/jobs/{part(job)}/workers", Page[WorkerView])


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
    return get(f"/jobs/{part(job)}/logs", bytes, **query, **flags)


def job_events(job: str, *, after: int = 0) -> Call[Page[Event]]:
    """List the events of a job, oldest first."""
    return get(f"/jobs/{part(job)}/events", Page[Event], after=str(after))
