"""Earlier jobs, as input of estimates, and the capacity of pools."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from brain.errors import Undetermined
from brain.estimates.usage import KIND, used_by
from brain.lifecycle.capacity import largest, room
from brain.lifecycle.nodes import expected
from brain.lifecycle.observed import points
from brain.lifecycle.work import steps_made
from brain.models.estimate import Past, PoolCapacity, Script
from brain.models.estimate.past import likeness, script_of
from brain.models.fitting import Point, measure
from brain.ports import Transaction
from brain.types.job import Job, JobDocument, JobId, JobState
from brain.types.order import JOBS, Place
from brain.types.resources import PoolName
from brain.types.world import World

#: Number of newest jobs whose documents are compared, and of similar ones that are read.
_DOCUMENTS, _READ, _PAGE = 2000, 40, 200
#: For a job without a point: newest worlds that are read, steps that each must have, and their
#: largest scatter.
_WORLDS, _STEPS, _SPREAD = 3, 10, 0.5
#: Seconds of newest samples of such a world that are read, until they suffice.
_WINDOWS_SECONDS = (60.0, 300.0, 900.0)


def pasts(tx: Transaction, subject: Script) -> list[Past]:
    """Return the jobs that are most like ``subject``, newest first."""
    found = []
    for job in _newest(tx):
        how, _ = likeness(subject, script_of(job.document, job.owner))
        if how > 0:
            found.append((how, job))
    found.sort(key=lambda pair: -pair[0])
    kept = sorted(found[:_READ], key=lambda pair: pair[1].created_at, reverse=True)
    return [_past(tx, job) for _, job in kept]


def _newest(tx: Transaction) -> Iterator[Job]:
    after: Place | None = None
    for _ in range(_DOCUMENTS // _PAGE):
        page = tx.jobs.page(after=after, size=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = JOBS.place(page[-1])


def _past(tx: Transaction, job: Job) -> Past:
    used = used_by(tx.fits.get(job.id, KIND))
    return Past(
        job=job.id,
        name=job.document.name,
        script=script_of(job.document, job.owner),
        succeeded=job.state is JobState.SUCCEEDED,
        failed=job.state is JobState.FAILED,
        leaked=used.leaked,
        points=() if job.document.groups else tuple(points(tx, job)) or rough_points(tx, job),
        uses=used.uses,
        reserved_millis=float(job.resources.cpu_millis),
        checkpoint_bytes=used.checkpoint_bytes,
        steps=_steps(tx, job),
        epochs=job.document.epochs,
    )


def rough_points(tx: Transaction, job: Job) -> tuple[Point, ...]:
    """Return rough points of a job that was never measured well enough for a decision.

    A decision waits for better measurements. An estimate cannot wait, so it uses rough points and
    states its uncertainty.
    """
    found = []
    for world in sorted(tx.worlds.of(job.id), key=lambda world: world.epoch)[-_WORLDS:]:
        point = _newest_point(tx, world)
        found += [] if point is None else [point]
    return tuple(found)


def _newest_point(tx: Transaction, world: World) -> Point | None:
    """Return a rough point of a world, from no more of its newest samples than are needed.

    A world with so few samples that its steps must be slow is read as a whole.
    """
    newest = tx.telemetry.newest(world.job, world.epoch)
    if newest is None:
        return None
    begins = [newest - timedelta(seconds=seconds) for seconds in _WINDOWS_SECONDS]
    for since in (*begins, world.formed_at):
        samples = tx.telemetry.throughput(
            world.job, since=max(since, world.formed_at), epoch=world.epoch
        )
        try:
            return measure(samples, minimum_steps=_STEPS, spread_limit=_SPREAD)
        except Undetermined:
            enough = len(samples) > _STEPS * world.processes
            if since <= world.formed_at or (since == begins[-1] and enough):
                break
    return None


def _steps(tx: Transaction, job: Job) -> float | None:
    """Return the steps of a job that ended well, without its last half minute; None if unknown."""
    if job.state is not JobState.SUCCEEDED:
        return None
    if job.document.steps is not None:
        return float(job.document.steps)
    done = steps_made(points(tx, job), tx.worlds.of(job.id))
    return float(done) if done > 0 else None


def rooms(
    tx: Transaction, document: JobDocument, pool: PoolName, now: datetime
) -> list[PoolCapacity]:
    """Return how many replicas of the job fit a pool, for each kind of accelerator that the
    document allows, by name.
    """
    wanted = document.accelerator
    nodes = [node for node in expected(tx.nodes.of(pool), now) if node.schedulable]
    kinds = sorted({node.accelerator for node in nodes})
    found = []
    for kind in kinds:
        if wanted not in (None, kind):
            continue
        asked = unsubmitted(replace(document, accelerator=kind), pool, now)
        each = [
            document.allocation.each.copies_within(node.capacity)
            for node in nodes
            if node.accelerator == kind
        ]
        # A replica without needs fits any node any number of times.
        most = [document.replicas.max if copies is None else copies for copies in each]
        found.append(
            PoolCapacity(
                accelerator=kind,
                per_node=max(most),
                largest=largest(tx, asked, now) or 0,
                now=room(tx, asked, now),
            )
        )
    return found


def unsubmitted(document: JobDocument, pool: PoolName, now: datetime) -> Job:
    return Job(
        id=JobId(""),
        document=document,
        amounts=document.allocation.each,
        pool=pool,
        owner="",
        created_at=now,
        updated_at=now,
    )
