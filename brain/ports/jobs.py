"""Stores of jobs and plans."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from brain.types.job import Job, JobId, JobState
from brain.types.order import JOBS, PLANS, Order, Place
from brain.types.plan import ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.resources import PoolName


class JobStore(Protocol):
    """Jobs, unfinished and finished; the store keeps every job."""

    def add(self, job: Job) -> None:
        """Store a new job.

        Raises:
            NameTaken: an unfinished job of its project has this name.
        """
        ...

    def get(self, job: str, project: str = "default") -> Job:
        """Return the job with this id; without one, the job of the project that has this name.

        If several jobs of the project have this name, the unfinished one is returned, else the
        newest one.

        Raises:
            UnknownJob: no job has this id or name.
        """
        ...

    def read_ahead(self, ids: Collection[str], *, project: str | None = None) -> None:
        """Read all these jobs with one statement, so that later queries by id need no further
        statement. With ``project``, read in the same way the jobs of that project that have these
        names.

        This call never changes the result of a query.
        """
        ...

    def known(self, ids: Collection[str]) -> frozenset[JobId]: ...

    def put(self, job: Job) -> Job:
        """Store a changed job; return it with its version increased by one.

        Raises:
            VersionMismatch: the job was changed since ``job.version`` was read.
            UnknownJob: the job was never added.
        """
        ...

    def unfinished(self, pool: PoolName | None = None) -> Sequence[Job]:
        """Return unfinished jobs of a pool, or of all pools, oldest first."""
        ...

    def page(self, *, after: Place | None, size: int, order: Order = JOBS) -> Sequence[Job]:
        """Return at most ``size`` jobs that follow the row ``after`` in ``order``, or the first
        jobs if ``after`` is None. The default order is newest first.
        """
        ...

    def fitted(self, kind: str, *, among: int) -> Sequence[Job]:
        """Return the jobs that have a stored fit of ``kind``, newest first; consider only the
        newest ``among`` jobs.
        """
        ...

    def projects(self, name: str) -> Sequence[str]:
        """Return the projects that have a job of this name, in alphabetical order."""
        ...

    def pools(self) -> Sequence[PoolName]:
        """Return the pools that have an unfinished job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanges:
    """The number of stored changes of a job and its plans."""

    job: JobId
    project: str
    state: JobState
    changes: int


class PlanStore(Protocol):
    """Plans. Each plan of a job has its own generation, which is the fencing token.

    If two Brain processes add a plan with the same generation, one of them gets ``StalePlan``. At
    most one plan of a job is active.
    """

    def add(self, plan: ScalePlan) -> None:
        """Store a new plan.

        Raises:
            StalePlan: a plan with this generation or a higher one is already stored.
            Conflict: another plan of the job is active; supersede it first.
        """
        ...

    def put(self, plan: ScalePlan) -> ScalePlan:
        """Store a changed plan; return it with its version increased by one.

        Raises:
            VersionMismatch: the plan was changed since ``plan.version`` was read.
            UnknownPlan: the plan was never added.
        """
        ...

    def get(self, job: JobId, generation: int) -> ScalePlan:
        """Return the job's plan with this generation.

        Raises:
            UnknownPlan: the job has no plan with this generation.
        """
        ...

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        """Return all plans of a job, highest generation first."""
        ...

    def page_of(self, job: JobId, *, below: int | None, size: int) -> Sequence[ScalePlan]:
        """Return at most ``size`` plans of a job whose generations are below ``below``, highest
        generation first; if ``below`` is None, return the newest plans.
        """
        ...

    def effective(self, job: JobId) -> Sequence[ScalePlan]:
        """Return the plans that determine a job's present, highest generation first: its newest
        plan, its active plan, and those whose targets worlds have met.

        Proposals that came to nothing, which may be many, are left out.
        """
        ...

    def changes(self, job: JobId) -> int:
        """Return the sum of the versions of all plans of a job, which grows with each change."""
        ...

    def changes_in(self, pool: PoolName) -> Sequence[JobChanges]:
        """Return the number of changes of each unfinished job of a pool, in the order of
        ``JobStore.unfinished``, with one statement that reads no plan.
        """
        ...

    def read_ahead(self, jobs: Collection[JobId], *, every: bool = False) -> None:
        """Read the effective plans, or ``every`` plan, and the decisions of all these jobs with few
        SQL statements, so that later queries about them in the same transaction run no statement.
        """
        ...

    def since_reached(self, pool: PoolName) -> Mapping[JobId, Sequence[ScalePlan]]:
        """Return the active plan of each unfinished job of a pool, and its plans whose targets
        worlds have met, highest generation first.

        The oldest of them is the newest plan whose state is in ``REACHED``. Proposals that came to
        nothing, which may be many, are left out, and so are jobs without other plans.
        """
        ...

    def active(self, job: JobId) -> ScalePlan | None:
        """Return the job's active plan, which may still change the job; None if there is none."""
        ...

    def page(self, *, after: Place | None, size: int, order: Order = PLANS) -> Sequence[ScalePlan]:
        """Return at most ``size`` plans, of any job, that follow the row ``after`` in ``order``; if
        ``after`` is None, return the first plans. The default order is newest first.
        """
        ...

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        """Store the latest decision about a job (a change or a hold) instead of the earlier one."""
        ...

    def decision(self, job: JobId) -> Recommendation | None:
        """Return the latest decision about a job; None if there is none."""
        ...
