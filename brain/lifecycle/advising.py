"""The advise-only state of a job: until a person ends it, a person must approve each plan."""

from dataclasses import replace
from datetime import datetime, timedelta

from brain.errors import Conflict
from brain.lifecycle.records import acted, happened
from brain.ports import StoredFit, Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.plan import PlanKind, ScalePlan
from brain.typeset import count

#: Kind of the record that a job was advise-only: the person who lifted it, and when.
LIFTED = "advise-only-lifted/1"

_DAY = timedelta(hours=24)


def advise_only(tx: Transaction, job: Job, why: str, now: datetime) -> Job:
    """Make ``job`` advise-only: from now on its plans wait for a person."""
    if job.advise_only == why:
        return job
    happened(tx, "job.advise-only", why, job=job.id, now=now)
    return tx.jobs.put(replace(job, advise_only=why, updated_at=now))


def lift_advise_only(tx: Transaction, job: Job, *, by: str, now: datetime) -> Job:
    """End the advise-only state of ``job``, so that its policy mode applies; count its rollbacks
    from 0 again.

    Raises:
        Conflict: the job ended, or is not advise-only.
    """
    name, was = job.document.name, job.advise_only
    if job.finished:
        raise Conflict(f"job {name} is {job.state}, so Brain no longer decides about it")
    if was is None:
        raise Conflict(f"job {name} is not advise-only; its policy mode says who approves plans")
    tx.fits.put(StoredFit(job=job.id, kind=LIFTED, parameters=by, fitted_at=now))
    happened(tx, "job.advise-only-lifted", f"{by} lifted advise-only", job=job.id, now=now)
    acted(tx, by, "job.lift-advise-only", f"job/{job.id}", now=now, before=was)
    return tx.jobs.put(replace(job, advise_only=None, updated_at=now))


def count_rollbacks(tx: Transaction, plan: ScalePlan, settings: Settings, now: datetime) -> None:
    """Make the job of ``plan`` advise-only if ``rollback_limit`` of its plans, or more, were rolled
    back within a day.
    """
    lifted = tx.fits.get(plan.job, LIFTED)
    since = now - _DAY if lifted is None else max(now - _DAY, lifted.fitted_at)
    recent = [
        other
        for other in tx.plans.of(plan.job)
        if other.kind is PlanKind.ROLLBACK and other.created_at > since
    ]
    if len(recent) >= settings.rollback_limit:
        why = (
            f"{count(len(recent), 'rollback')} within 24 h; a person must approve each plan from "
            "now on"
        )
        advise_only(tx, tx.jobs.get(plan.job), why, now)
