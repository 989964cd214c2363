"""Stores of jobs and plans."""

from collections.abc import Collection, Sequence
from typing import Protocol

from brain.types.job import Job, JobId
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
        """Return the job of this id, or the unfinished (else newest) job of this name.

        Raises:
            UnknownJob: there is neither.
        """
        ...

    def read_ahead(self, ids: Collection[str]) -> None:
        """Read all these jobs with one statement, so that later queries by their ids need none.

        Reading ahead never changes the answer of a query.
        """
        ...

    def known(self, ids: Collection[str]) -> frozenset[JobId]: ...

    def put(self, job: Job) -> Job:
        """Store a changed job and return it with its version grown by one.

        Raises:
            VersionMismatch: the job was changed since ``job.version`` was read.
            UnknownJob: the job was never added.
        """
        ...

    def unfinished(self, pool: PoolName | None = None) -> Sequence[Job]:
        """Return unfinished jobs of a pool, or of all pools, oldest first."""
        ...

    def page(self, *, after: Place | None, size: int, order: Order = JOBS) -> Sequence[Job]:
        """Return at most ``size`` jobs that follow the row ``after`` in the order, which is newest
        first unless given; without ``after``, the first ones.
        """
        ...

    def fitted(self, kind: str, *, among: int) -> Sequence[Job]:
        """Return, newest first, the jobs with a stored fit of ``kind`` among the newest ``among``
        jobs.
        """
        ...

    def projects(self, name: str) -> Sequence[str]:
        """Return the projects that have a job of this name, in alphabetical order."""
        ...

    def pools(self) -> Sequence[PoolName]:
        """Return the pools that have an unfinished job."""
        ...


class PlanStore(Protocol):
    """Plans, totally ordered per job by generation; the generation is the fencing token.

    Two Brains may race: one of them gets ``StalePlan``. At most one plan of a job is active.
    """

    def add(self, plan: ScalePlan) -> None:
        """Store a new plan.

        Raises:
            StalePlan: a plan of this generation or a later one is already stored.
            Conflict: another plan of the job is active; supersede it first.
        """
        ...

    def put(self, plan: ScalePlan) -> ScalePlan:
        """Store a changed plan and return it with its version grown by one.

        Raises:
            VersionMismatch: the plan was changed since ``plan.version`` was read.
            UnknownPlan: the plan was never added.
        """
        ...

    def get(self, job: JobId, generation: int) -> ScalePlan:
        """Return the job's plan with this generation.

        Raises:
            UnknownPlan: the job has no plan of this generation.
        """
        ...

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        """Return all plans of a job, highest generation first."""
        ...

    def read_ahead(self, jobs: Collection[JobId]) -> None:
        """Read the plans and decisions of all these jobs with few statements; later queries about
        these jobs in the same transaction then need no statement of their own.
        """
        ...

    def active(self, job: JobId) -> ScalePlan | None:
        """Return the plan that may still change the job (at most one is active); None if there is
        none.
        """
        ...

    def page(self, *, after: Place | None, size: int, order: Order = PLANS) -> Sequence[ScalePlan]:
        """Return up to ``size`` plans of all jobs behind the place ``after``, newest first by
        default.
        """
        ...

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        """Store the latest decision about a job: a change or a hold. It replaces the earlier
        decision.
        """
        ...

    def decision(self, job: JobId) -> Recommendation | None:
        """Return the latest decision about a job; None if there is none."""
        ...
