"""Jobs, their plans and decisions."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from brain.db.columns import change, insert_new, page, reader, row, upsert, values
from brain.db.tables import (
    ACTIVE_PLAN,
    REACHED_PLAN,
    UNFINISHED,
    decisions,
    fits,
    jobs,
    plans,
)
from brain.errors import Conflict, NameTaken, StalePlan, UnknownJob, UnknownPlan, VersionMismatch
from brain.ports import JobChanges
from brain.types.job import Job, JobId
from brain.types.order import JOBS, PLANS, Order, Place
from brain.types.plan import ACTIVE, REACHED, PlanState, ScalePlan, effective
from brain.types.recommendation import Recommendation
from brain.types.resources import PoolName


class SqlJobs:
    """``JobStore`` with one row per job; ``known`` holds jobs that the transaction has read by id,
    and ``named`` those that it has read ahead, by project and name.
    """

    def __init__(
        self,
        connection: sa.Connection,
        known: dict[str, Job],
        named: dict[tuple[str, str], Job],
    ) -> None:
        self._connection = connection
        self._known = known
        self._named = named

    def add(self, job: Job) -> None:
        self._named.pop(_name(job), None)
        if insert_new(self._connection, jobs, _job_row(job)):
            return
        if self._one(_BY_ID, id=job.id):
            raise NameTaken(
                f"a job with the id {job.id} is already stored, and ids are never reused; "
                "give a new id"
            )
        raise NameTaken(
            f"an unfinished job of project {job.document.project} is named "
            f"{job.document.name}; choose another name or cancel that job"
        )

    def get(self, job: str, project: str = "default") -> Job:
        found = self._known.get(job) or self._named.get((project, job))
        # PostgreSQL refuses to look for a text with NUL, which no id or name contains.
        if found is None and "\0" not in job + project:
            found = self._one(_BY_ID, id=job) or self._one(_BY_NAME, name=job, project=project)
        if found is None:
            raise UnknownJob(f"no job of project {project} has the id or name {job}")
        self._known[found.id] = found
        return found

    def read_ahead(self, ids: Collection[str], *, project: str | None = None) -> None:
        asked = [id for id in ids if "\0" not in id]
        self._know(self._read(_AMONG, ids=asked))
        if project is not None and "\0" not in project:
            names = [name for name in asked if name not in self._known]  # an id comes first
            named = self._read(_AMONG_NAMED, names=names, project=project)
            self._named.update((_name(job), job) for job in named)
            self._know(named)

    def known(self, ids: Collection[str]) -> frozenset[JobId]:
        found = self._connection.execute(_KNOWN, {"ids": list(ids)})
        return frozenset(found.scalars())

    def put(self, job: Job) -> Job:
        self._known.pop(job.id, None)
        self._named.pop(_name(job), None)
        stored = replace(job, version=job.version + 1)
        same = {"of_id": job.id, "of_version": job.version}
        if self._connection.execute(_CHANGE_JOB, _job_row(stored) | same).rowcount:
            self._known[job.id] = stored
            return stored
        known = self._one(_BY_ID, id=job.id)
        if known is None:
            raise UnknownJob(f"no job has the id {job.id}")
        raise VersionMismatch(
            f"job {job.document.name} is at version {known.version}, not {job.version}; "
            "read the job again"
        )

    def unfinished(self, pool: PoolName | None = None) -> Sequence[Job]:
        return self._read(_UNFINISHED) if pool is None else self._read(_UNFINISHED_OF, pool=pool)

    def page(self, *, after: Place | None, size: int, order: Order = JOBS) -> Sequence[Job]:
        return self._read(page(jobs, order, after, size))

    def fitted(self, kind: str, *, among: int) -> Sequence[Job]:
        return self._read(_FITTED, kind=kind, among=among)

    def projects(self, name: str) -> Sequence[str]:
        if "\0" in name:
            return []
        found = sa.select(jobs.c.project).distinct().where(jobs.c.name == name)
        return self._connection.execute(found.order_by(jobs.c.project)).scalars().all()

    def pools(self) -> Sequence[PoolName]:
        found = sa.select(jobs.c.pool).distinct().where(UNFINISHED).order_by(jobs.c.pool)
        return self._connection.execute(found).scalars().all()

    def _know(self, found: Iterable[Job]) -> None:
        self._known.update((job.id, job) for job in found)

    def _one(self, statement: sa.Select[Any], **given: object) -> Job | None:
        return next(iter(self._read(statement, **given)), None)

    def _read(self, statement: sa.Select[Any], **given: object) -> list[Job]:
        return values(Job, self._connection.execute(statement, given))


_CHANGE_JOB = change(jobs)
_BY_ID = sa.select(jobs).where(jobs.c.id == sa.bindparam("id"))
_AMONG = sa.select(jobs).where(jobs.c.id.in_(sa.bindparam("ids", expanding=True)))
_UNFINISHED = sa.select(jobs).where(UNFINISHED).order_by(jobs.c.created_at, jobs.c.id)
_UNFINISHED_OF = _UNFINISHED.where(jobs.c.pool == sa.bindparam("pool"))
_KNOWN = sa.select(jobs.c.id).where(jobs.c.id.in_(sa.bindparam("ids", expanding=True)))
_NEWEST_FIRST = jobs.c.created_at.desc(), jobs.c.id.desc()
_NEWEST_IDS = sa.select(jobs.c.id).order_by(*_NEWEST_FIRST).limit(sa.bindparam("among"))
_FIT_OF = sa.select(fits.c.job).where(fits.c.job == jobs.c.id, fits.c.kind == sa.bindparam("kind"))
_FITTED = (
    sa.select(jobs).where(jobs.c.id.in_(_NEWEST_IDS), _FIT_OF.exists()).order_by(*_NEWEST_FIRST)
)
#: Orders the unfinished job of a name first, else the newest.
_MEANT_FIRST = sa.case((UNFINISHED, 0), else_=1), *_NEWEST_FIRST
_OF_PROJECT = sa.select(jobs).where(jobs.c.project == sa.bindparam("project"))
_BY_NAME = _OF_PROJECT.where(jobs.c.name == sa.bindparam("name")).order_by(*_MEANT_FIRST).limit(1)
_NAMED = (
    _OF_PROJECT.with_only_columns(
        jobs.c.id,
        sa.func.row_number().over(partition_by=jobs.c.name, order_by=_MEANT_FIRST).label("place"),
    )
    .where(jobs.c.name.in_(sa.bindparam("names", expanding=True)))
    .subquery()
)
_AMONG_NAMED = sa.select(jobs).where(
    jobs.c.id.in_(sa.select(_NAMED.c.id).where(_NAMED.c.place == 1))
)


def _name(job: Job) -> tuple[str, str]:
    return job.document.project, job.document.name


def _job_row(job: Job) -> dict[str, Any]:
    return row(job) | {"project": job.document.project, "name": job.document.name}


class SqlPlans:
    """``PlanStore`` with one row per plan, and one row per job for the latest decision about the
    job.

    ``known``, ``effective`` and ``decided`` are the plans and decisions that this transaction has
    already read; ``effective`` has the sum of the versions of all plans, too. ``ahead`` are the
    jobs whose decisions are read together, once one of them is needed.
    """

    def __init__(
        self,
        connection: sa.Connection,
        known: dict[JobId, Sequence[ScalePlan]] | None = None,
        decided: dict[JobId, Recommendation | None] | None = None,
        effective: dict[JobId, tuple[Sequence[ScalePlan], int]] | None = None,
        ahead: set[JobId] | None = None,
    ) -> None:
        self._connection = connection
        self._known = {} if known is None else known
        self._effective = {} if effective is None else effective
        self._decided = {} if decided is None else decided
        self._ahead = set() if ahead is None else ahead

    def add(self, plan: ScalePlan) -> None:
        self._forget(plan.job)
        self._check(plan)
        if not insert_new(self._connection, plans, row(plan)):
            self._check(plan)
            raise StalePlan(
                f"generation {plan.generation} of job {plan.job} was stored in the meantime; "
                "propose the next generation"
            )
        self._forget(plan.job)

    def put(self, plan: ScalePlan) -> ScalePlan:
        self._forget(plan.job)
        stored = replace(plan, version=plan.version + 1)
        same = {
            "of_job": plan.job,
            "of_generation": plan.generation,
            "of_version": plan.version,
        }
        try:
            with self._connection.begin_nested():
                changed = self._connection.execute(_CHANGE_PLAN, row(stored) | same).rowcount
        except sa.exc.IntegrityError as second:
            raise self._other_active(plan.job) from second
        if changed:
            return stored
        known = self.get(plan.job, plan.generation)
        raise VersionMismatch(
            f"plan {plan.generation} of job {plan.job} is at version {known.version}, "
            f"not {plan.version}; read the plan again"
        )

    def get(self, job: JobId, generation: int) -> ScalePlan:
        read = self._known.get(job) or self._effective.get(job, ((), 0))[0]
        found = [plan for plan in read if plan.generation == generation]
        found = found or self._read(_PLAN, job=job, generation=generation)
        if not found:
            raise UnknownPlan(
                f"job {job} has no plan of generation {generation}; `brain plans` lists the plans"
            )
        return found[0]

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        if job not in self._known:
            self._known[job] = self._read(_PLANS_OF, job=job)
        return list(self._known[job])

    def page_of(self, job: JobId, *, below: int | None, size: int) -> Sequence[ScalePlan]:
        if below is None:
            return self._read(_NEWEST_OF, job=job, size=size)
        return self._read(_NEWEST_BELOW, job=job, below=below, size=size)

    def effective(self, job: JobId) -> Sequence[ScalePlan]:
        return self._effective_of(job)[0]

    def changes(self, job: JobId) -> int:
        return self._effective_of(job)[1]

    def changes_in(self, pool: PoolName) -> Sequence[JobChanges]:
        found = self._connection.execute(_CHANGES_IN, {"pool": pool})
        return [
            JobChanges(job=job, project=project, state=state, changes=int(changes))
            for job, project, state, changes in found
        ]

    def _effective_of(self, job: JobId) -> tuple[Sequence[ScalePlan], int]:
        if job not in self._effective:
            if job in self._known:
                every = self._known[job]
                self._effective[job] = effective(every), sum(plan.version for plan in every)
            else:
                self._read_effective([job])
        return self._effective[job]

    def _read_effective(self, jobs: Collection[JobId]) -> None:
        found: dict[JobId, list[ScalePlan]] = {job: [] for job in jobs}
        changes = dict.fromkeys(jobs, 0)
        rows = self._connection.execute(_EFFECTIVE_AMONG, {"jobs": list(jobs)})
        columns = tuple(rows.keys())
        read, number = reader(ScalePlan, columns), columns.index("changes")
        for each in rows.all():
            plan = read(each)
            found[plan.job].append(plan)
            changes[plan.job] = int(each[number])
        self._effective.update((job, (found[job], changes[job])) for job in jobs)

    def read_ahead(self, jobs: Collection[JobId], *, every: bool = False) -> None:
        if every:
            found: dict[JobId, list[ScalePlan]] = {job: [] for job in jobs}
            for plan in self._read(_PLANS_AMONG, jobs=list(jobs)):
                found[plan.job].append(plan)
            self._known.update(found)
        else:
            self._read_effective(jobs)
        self._ahead.update(jobs)

    def since_reached(self, pool: PoolName) -> Mapping[JobId, Sequence[ScalePlan]]:
        found: defaultdict[JobId, list[ScalePlan]] = defaultdict(list)
        for plan in self._read(_SINCE_REACHED, pool=pool):
            found[plan.job].append(plan)
        return found

    def active(self, job: JobId) -> ScalePlan | None:
        if job in self._known or job in self._effective:
            return next((plan for plan in self.effective(job) if plan.active), None)
        found = self._read(_ACTIVE_OF, job=job)
        return found[0] if found else None

    def page(self, *, after: Place | None, size: int, order: Order = PLANS) -> Sequence[ScalePlan]:
        return self._read(page(plans, order, after, size))

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        self._decided.pop(job, None)
        upsert(self._connection, decisions, [{"job": job, "recommendation": recommendation}])

    def decision(self, job: JobId) -> Recommendation | None:
        if job not in self._decided:
            asked: dict[JobId, Recommendation | None] = dict.fromkeys((job, *self._ahead))
            found = self._connection.execute(_DECISIONS_AMONG, {"jobs": list(asked)})
            self._decided.update(asked | {id: decision for id, decision in found})
            self._ahead.clear()
        return self._decided[job]

    def _forget(self, job: JobId) -> None:
        self._known.pop(job, None)
        self._effective.pop(job, None)

    def _check(self, plan: ScalePlan) -> None:
        known = self._connection.execute(_NEWEST, {"job": plan.job}).scalar_one()
        if known is not None and known >= plan.generation:
            raise StalePlan(
                f"generation {plan.generation} of job {plan.job} is not above {known}, the newest "
                "stored generation; propose the next generation"
            )
        if plan.active and self.active(plan.job):
            raise self._other_active(plan.job)

    def _other_active(self, job: JobId) -> Conflict:
        active = self.active(job)
        assert active
        return Conflict(
            f"plan {active.generation} of job {job} is still active ({active.state}); "
            "supersede it first"
        )

    def _read(self, statement: sa.Select[Any], **given: object) -> list[ScalePlan]:
        return values(ScalePlan, self._connection.execute(statement, given))


_CHANGE_PLAN = change(plans)
_NEWEST = sa.select(sa.func.max(plans.c.generation)).where(plans.c.job == sa.bindparam("job"))
_MINE = sa.select(plans).where(plans.c.job == sa.bindparam("job"))
_PLAN = _MINE.where(plans.c.generation == sa.bindparam("generation"))
_PLANS_OF = _MINE.order_by(plans.c.generation.desc())
_NEWEST_OF = _PLANS_OF.limit(sa.bindparam("size"))
_NEWEST_BELOW = _NEWEST_OF.where(plans.c.generation < sa.bindparam("below"))
_PLANS_AMONG = (
    sa.select(plans)
    .where(plans.c.job.in_(sa.bindparam("jobs", expanding=True)))
    .order_by(plans.c.job, plans.c.generation.desc())
)
#: Newest generation and sum of versions of each of some jobs.
_totals = (
    sa.select(
        plans.c.job,
        sa.func.max(plans.c.generation).label("newest"),
        sa.func.sum(plans.c.version).label("changes"),
    )
    .where(plans.c.job.in_(sa.bindparam("jobs", expanding=True)))
    .group_by(plans.c.job)
    .subquery("totals")
)
#: True for a plan that a world has met, and for an active one.
_counts = plans.c.state.in_([*REACHED, *ACTIVE]) | (
    plans.c.state == PlanState.SUPERSEDED
) & sa.type_coerce(plans.c.outcome, sa.JSON)["epoch"].as_integer().is_not(None)
_EFFECTIVE_AMONG = (
    sa.select(plans, _totals.c.changes)
    .join(_totals, _totals.c.job == plans.c.job)
    .where((plans.c.generation == _totals.c.newest) | _counts)
    .order_by(plans.c.job, plans.c.generation.desc())
)
_DECISIONS_AMONG = sa.select(decisions.c.job, decisions.c.recommendation).where(
    decisions.c.job.in_(sa.bindparam("jobs", expanding=True))
)
_ACTIVE_OF = _MINE.where(ACTIVE_PLAN)
#: The unfinished jobs of a pool.
OF_POOL = sa.select(jobs.c.id).where(jobs.c.pool == sa.bindparam("pool"), UNFINISHED)
_versions = sa.select(sa.func.sum(plans.c.version)).where(plans.c.job == jobs.c.id)
_CHANGES_IN = (
    sa.select(
        jobs.c.id,
        jobs.c.project,
        jobs.c.state,
        jobs.c.version + sa.func.coalesce(_versions.scalar_subquery(), 0),
    )
    .where(jobs.c.pool == sa.bindparam("pool"), UNFINISHED)
    .order_by(jobs.c.created_at, jobs.c.id)
)
_LAST_REACHED = (
    sa.select(plans.c.job, sa.func.max(plans.c.generation).label("generation"))
    .where(plans.c.job.in_(OF_POOL), REACHED_PLAN)
    .group_by(plans.c.job)
    .subquery()
)
_SINCE_REACHED = (
    sa.select(plans)
    .outerjoin(_LAST_REACHED, _LAST_REACHED.c.job == plans.c.job)
    .where(
        plans.c.job.in_(OF_POOL),
        plans.c.generation >= sa.func.coalesce(_LAST_REACHED.c.generation, 0),
        _counts,
    )
    .order_by(plans.c.job, plans.c.generation.desc())
)
