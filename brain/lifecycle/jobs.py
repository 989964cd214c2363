"""Transitions of jobs: submission, admission, suspension, resumption, cancellation, end."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from brain.errors import BadInput, Conflict
from brain.lifecycle.capacity import Room, compared, fitting, largest, room, sized
from brain.lifecycle.desired import FIRST_NODES, Nodes, begin_on, note_earlier_replicas, wished
from brain.lifecycle.earlier import inherit
from brain.lifecycle.nodes import silent
from brain.lifecycle.plans import close
from brain.lifecycle.records import BRAIN, acted, happened, move_job
from brain.lifecycle.scores import forgo
from brain.lifecycle.work import check_limits
from brain.ports import StoredFit, Transaction
from brain.settings import Settings
from brain.types.job import (
    Intent,
    Job,
    JobDocument,
    JobId,
    JobState,
    Secret,
)
from brain.types.pool import Freeze
from brain.types.resources import PoolName, Resources
from brain.types.world import ReplicaState
from brain.typeset import count, standing

#: Kind of the record that Brain chose a job's first size.
BEGINS = "first-size/1"
#: Kind of the record that a job was stopped for another, which it names.
PREEMPTED = "preempted/1"
#: States without any running replica, in which an owner's intent is fulfilled at once.
_STILL = frozenset({JobState.QUEUED, JobState.SUSPENDED})
#: Returns the first size of a job, from the size that its owner named and the number that fit.
First = Callable[[Job, int | None, int], int | None]
#: Returns the replicas of a job on each node for its first world; empty: on any nodes.
FirstNodes = Callable[[Job, int], Nodes]


def submit(
    tx: Transaction,
    document: JobDocument,
    *,
    job_id: JobId,
    owner: str,
    pool: PoolName,
    settings: Settings,
    now: datetime,
    confined: bool = False,
    amounts: tuple[Resources, str] | None = None,
) -> Job:
    """Queue a new job; ``amounts``, with their reason, replace the amounts in the document.

    Only the names of the job's environment variables are stored here, not their values.

    Raises:
        ImpossibleBounds: no size satisfies the document's bounds.
        BadInput: the job can never run: a field cannot be used, or not even the job's first size
            fits the empty pool.
        NameTaken: an unfinished job of the same project has this name.
    """
    document.check()
    check_limits(document, settings, now)
    return queue(
        tx,
        document,
        job_id=job_id,
        owner=owner,
        pool=pool,
        confined=confined,
        amounts=amounts,
        now=now,
    )


def queue(
    tx: Transaction,
    document: JobDocument,
    *,
    job_id: JobId,
    owner: str,
    pool: PoolName,
    now: datetime,
    confined: bool = False,
    amounts: tuple[Resources, str] | None = None,
) -> Job:
    """Queue a new job whose document was checked.

    Raises:
        BadInput: not even the job's first size fits the empty pool.
        NameTaken: an unfinished job of the same project has this name.
    """
    job = Job(
        id=job_id,
        document=without_secrets(document),
        pool=pool,
        owner=owner,
        confined=confined,
        amounts=amounts and amounts[0],
        created_at=now,
        updated_at=now,
    )
    asked = sized(job, replace(document.allocation, resources=job.resources))
    first = document.replicas.first
    fits = largest(tx, asked, now)
    if fits is not None and fits < first:
        field = "replicas.start" if document.replicas.start is not None else "replicas.min"
        raise BadInput(
            f"{field} {first} does not fit the pool {pool}, even when the pool is empty: it has "
            f"room for {count(fits, 'replica')}; {compared(tx, asked, now)}; lower "
            f"{field} or resources",
            field=field,
        )
    inherit(tx, job, now)
    tx.jobs.add(job)
    happened(tx, f"job.{job.state}", f"{owner} submitted {document.name}", job=job.id, now=now)
    if amounts is not None:
        happened(tx, "job.amounts", amounts[1], job=job.id, now=now)
    acted(tx, owner, "job.submit", f"job/{job.id}", now=now, after=job.state)
    return job


def admit(
    tx: Transaction,
    queue: Iterable[Job],
    *,
    now: datetime,
    room: Room = room,
    barred: Callable[[Job, int], str | None] = lambda job, replicas: None,
    first: First = lambda job, named, fits: None,
    nodes: FirstNodes = lambda job, replicas: (),
    begun: Callable[[Transaction, Sequence[JobId]], None] = lambda tx, jobs: None,
) -> tuple[Job, ...]:
    """Start the jobs of ``queue`` that fit, by priority, then by age; for each other job, store the
    reason why it waits.

    Args:
        barred: Returns why a job may not start with a number of replicas, although they fit.
        first: Gets a job, the number of replicas that its owner set, and the number that fits.
            Returns the number to start with; None means the owner's number or, if the owner set
            none, the smallest number that the bounds allow.
        nodes: Returns the nodes for that number of replicas.
        begun: Called with each job that starts, so that ``room`` can keep count.

    Returns the started jobs, each in its state before the start.
    """
    started, queue = [], sorted(queue, key=lambda job: (-job.document.priority, job.created_at))
    # At once, because other writers wait for this transaction, and thousands of jobs may wait.
    ids = [job.id for job in queue]
    tx.plans.read_ahead(ids)
    tx.fits.read_ahead(ids, BEGINS, FIRST_NODES)
    for job in queue:
        if _admitted(tx, job, now, room, barred, first, nodes):
            begun(tx, [job.id])
            started.append(job)
    return tuple(started)


def read_ahead(tx: Transaction, jobs: Collection[JobId]) -> None:
    """Read, with few statements, what ``suspend``, ``resume`` and ``cancel`` need to know about
    these jobs.
    """
    tx.plans.read_ahead(jobs, every=True)
    tx.fits.read_ahead(jobs, PREEMPTED)


def suspend(tx: Transaction, job: Job, *, by: str, now: datetime) -> Job:
    """Request that a job stop at its next safe point and free its resources.

    Raises:
        Conflict: the job ended or is being cancelled.
    """
    if job.finished or job.intent is Intent.CANCEL:
        raise Conflict(f"job {job.document.name} is {_standing(job)} and cannot be suspended")
    job = _intend(tx, job, Intent.SUSPEND, by, now)
    _note_preemption(tx, job, "", now)
    if job.state in _STILL:
        return move_job(tx, job, JobState.SUSPENDED, f"suspended by {by}", now)
    why = f"{by} asked to suspend the job at its next safe point, the end of a save{_grace(job)}"
    return move_job(tx, job, job.state, why, now)


def preempt(tx: Transaction, job: Job, why: str, now: datetime) -> Job:
    """Request that a job stop at its next safe point, so that a waiting job can start; once the job
    has stopped, ``requeue`` queues it again.

    Raises:
        Conflict: a person suspended or cancelled the job meanwhile, so it must not start again.
    """
    if job.intent is not Intent.RUN:
        raise Conflict(f"job {job.document.name} is {_standing(job)} and makes room by itself")
    job = suspend(tx, job, by=BRAIN, now=now)
    _note_preemption(tx, job, why, now)
    return move_job(tx, job, job.state, f"it makes room: {why}", now)


def requeue(tx: Transaction, job: Job, now: datetime) -> bool:
    """Queue a job again if it was stopped for another job; return False if it was not, or if some
    of its replicas have not exited: the job would begin again in their room.
    """
    if job.state is not JobState.SUSPENDED or job.intent is not Intent.SUSPEND:
        return False
    noted = tx.fits.get(job.id, PREEMPTED)
    if noted is None or not noted.parameters:
        return False
    if any(one.state is not ReplicaState.EXITED for one in tx.worlds.present(job.id)):
        return False
    _note_preemption(tx, job, "", now)
    resume(tx, job, by=BRAIN, now=now)
    return True


def _note_preemption(tx: Transaction, job: Job, why: str, now: datetime) -> None:
    """Store why a job was stopped for another job; an empty ``why`` clears the record."""
    if why or tx.fits.get(job.id, PREEMPTED) is not None:
        tx.fits.put(StoredFit(job=job.id, kind=PREEMPTED, parameters=why, fitted_at=now))


def resume(tx: Transaction, job: Job, *, by: str, now: datetime) -> Job:
    """Queue a suspended job again, so that it continues from its checkpoint.

    Raises:
        Conflict: the job is not suspended.
    """
    if job.finished or job.intent is not Intent.SUSPEND:
        raise Conflict(f"job {job.document.name} is {_standing(job)}, not suspended")
    job = _intend(tx, job, Intent.RUN, by, now)
    if job.state is JobState.SUSPENDED:
        return move_job(tx, job, JobState.QUEUED, f"resumed by {by}", now)
    return move_job(tx, job, job.state, f"resumed by {by} before the job had stopped", now)


def cancel(tx: Transaction, job: Job, *, by: str, now: datetime) -> Job:
    """Request that a job end for good; a second request changes nothing.

    Raises:
        Conflict: the job ended already.
    """
    if job.finished:
        raise Conflict(f"job {job.document.name} is {job.state} already")
    job = _intend(tx, job, Intent.CANCEL, by, now)
    if job.state in _STILL:
        return end(tx, job, JobState.CANCELLED, f"cancelled by {by}", now)
    return move_job(tx, job, job.state, f"{by} asked to cancel the job{_grace(job)}", now)


def _grace(job: Job) -> str:
    """Return a clause with the grace that the document gives the script; empty if it gives none."""
    seconds = job.document.grace_seconds
    return "" if seconds is None else f"; its script has {seconds:g} s to save and end"


def end(
    tx: Transaction,
    job: Job,
    state: JobState,
    reason: str,
    now: datetime,
    *,
    exit_code: int | None = None,
) -> Job:
    """End a job and its active plan, if it has one."""
    job = move_job(tx, job, state, reason, now, exit_code=exit_code)
    close(tx, job, f"the job {standing(state, reason)}", now)
    forgo(tx, job, now)
    return job


def stopped(tx: Transaction, job: Job, now: datetime) -> Job:
    """Mark a job as suspended or cancelled, as requested, once all its replicas have stopped."""
    if job.intent is Intent.CANCEL:
        return end(tx, job, JobState.CANCELLED, "cancelled; all its replicas have stopped", now)
    job = move_job(tx, job, JobState.SUSPENDED, "suspended; all its replicas have stopped", now)
    if job.intent is Intent.RUN:
        job = move_job(tx, job, JobState.QUEUED, "resumed while the job was stopping", now)
    return job


def freeze(tx: Transaction, frozen: Freeze) -> None:
    """Stop applying plans in a scope; Brain still decides, and still replaces failed replicas."""
    tx.freezes.put(frozen)
    target = f"freeze/{frozen.scope}" + (f"/{frozen.target}" if frozen.target else "")
    message = f"{frozen.by} froze {frozen.target or frozen.scope}: {frozen.why}"
    job = JobId(frozen.target) if frozen.scope == "job" else None
    happened(tx, "freeze", message, job=job, now=frozen.at)
    acted(tx, frozen.by, "freeze", target, now=frozen.at, after="frozen", why=frozen.why)


def thaw(tx: Transaction, scope: str, target: str, *, by: str, now: datetime) -> bool:
    """End the freeze of a scope; return False if there was none."""
    if not tx.freezes.remove(scope, target):
        return False
    job = JobId(target) if scope == "job" else None
    happened(tx, "thaw", f"{by} thawed {target or scope}", job=job, now=now)
    where = f"freeze/{scope}" + (f"/{target}" if target else "")
    acted(tx, by, "thaw", where, now=now, before="frozen")
    return True


def _admitted(
    tx: Transaction,
    job: Job,
    now: datetime,
    room: Room,
    barred: Callable[[Job, int], str | None],
    first: First,
    nodes: FirstNodes,
) -> bool:
    _, target = wished(tx.plans.effective(job.id), job)
    fits, bounds = fitting(tx, job, target, now, room=room), job.document.replicas
    sizes, named = [target.replicas], _named(tx, job)
    chosen = None if tx.plans.effective(job.id) else first(job, named, fits)
    mine = chosen is not None or (named is None and not tx.plans.effective(job.id))
    if mine:
        least = next(bounds.sizes())
        sizes = [chosen or least, least]
    why_not = ""
    for size in dict.fromkeys(sizes):
        why_not = _unfit(tx, job, size, fits, now) or barred(job, size) or ""
        if not why_not:
            job = _beginning(tx, job, size, named, now) if mine else job
            begin_on(tx, job, () if tx.plans.effective(job.id) else nodes(job, size), now)
            inherit(tx, job, now)
            note_earlier_replicas(tx, job, now)
            move_job(
                tx, job, JobState.STARTING, f"the pool has room for {count(size, 'replica')}", now
            )
            return True
    move_job(tx, job, JobState.QUEUED, why_not, now)
    return False


def _named(tx: Transaction, job: Job) -> int | None:
    """Return the first size that the owner named; None if the owner left it open."""
    chosen = tx.fits.get(job.id, BEGINS)
    if chosen is None:
        return job.document.replicas.start
    return int(chosen.parameters) if chosen.parameters else None


def _beginning(tx: Transaction, job: Job, size: int, named: int | None, now: datetime) -> Job:
    """Return the job with the first size that Brain chose, which is chosen anew if the job
    queues again.
    """
    bounds = job.document.replicas
    start = None if size == bounds.min else size
    if start == bounds.start:
        return job
    parameters = "" if named is None else str(named)
    tx.fits.put(StoredFit(job=job.id, kind=BEGINS, parameters=parameters, fitted_at=now))
    document = replace(job.document, replicas=replace(bounds, start=start))
    return tx.jobs.put(replace(job, document=document, updated_at=now))


def _unfit(tx: Transaction, job: Job, size: int, fits: int, now: datetime) -> str | None:
    if fits >= size:
        return None
    nodes = tx.nodes.of(job.pool)
    if not nodes:
        return f"no node of pool {job.pool} has registered yet"
    if all(silent(node, now) for node in nodes):
        return f"no node of pool {job.pool} reports; check that the pool's scaler runs"
    return f"pool {job.pool} has room for {fits} of {count(size, 'replica')} now"


def _intend(tx: Transaction, job: Job, intent: Intent, by: str, now: datetime) -> Job:
    if job.intent is intent:
        return job
    verb = "resume" if intent is Intent.RUN else str(intent)
    acted(tx, by, f"job.{verb}", f"job/{job.id}", now=now, before=job.intent, after=intent)
    if job.state not in _STILL:
        # Other processes wait for events; the state changes only once the replicas have stopped.
        message = f"{by} asked to {verb} the job"
        happened(tx, f"job.asked-to-{verb}", message, job=job.id, now=now)
    return tx.jobs.put(replace(job, intent=intent, updated_at=now))


def _standing(job: Job) -> str:
    if job.intent is Intent.RUN or job.finished:
        return str(job.state)
    return "being cancelled" if job.intent is Intent.CANCEL else "being suspended"


def without_secrets(document: JobDocument) -> JobDocument:
    """Return the document without the values of its environment; names and references to secrets
    stay.
    """
    names = {
        name: value if isinstance(value, Secret) else ""
        for name, value in document.environment.items()
    }
    return replace(document, environment=names)
