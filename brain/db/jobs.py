"""Jobs, their plans and decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from brain.db.columns import row, upsert, value
from brain.db.tables import ACTIVE_PLAN, UNFINISHED, decisions, jobs, plans
from brain.errors import Conflict, NameTaken, StalePlan, UnknownJob, UnknownPlan, VersionMismatch
from brain.types.job import Job, JobId
from brain.types.plan import ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.resources import PoolName


class SqlJobs:
    """``JobStore``, one row per job."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, job: Job) -> None:
        try:
            with self._connection.begin_nested():
                self._connection.execute(sa.insert(jobs).values(_job_row(job)))
        except sa.exc.IntegrityError as taken:
            if self._one(jobs.c.id == job.id):
                raise NameTaken(
                    f"a job of id {job.id} is already stored; ids are never reused"
                ) from taken
            raise NameTaken(
                f"an unfinished job of project {job.document.project} is named "
                f"{job.document.name}; choose another name or cancel that job"
            ) from taken

    def get(self, job: str, project: str = "default") -> Job:
        found = self._one(jobs.c.id == job) or self._one(
            (jobs.c.project == project) & (jobs.c.name == job)
        )
        if found is None:
            raise UnknownJob(f"no job of project {project} has the id or name {job}")
        return found

    def put(self, job: Job) -> Job:
        stored = replace(job, version=job.version + 1)
        same = (jobs.c.id == job.id) & (jobs.c.version == job.version)
        statement = sa.update(jobs).where(same).values(_job_row(stored))
        if self._connection.execute(statement).rowcount:
            return stored
        known = self._one(jobs.c.id == job.id)
        if known is None:
            raise UnknownJob(f"no job has the id {job.id}")
        raise VersionMismatch(
            f"job {job.document.name} is at version {known.version}, not {job.version}; "
            "read it again"
        )

    def unfinished(self, pool: PoolName) -> Sequence[Job]:
        oldest = sa.select(jobs).where(jobs.c.pool == pool, UNFINISHED)
        return self._read(oldest.order_by(jobs.c.created_at, jobs.c.id))

    def page(self, *, after: str | None, size: int) -> Sequence[Job]:
        newest = sa.select(jobs).order_by(jobs.c.id.desc()).limit(size)
        return self._read(newest if after is None else newest.where(jobs.c.id < after))

    def pools(self) -> Sequence[PoolName]:
        found = sa.select(jobs.c.pool).distinct().where(UNFINISHED).order_by(jobs.c.pool)
        return self._connection.execute(found).scalars().all()

    def _one(self, which: sa.ColumnElement[bool]) -> Job | None:
        """The unfinished job among ``which``, else the newest."""
        order = (UNFINISHED_FIRST, jobs.c.created_at.desc(), jobs.c.id.desc())
        return next(iter(self._read(sa.select(jobs).where(which).order_by(*order).limit(1))), None)

    def _read(self, statement: sa.Select[Any]) -> list[Job]:
        return [value(Job, found) for found in self._connection.execute(statement).mappings()]


UNFINISHED_FIRST = sa.case((UNFINISHED, 0), else_=1)


def _job_row(job: Job) -> dict[str, Any]:
    return row(job) | {"project": job.document.project, "name": job.document.name}


class SqlPlans:
    """``PlanStore``, one row per plan and one for the latest decision about a job.

    ``known`` are the plans of jobs that the transaction has read.
    """

    def __init__(
        self, connection: sa.Connection, known: dict[JobId, Sequence[ScalePlan]] | None = None
    ) -> None:
        self._connection = connection
        self._known = {} if known is None else known

    def add(self, plan: ScalePlan) -> None:
        self._known.pop(plan.job, None)
        self._check(plan)
        try:
            with self._connection.begin_nested():
                self._connection.execute(sa.insert(plans).values(row(plan)))
        except sa.exc.IntegrityError as lost_race:
            self._check(plan)
            raise StalePlan(
                f"generation {plan.generation} of job {plan.job} was stored meanwhile; "
                "propose the next one"
            ) from lost_race
        self._known.pop(plan.job, None)

    def put(self, plan: ScalePlan) -> ScalePlan:
        self._known.pop(plan.job, None)
        stored = replace(plan, version=plan.version + 1)
        same = _is(plan.job, plan.generation) & (plans.c.version == plan.version)
        try:
            with self._connection.begin_nested():
                statement = sa.update(plans).where(same).values(row(stored))
                changed = self._connection.execute(statement).rowcount
        except sa.exc.IntegrityError as second:
            raise self._other_active(plan.job) from second
        if changed:
            return stored
        known = self.get(plan.job, plan.generation)
        raise VersionMismatch(
            f"plan {plan.generation} of job {plan.job} is at version {known.version}, "
            f"not {plan.version}; read it again"
        )

    def get(self, job: JobId, generation: int) -> ScalePlan:
        found = self._read(sa.select(plans).where(_is(job, generation)))
        if not found:
            raise UnknownPlan(f"job {job} has no plan of generation {generation}")
        return found[0]

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        if job not in self._known:
            self._known[job] = self._read(_PLANS_OF, job=job)
        return list(self._known[job])

    def active(self, job: JobId) -> ScalePlan | None:
        if job in self._known:
            return next((plan for plan in self._known[job] if plan.active), None)
        found = self._read(_ACTIVE_OF, job=job)
        return found[0] if found else None

    def page(self, *, after: tuple[datetime, JobId, int] | None, size: int) -> Sequence[ScalePlan]:
        order = (plans.c.created_at, plans.c.job, plans.c.generation)
        newest = sa.select(plans).order_by(*(column.desc() for column in order)).limit(size)
        return self._read(newest if after is None else newest.where(sa.tuple_(*order) < after))

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        upsert(self._connection, decisions, [{"job": job, "recommendation": recommendation}])

    def decision(self, job: JobId) -> Recommendation | None:
        mine = sa.select(decisions.c.recommendation).where(decisions.c.job == job)
        return self._connection.execute(mine).scalar_one_or_none()

    def _check(self, plan: ScalePlan) -> None:
        newest = sa.select(sa.func.max(plans.c.generation)).where(plans.c.job == plan.job)
        known = self._connection.execute(newest).scalar_one()
        if known is not None and known >= plan.generation:
            raise StalePlan(
                f"generation {plan.generation} of job {plan.job} is not after {known}; "
                "propose the next one"
            )
        if plan.active and self.active(plan.job):
            raise self._other_active(plan.job)

    def _other_active(self, job: JobId) -> Conflict:
        active = self.active(job)
        assert active
        return Conflict(
            f"plan {active.generation} of job {job} is {active.state}; supersede it first"
        )

    def _read(self, statement: sa.Select[Any], **given: object) -> list[ScalePlan]:
        found: Sequence[Mapping[Any, Any]]
        found = self._connection.execute(statement, given).mappings().all()
        return [value(ScalePlan, each) for each in found]


_MINE = sa.select(plans).where(plans.c.job == sa.bindparam("job"))
_PLANS_OF = _MINE.order_by(plans.c.generation.desc())
_ACTIVE_OF = _MINE.where(ACTIVE_PLAN)


def _is(job: JobId, generation: int) -> sa.ColumnElement[bool]:
    return (plans.c.job == job) & (plans.c.generation == generation)
