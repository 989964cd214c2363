"""Actions on several jobs; a refusal for one job does not affect the others."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from fastapi import Response

from brain import errors, lifecycle
from brain.api import routers, views
from brain.api.acting import Act, Acting
from brain.api.deps import JobRequest, Project, asked
from brain.api.filters import JOB_KEYS, job_matches, parse_filter
from brain.api.problems import problem_of, problems
from brain.errors import BadInput
from brain.ports import Transaction
from brain.types.job import Job, JobId
from brain.views import JobOutcome, JobsRequest, Page, Problem

router = routers.router("jobs")

#: Most jobs in one request; other writers wait until it is done.
MOST_JOBS = 500
_MAY_RAISE = problems(errors.BadInput, errors.UnknownField)


@router.post("/jobs:cancel", response_model=Page[JobOutcome], responses=_MAY_RAISE)
def cancel_jobs(act: Act, project: Project = "default") -> Response:
    """End the named jobs, or the unfinished jobs that match a filter; ended jobs cannot be
    resumed.
    """
    return _each(act, project, lifecycle.cancel)


@router.post("/jobs:suspend", response_model=Page[JobOutcome], responses=_MAY_RAISE)
def suspend_jobs(act: Act, project: Project = "default") -> Response:
    """Stop the named jobs, or the unfinished jobs that match a filter, at their next safe points,
    and free their nodes.
    """
    return _each(act, project, lifecycle.suspend)


@router.post("/jobs:resume", response_model=Page[JobOutcome], responses=_MAY_RAISE)
def resume_jobs(act: Act, project: Project = "default") -> Response:
    """Resume the named jobs, or the unfinished jobs that match a filter, from their checkpoints."""
    return _each(act, project, lifecycle.resume)


def _each(act: Acting, project: str, change: Any) -> Response:
    wanted = asked(act.body, JobsRequest)
    if bool(wanted.jobs) == bool(wanted.filter.strip()):
        raise BadInput(
            "no jobs were selected; give either jobs (names or ids) or a filter", field="jobs"
        )
    if len(wanted.jobs) > MOST_JOBS:
        raise _too_many(f"jobs has {len(wanted.jobs)}", "jobs")

    def changed(tx: Transaction) -> Page[JobOutcome]:
        names, now = wanted.jobs or _matching(tx, wanted.filter, act), act.here.clock()
        tx.jobs.read_ahead(names, project=project)
        found = [_job(tx, act, name, project) for name in names]
        lifecycle.read_ahead(tx, {one.id for one in found if isinstance(one, Job)})
        done = [_changed(tx, act, one, change, now) for one in found]
        changed = [one for one in done if isinstance(one, Job)]
        seen = iter(views.jobs(tx, changed, act.here.settings, now))
        return Page(
            items=tuple(
                JobOutcome(asked=name, job=next(seen))
                if isinstance(one, Job)
                else JobOutcome(asked=name, problem=one)
                for name, one in zip(names, done, strict=True)
            )
        )

    return act(changed)


def _matching(tx: Transaction, filter: str, act: Acting) -> Sequence[JobId]:
    """Ids of unfinished jobs that match, newest first."""
    wanted, mode = parse_filter(filter, JOB_KEYS, me=act.who.name), act.here.settings.policy_mode
    found = [job.id for job in tx.jobs.unfinished() if job_matches(job, wanted, mode)]
    if len(found) > MOST_JOBS:
        raise _too_many(f"filter matches {len(found)}", "filter")
    return sorted(found, reverse=True)


def _too_many(said: str, field: str) -> BadInput:
    return BadInput(
        f"{said} jobs, but a request may name at most {MOST_JOBS} jobs; split it",
        field=field,
    )


def _job(tx: Transaction, act: Acting, name: str, project: str) -> Job | Problem:
    """Return the job with an id or name, or the reason why it cannot be changed."""
    try:
        return JobRequest(act.here, act.who, name, project).job(tx, acting=True)
    except (errors.NotFound, errors.NotAllowed) as refused:
        return problem_of(refused, "")


def _changed(
    tx: Transaction, act: Acting, found: Job | Problem, change: Any, now: datetime
) -> Job | Problem:
    """Return the changed job, or the reason why it was not changed."""
    if isinstance(found, Problem):
        return found
    try:
        # A request may name a job twice.
        return cast(Job, change(tx, tx.jobs.get(found.id), by=act.who.name, now=now))
    except (errors.VersionMismatch, errors.StalePlan):
        raise  # Another writer was faster, so the whole action is repeated.
    except (errors.NotFound, errors.Conflict, errors.NotAllowed) as refused:
        return problem_of(refused, "")
