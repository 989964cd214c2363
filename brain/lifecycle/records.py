"""Records of each change of state: an event and, if a person or program caused it, an audit
entry.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from brain.ports import Transaction
from brain.types.job import Job, JobId, JobState
from brain.types.plan import PlanState, ScalePlan
from brain.types.record import AuditEntry, Event

#: The actor of changes that no person requested.
BRAIN = "brain"


def happened(
    tx: Transaction,
    kind: str,
    message: str,
    *,
    job: JobId | None,
    now: datetime,
    subject: int | None = None,
    data: Mapping[str, str] | None = None,
) -> None:
    """Append an event."""
    event = Event(at=now, kind=kind, job=job, subject=subject, message=message, data=data)
    tx.events.add(event)


def acted(
    tx: Transaction,
    by: str,
    action: str,
    target: str,
    *,
    now: datetime,
    before: str = "",
    after: str = "",
    why: str = "",
) -> None:
    """Append an audit entry."""
    entry = AuditEntry(
        at=now, actor=by, action=action, target=target, before=before, after=after, why=why
    )
    tx.audit.add(entry)


def move_job(
    tx: Transaction, job: Job, to: JobState, reason: str, now: datetime, **changes: Any
) -> Job:
    """Store ``job`` in state ``to``; append an event if the state changes.

    A change of the reason alone is stored without an event. Nothing is stored if nothing changes,
    so that versions and ETags stay the same.

    Raises:
        IllegalTransition: ``JOB_MOVES`` has no such move.
    """
    moved = replace(job.moved(to, reason, now), **changes)
    if replace(moved, updated_at=job.updated_at, finished_at=job.finished_at) == job:
        return job
    if to is not job.state:
        happened(tx, f"job.{to}", reason, job=job.id, now=now)
    return tx.jobs.put(moved)


def move_plan(
    tx: Transaction,
    plan: ScalePlan,
    to: PlanState,
    message: str,
    now: datetime,
    *,
    by: str = BRAIN,
    **changes: Any,
) -> ScalePlan:
    """Store ``plan`` in state ``to``, with its event and audit entry.

    Raises:
        IllegalTransition: ``PLAN_MOVES`` has no such move.
    """
    moved = tx.plans.put(replace(plan.moved(to, now), **changes))
    told(tx, moved, message, now, by=by, before=plan.state)
    return moved


def told(
    tx: Transaction,
    plan: ScalePlan,
    message: str,
    now: datetime,
    *,
    by: str = BRAIN,
    before: str = "",
) -> None:
    """Write the event and audit entry for the state that ``plan`` is in."""
    kind, target = f"plan.{plan.state}", f"plan/{plan.job}/{plan.generation}"
    data = {"from": str(plan.current.replicas), "to": str(plan.target.replicas), "by": by}
    if plan.judged is not None:
        data["verdict"] = str(plan.judged)
    happened(tx, kind, message, job=plan.job, now=now, subject=plan.generation, data=data)
    acted(tx, by, kind, target, now=now, before=before, after=plan.state, why=message)
