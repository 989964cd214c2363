"""Jobs: the life of what a document starts.

Queued -> Starting -> Running <-> (Changing | Degraded | Suspended)
       -> Succeeded | Failed | Cancelled
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from brain.errors import IllegalTransition
from brain.types.allocation import Allocation
from brain.types.document import (
    MOST_REPLICAS,
    ApprovalPolicy,
    BatchBounds,
    Budget,
    Checkpoint,
    JobDocument,
    OptimizeMode,
    Parallelism,
    PolicyMode,
    Restarts,
    Secret,
    check_name,
)
from brain.types.resources import PoolName, Resources

#: What this module means to be found here: a job and the words of its document.
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
    "Restarts",
    "Secret",
    "check_name",
]

#: UUIDv7 as text; on Kubernetes the object's uid. Never reused.
JobId = NewType("JobId", str)


class JobState(StrEnum):
    """Where a job stands; the table of legal moves is ``JOB_MOVES``."""

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
    # A queued or starting job may be suspended before it ever ran; a reboot starts it again.
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.SUSPENDED}) | FINISHED,
    JobState.STARTING: frozenset({JobState.QUEUED}) | _LIVE | FINISHED,
    JobState.RUNNING: _LIVE - {JobState.RUNNING} | FINISHED,
    JobState.CHANGING: _LIVE - {JobState.CHANGING} | FINISHED,
    JobState.DEGRADED: _LIVE - {JobState.DEGRADED} | FINISHED,
    # A world may be told of after the stop: its coordinator had not heard.
    JobState.SUSPENDED: frozenset({JobState.QUEUED, JobState.STARTING})
    | {JobState.RUNNING, JobState.DEGRADED}
    | FINISHED,
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class Intent(StrEnum):
    """What its owner wants of a job, apart from its size."""

    RUN = "run"
    SUSPEND = "suspend"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCopy:
    """A job whose truth is an object of a cluster, as its scaler brings it to Brain."""

    #: As it would be submitted, camelCase; without environment, which stays in the cluster.
    document: Mapping[str, Any]
    pool: PoolName
    #: Who made the object, as far as that is known.
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCondition:
    """One thing that a cluster says of a job's object, as its scaler brings it to Brain."""

    type: str
    #: Whether it holds; None: that cannot be known now.
    status: bool | None
    #: One word in CamelCase.
    reason: str
    #: A sentence that says what and how to mend it; may be empty.
    message: str = ""
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run with an owner, bounds and a policy mode."""

    id: JobId
    #: As submitted; values of ``environment`` are blanked, the secret store has them.
    document: JobDocument
    pool: PoolName
    owner: str
    #: Its owner is no administrator: on one machine it is kept apart from the service.
    confined: bool = False
    state: JobState = JobState.QUEUED
    #: Why it is in that state, in one sentence.
    reason: str = "submitted"
    intent: Intent = Intent.RUN
    #: Why Brain may only advise on this job; None where it may act.
    advise_only: str | None = None
    #: What each replica reserves since a plan changed it; None: as the document says.
    amounts: Resources | None = None
    #: Worlds lost to failures so far.
    failures: int = 0
    #: Of the workers, once finished.
    exit_code: int | None = None
    #: What its cluster says of its object; empty where it has none.
    conditions: tuple[ObjectCondition, ...] = ()
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    #: Grows with every stored change.
    version: int = 1

    @property
    def finished(self) -> bool:
        """True if nothing will happen to this job any more."""
        return self.state in FINISHED

    @property
    def resources(self) -> Resources:
        """What each replica reserves by the target that stands; of generation 0, the document."""
        return self.document.resources if self.amounts is None else self.amounts

    def sized(self, replicas: int) -> Allocation:
        """This job's allocation at ``replicas``."""
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
