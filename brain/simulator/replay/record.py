"""The record of jobs since a time, as far as the stores still have it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from brain.errors import UnknownJob
from brain.lifecycle.observed import points
from brain.models.fitting import Point
from brain.ports import Transaction
from brain.types.job import Job, JobId
from brain.types.order import JOBS
from brain.types.plan import PlanKind, ScalePlan
from brain.types.record import Event
from brain.types.resources import Node
from brain.types.world import Replica, World

_PAGE, _EVENTS = 200, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """A decision of Brain about a job at an instant: a plan of Brain's own, or a hold."""

    at: datetime
    job: Job
    before: int
    replicas: int
    code: str
    reason: str
    #: Generation of the plan; None for a hold.
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job as it was recorded."""

    job: Job
    #: Highest generation first, as stored.
    plans: tuple[ScalePlan, ...]
    #: Highest epoch first.
    worlds: tuple[World, ...]
    replicas: tuple[Replica, ...]
    #: Oldest first.
    events: tuple[Event, ...]
    #: Points of its worlds, oldest first.
    points: tuple[Point, ...]

    def size(self, at: datetime) -> int:
        """Return the size of the world that ran at the given time."""
        there = [world for world in self.worlds if world.formed_at <= at]
        return there[0].replicas if there else self.job.document.replicas.first

    def until(self, at: datetime, now: datetime) -> datetime:
        """Return the time until which the job kept the size that it had at ``at``: until its next
        world, else until the job ended, else until ``now``.
        """
        later = [world.formed_at for world in self.worlds if world.formed_at > at]
        return min(later, default=self.job.finished_at or now)

    def decisions(self, since: datetime) -> Iterator[RecordedDecision]:
        """Return Brain's own decisions about the job, oldest first."""
        found = [
            RecordedDecision(
                at=plan.created_at,
                job=self.job,
                before=plan.current.replicas,
                replicas=plan.target.replicas,
                code=plan.explanation.code,
                reason=plan.explanation.reason,
                generation=plan.generation,
            )
            for plan in self.plans
            if plan.kind is PlanKind.RESIZE
        ]
        for event in self.events:
            if event.kind == "hold":
                size = self.size(event.at)
                code = (event.data or {}).get("code", "hold")
                found.append(
                    RecordedDecision(
                        at=event.at,
                        job=self.job,
                        before=size,
                        replicas=size,
                        code=code,
                        reason=event.message,
                    )
                )
        kept = (one for one in found if one.at >= since)
        return iter(sorted(kept, key=lambda one: (one.at, one.generation or 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything recorded about a pool's jobs since a given time."""

    since: datetime
    now: datetime
    #: The present nodes, because earlier states of nodes are not stored.
    nodes: tuple[Node, ...]
    #: Oldest first.
    jobs: tuple[Record, ...]

    #: Job whose decisions are replayed; other jobs are only part of the past. None: all jobs.
    about: frozenset[JobId] | None = None

    def only(self, name: str) -> "Recording":
        """Return this recording, restricted to the decisions about the job with this id or name.

        Raises:
            UnknownJob: no job with this id or name was recorded.
        """
        named = {r.job.id for r in self.jobs if name in (r.job.id, r.job.document.name)}
        if not named:
            raise UnknownJob(
                f"no job {name} has run since {self.since:%Y-%m-%d %H:%M}; look further back"
            )
        return replace(self, about=frozenset(named))


def recorded(tx: Transaction, *, since: datetime, now: datetime) -> Recording:
    """Read the jobs that ended after ``since`` or have not ended yet."""
    jobs = [job for job in _jobs(tx) if job.finished_at is None or job.finished_at >= since]
    return Recording(
        since=since,
        now=now,
        nodes=tuple(tx.nodes.of()),
        jobs=tuple(_record(tx, job) for job in reversed(jobs)),
    )


def _jobs(tx: Transaction) -> Iterator[Job]:
    """All jobs, newest first."""
    page: Sequence[Job] = tx.jobs.page(after=None, size=_PAGE)
    while page:
        yield from page
        page = tx.jobs.page(after=JOBS.place(page[-1]), size=_PAGE)


def _record(tx: Transaction, job: Job) -> Record:
    return Record(
        job=job,
        plans=tuple(tx.plans.of(job.id)),
        worlds=tuple(tx.worlds.of(job.id)),
        replicas=tuple(tx.worlds.replicas(job.id)),
        events=tuple(_events(tx, job)),
        points=tuple(points(tx, job)),
    )


def _events(tx: Transaction, job: Job) -> Iterator[Event]:
    page = tx.events.after(0, limit=_EVENTS, job=job.id)
    while page:
        yield from page
        page = tx.events.after(page[-1].id or 0, limit=_EVENTS, job=job.id)
