"""Brain's copies of the job objects of a cluster, as the cluster's scaler reports them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from brain.errors import UnknownJob
from brain.lifecycle.jobs import queue, without_secrets
from brain.lifecycle.records import acted, move_job
from brain.lifecycle.work import check_limits
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job, JobDocument, JobId, JobState, ObjectCondition
from brain.types.resources import PoolName
from brain.types.roles import WORKER, RoleSize


def mirror(
    tx: Transaction,
    document: JobDocument,
    *,
    job_id: JobId,
    owner: str,
    pool: PoolName,
    settings: Settings,
    now: datetime,
    sizes: Mapping[str, int] | None = None,
) -> Job:
    """Store a copy of a cluster's job object: queue a new job, or apply the changes to a known one.

    The job's first size and its amounts stay the same, because only plans change a running job. If
    a job already runs when this Brain first hears of it, the job goes on with its replicas;
    ``sizes`` has their number by role. A finished job does not change.

    Raises:
        ImpossibleBounds: no size satisfies the document's bounds.
        BadInput: the job can never run, or a field of the document cannot be used.
        NameTaken: an unfinished job of the same project has this name.
    """
    try:
        known = tx.jobs.get(job_id)
    except UnknownJob:
        document.check()
        check_limits(document, settings, now)
        begun = _resumed(document, sizes or {})
        job = queue(tx, begun or document, job_id=job_id, owner=owner, pool=pool, now=now)
        if begun is None:
            return job
        # A queued job has no replicas, so the scaler would stop those that run.
        return move_job(tx, job, JobState.STARTING, "its replicas already run", now)
    said, document = document, without_secrets(_following(known.document, document))
    if known.finished or document == known.document:
        return known
    # The groups of a running job may have outgrown its least size.
    said.check()
    limits = (document.deadline, document.budget)
    if limits != (known.document.deadline, known.document.budget):  # old ones may have passed
        check_limits(document, settings, now)
    acted(tx, owner, "job.edit", f"job/{job_id}", now=now)
    return tx.jobs.put(replace(known, document=document, updated_at=now))


def object_says(tx: Transaction, job: Job, said: Sequence[ObjectCondition]) -> Job:
    """Store the conditions of the job's object in a cluster. If they are equal to the stored ones,
    nothing changes.
    """
    conditions = tuple(said)
    return job if conditions == job.conditions else tx.jobs.put(replace(job, conditions=conditions))


def _following(known: JobDocument, said: JobDocument) -> JobDocument:
    """Return the new document, with the allocation of generation 0 as far as its bounds allow."""
    bounds, first = said.replicas, known.replicas.first
    if bounds.first != first and bounds.allow(first):
        bounds = replace(bounds, start=first)
    return replace(
        said,
        replicas=bounds,
        processes_per_replica=known.processes_per_replica,
        resources=known.resources,
        roles=known.roles,
        groups=known.groups,
    )


def _resumed(document: JobDocument, sizes: Mapping[str, int]) -> JobDocument | None:
    """Return the document of a job that already runs with ``sizes``, with these as its first size.

    None if the job does not run, if its bounds or limits do not allow these sizes now, or if it has
    other groups.
    """
    beside, total = {**document.roles, **document.groups}, sum(sizes.values())
    if sizes.keys() != {WORKER, *beside} or not document.replicas.allow(total):
        return None
    if min(sizes.values()) < 1:
        return None

    def sized(groups: Mapping[str, RoleSize]) -> dict[str, RoleSize]:
        return {name: replace(size, replicas=sizes[name]) for name, size in groups.items()}

    found = replace(
        document,
        replicas=replace(document.replicas, start=total),
        roles=sized(document.roles),
        groups=sized(document.groups),
    )
    return found if document.resource_limits.allow(found.allocation) else None
