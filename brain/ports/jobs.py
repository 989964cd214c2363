"""Stores of jobs and plans."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from brain.types.job import Job, JobId
from brain.types.plan import ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.resources import PoolName


class JobStore(Protocol):
    """Jobs, unfinished and finished; none is ever forgotten."""

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
        """Read these jobs at once, for the questions by id that follow.

        With every ``read_ahead`` the answers are those that would be given without it.
        """
        ...

    def known(self, ids: Collection[str]) -> frozenset[JobId]:
        """Return the ``ids`` that are ids of jobs."""
        ...

    def put(self, job: Job) -> Job:
        """Store a changed job and return it with its version grown by one.

        Raises:
            VersionMismatch: it was changed since ``job.version`` was read.
            UnknownJob: it was never added.
        """
        ...

    def unfinished(self, pool: PoolName | None = None) -> Sequence[Job]:
        """Jobs of a pool, or of all, that are not finished, oldest first."""
        ...

    def page(self, *, after: str | None, size: int) -> Sequence[Job]:
        """Up to ``size`` jobs, newest first, of ids below ``after``."""
        ...

    def projects(self, name: str) -> Sequence[str]:
        """Projects that have a job of this name, in alphabetical order."""
        ...

    def pools(self) -> Sequence[PoolName]:
        """Pools that have an unfinished job."""
        ...


class PlanStore(Protocol):
    """Plans are totally ordered per job by generation; the generation is the fencing token.

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
            VersionMismatch: it was changed since ``plan.version`` was read.
            UnknownPlan: it was never added.
        """
        ...

    def get(self, job: JobId, generation: int) -> ScalePlan:
        """Return one plan.

        Raises:
            UnknownPlan: the job has no plan of this generation.
        """
        ...

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        """All plans of a job, highest generation first."""
        ...

    def read_ahead(self, jobs: Collection[JobId]) -> None:
        """Read plans and decisions of these jobs at once, for the questions that follow."""
        ...

    def active(self, job: JobId) -> ScalePlan | None:
        """The job's active plan."""
        ...

    def page(self, *, after: tuple[datetime, JobId, int] | None, size: int) -> Sequence[ScalePlan]:
        """Up to ``size`` plans of all jobs, newest first, before (created_at, job, generation)."""
        ...

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        """Keep ``recommendation`` as the latest decision about a job, hold or not."""
        ...

    def decision(self, job: JobId) -> Recommendation | None:
        """The latest decision about a job."""
        ...
