"""Stores jobs, their plans and decisions in dictionaries."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from brain.errors import Conflict, NameTaken, StalePlan, UnknownJob, UnknownPlan, VersionMismatch
from brain.inmemory.rows import Rows
from brain.ports import JobChanges, StoredFit
from brain.types.job import Job, JobId
from brain.types.order import JOBS, PLANS, Order, Place
from brain.types.plan import REACHED, ScalePlan, effective
from brain.types.recommendation import Recommendation
from brain.types.resources import PoolName


class MemoryJobs:
    """``JobStore`` that keeps jobs in a dictionary by id; ``fitted`` reads the
    dictionary of fits.
    """

    def __init__(self, rows: Rows[str, Job], fits: Rows[tuple[JobId, str], StoredFit]) -> None:
        self._rows, self._fits = rows, fits

    def add(self, job: Job) -> None:
        name, project = job.document.name, job.document.project
        if job.id in self._rows:
            raise NameTaken(
                f"a job with the id {job.id} is already stored, and ids are never reused; "
                "give a new id"
            )
        if not job.finished and any(not each.finished for each in self._named(name, project)):
            raise NameTaken(
                f"an unfinished job of project {project} is named {name}; "
                "choose another name or cancel that job"
            )
        self._rows[job.id] = job

    def get(self, job: str, project: str = "default") -> Job:
        if job in self._rows:
            return self._rows[job]
        named = self._named(job, project)
        if not named:
            raise UnknownJob(f"no job of project {project} has the id or name {job}")
        return max(named, key=lambda each: (not each.finished, each.created_at, each.id))

    def read_ahead(self, ids: Collection[str], *, project: str | None = None) -> None:
        """Do nothing: dictionaries need no reading ahead."""

    def known(self, ids: Collection[str]) -> frozenset[JobId]:
        return frozenset(JobId(id) for id in ids if id in self._rows)

    def put(self, job: Job) -> Job:
        if job.id not in self._rows:
            raise UnknownJob(f"no job has the id {job.id}")
        known = self._rows[job.id].version
        if known != job.version:
            raise VersionMismatch(
                f"job {job.document.name} is at version {known}, not {job.version}; "
                "read the job again"
            )
        stored = replace(job, version=known + 1)
        self._rows[job.id] = stored
        return stored

    def unfinished(self, pool: PoolName | None = None) -> Sequence[Job]:
        jobs = [
            each for each in self._rows.values() if pool in (None, each.pool) and not each.finished
        ]
        return sorted(jobs, key=lambda each: (each.created_at, each.id))

    def page(self, *, after: Place | None, size: int, order: Order = JOBS) -> Sequence[Job]:
        return order.page(self._rows.values(), after=after, size=size)

    def fitted(self, kind: str, *, among: int) -> Sequence[Job]:
        newest = self.page(after=None, size=among)
        return [job for job in newest if (job.id, kind) in self._fits]

    def projects(self, name: str) -> Sequence[str]:
        documents = (each.document for each in self._rows.values())
        return sorted({each.project for each in documents if each.name == name})

    def pools(self) -> Sequence[PoolName]:
        return sorted({each.pool for each in self._rows.values() if not each.finished})

    def _named(self, name: str, project: str) -> list[Job]:
        return [
            each
            for each in self._rows.values()
            if each.document.name == name and each.document.project == project
        ]


class MemoryPlans:
    """``PlanStore`` that keeps, for each job, a dictionary of plans by generation."""

    def __init__(
        self,
        rows: Rows[JobId, Mapping[int, ScalePlan]],
        decisions: Rows[JobId, Recommendation],
        jobs: Rows[JobId, Job],
    ) -> None:
        self._rows = rows
        self._decisions = decisions
        self._jobs = jobs

    def add(self, plan: ScalePlan) -> None:
        newest = next(iter(self.of(plan.job)), None)
        if newest and newest.generation >= plan.generation:
            raise StalePlan(
                f"generation {plan.generation} of job {plan.job} is not above {newest.generation}, "
                "the newest stored generation; propose the next generation"
            )
        self._only_active(plan)
        self._store(plan)

    def put(self, plan: ScalePlan) -> ScalePlan:
        known = self.get(plan.job, plan.generation)
        if known.version != plan.version:
            raise VersionMismatch(
                f"plan {plan.generation} of job {plan.job} is at version {known.version}, "
                f"not {plan.version}; read the plan again"
            )
        self._only_active(plan)
        stored = replace(plan, version=known.version + 1)
        self._store(stored)
        return stored

    def get(self, job: JobId, generation: int) -> ScalePlan:
        try:
            return self._rows[job][generation]
        except KeyError:
            raise UnknownPlan(
                f"job {job} has no plan of generation {generation}; `brain plans` lists the plans"
            ) from None

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        plans = self._rows.get(job, {}).values()
        return sorted(plans, key=lambda plan: plan.generation, reverse=True)

    def page_of(self, job: JobId, *, below: int | None, size: int) -> Sequence[ScalePlan]:
        plans = self.of(job)
        return [plan for plan in plans if below is None or plan.generation < below][:size]

    def effective(self, job: JobId) -> Sequence[ScalePlan]:
        return effective(self.of(job))

    def changes(self, job: JobId) -> int:
        return sum(plan.version for plan in self._rows.get(job, {}).values())

    def changes_in(self, pool: PoolName) -> Sequence[JobChanges]:
        jobs = [job for job in self._jobs.values() if job.pool == pool and not job.finished]
        return [
            JobChanges(
                job=job.id,
                project=job.document.project,
                state=job.state,
                changes=job.version + self.changes(job.id),
            )
            for job in sorted(jobs, key=lambda each: (each.created_at, each.id))
        ]

    def read_ahead(self, jobs: Collection[JobId], *, every: bool = False) -> None:
        """Do nothing: dictionaries need no reading ahead."""

    def since_reached(self, pool: PoolName) -> Mapping[JobId, Sequence[ScalePlan]]:
        found: dict[JobId, list[ScalePlan]] = {}
        for job in self._jobs.values():
            if job.pool == pool and not job.finished:
                plans = [plan for plan in self.of(job.id) if plan.active or plan.reached]
                last = next((p.generation for p in plans if p.state in REACHED), 0)
                if recent := [plan for plan in plans if plan.generation >= last]:
                    found[job.id] = recent
        return found

    def active(self, job: JobId) -> ScalePlan | None:
        return next((plan for plan in self.of(job) if plan.active), None)

    def page(self, *, after: Place | None, size: int, order: Order = PLANS) -> Sequence[ScalePlan]:
        every = (plan for plans in self._rows.values() for plan in plans.values())
        return order.page(every, after=after, size=size)

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        self._decisions[job] = recommendation

    def decision(self, job: JobId) -> Recommendation | None:
        return self._decisions.get(job)

    def _store(self, plan: ScalePlan) -> None:
        self._rows[plan.job] = {**self._rows.get(plan.job, {}), plan.generation: plan}

    def _only_active(self, plan: ScalePlan) -> None:
        active = self.active(plan.job) if plan.active else None
        if active and active.generation != plan.generation:
            raise Conflict(
                f"plan {active.generation} of job {plan.job} is still active ({active.state}); "
                "supersede it first"
            )
