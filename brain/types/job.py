"""Jobs, and the states that a job goes through.

Queued -> Starting -> Running <-> (Changing | Degraded | Suspended)
       -> Succeeded | Failed | Cancelled
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from brain.errors import IllegalTransition
from brain.types.allocation import MOST_REPLICAS, Allocation
from brain.types.document import (
    ApprovalPolicy,
    BatchBounds,
    Checkpoint,
    JobDocument,
    OptimizeMode,
    Parallelism,
    PolicyMode,
    Restarts,
    Secret,
    check_name,
)
from brain.types.limits import Budget, ResourceLimits
from brain.types.resources import PoolName, Resources

#: Names that this module exports: a job, and the words of its document.
__all__ = [
    "FINISHED",
    "JOB_MOVES",
    "MOST_REPLICAS",
    "ApprovalPolicy",
    "BatchBounds",
    "Budget",
    "Checkpoint",
    "Intent",
    "Job",
    "JobCopy",
    "JobDocument",
    "JobId",
    "JobState",
    "ObjectCondition",
    "OptimizeMode",
    "Parallelism",
    "PolicyMode",
    "ResourceLimits",
    "Restarts",
    "Secret",
    "check_name",
]

#: UUIDv7 as text; on Kubernetes the object's uid. Never reused.
JobId = NewType("JobId", str)


class JobState(StrEnum):
    """The state of a job; ``JOB_MOVES`` is the table of legal moves."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    CHANGING = "Changing"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


FINISHED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
_LIVE = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED, JobState.SUSPENDED})

JOB_MOVES: Mapping[JobState, frozenset[JobState]] = {
    # A queued or starting job may be suspended before it ever ran; after a reboot it starts again.
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.SUSPENDED}) | FINISHED,
    JobState.STARTING: frozenset({JobState.QUEUED}) | _LIVE | FINISHED,
    JobState.RUNNING: _LIVE - {JobState.RUNNING} | FINISHED,
    JobState.CHANGING: _LIVE - {JobState.CHANGING} | FINISHED,
    JobState.DEGRADED: _LIVE - {JobState.DEGRADED} | FINISHED,
    # A report of a world may follow the stop, from a coordinator that did not know of it yet.
    JobState.SUSPENDED: frozenset({JobState.QUEUED, JobState.STARTING})
    | {JobState.RUNNING, JobState.DEGRADED}
    | FINISHED,
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class Intent(StrEnum):
    """The owner's wish for a job: to run, to be suspended, or to be cancelled."""

    RUN = "run"
    SUSPEND = "suspend"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCopy:
    """A job that is an object of a cluster, as its scaler reports it to Brain."""

    #: Document as it would be submitted, camelCase; without environment, which stays in the
    #: cluster.
    document: Mapping[str, Any]
    pool: PoolName
    #: Creator of the object, as far as known.
    owner: str
    #: Replicas that each group or role of a job that has begun should have, and those outside them
    #: as ``worker``. Only a Brain that does not know the job uses them.
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCondition:
    """One condition of a job's object in a cluster, as its scaler reports it to Brain."""

    type: str
    #: True if the condition holds; None: unknown now.
    status: bool | None
    #: One word in CamelCase.
    reason: str
    #: A sentence with the fact and its remedy; may be empty.
    message: str = ""
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run with an owner, bounds and a policy mode."""

    id: JobId
    #: Document as submitted; values of ``environment`` are blank, because the secret store has
    #: them.
    document: JobDocument
    pool: PoolName
    owner: str
    #: True if the owner is not an administrator; on a single machine the job is then confined.
    confined: bool = False
    state: JobState = JobState.QUEUED
    #: The reason for the state, in one sentence.
    reason: str = "submitted"
    intent: Intent = Intent.RUN
    #: The reason why Brain may only advise on this job; None if it may act.
    advise_only: str | None = None
    #: Amounts that each replica reserves since a plan changed them; None: those of the document.
    amounts: Resources | None = None
    #: Worlds lost to failures so far.
    failures: int = 0
    #: Exit code of the workers, once the job has finished.
    exit_code: int | None = None
    #: Conditions of the job's object in its cluster; empty if it has none.
    conditions: tuple[ObjectCondition, ...] = ()
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    #: Version; grows with every stored change.
    version: int = 1

    @property
    def finished(self) -> bool:
        """Return True if the job has ended and will not change any more."""
        return self.state in FINISHED

    @property
    def resources(self) -> Resources:
        """Return the amounts of each replica in the present target; at generation 0, the amounts in
        the document.
        """
        return self.document.resources if self.amounts is None else self.amounts

    def sized(self, replicas: int) -> Allocation:
        return replace(self.document.sized(replicas), resources=self.resources)

    def moved(self, to: JobState, reason: str, now: datetime) -> "Job":
        """Return the job in state ``to``; the same state with a new reason is always legal.

        Raises:
            IllegalTransition: ``JOB_MOVES`` has no such move.
        """
        if to is not self.state and to not in JOB_MOVES[self.state]:
            raise IllegalTransition(
                f"job {self.document.name} is {self.state}; it cannot become {to}"
            )
        return replace(
            self,
            state=to,
            reason=reason,
            updated_at=now,
            finished_at=now if to in FINISHED else None,
        )
