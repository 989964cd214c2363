"""The state of a job, as an operator that runs without a Brain keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from brain.types.job import FINISHED, Intent, JobDocument, JobId, JobState
from brain.types.resources import Resources
from brain.types.roles import Roles, RoleSize, ordered
from brain.types.world import Replica
from scaler.kubernetes.kinds import ElasticJob, GroupStatus, RoleStatus
from scaler.kubernetes.kinds.quantities import resources
from scaler.kubernetes.status.ends import over

#: State of a job by its object's phase, for jobs that had begun to train.
_TRAINED = {
    "Running": JobState.RUNNING,
    "Changing": JobState.RUNNING,
    "Degraded": JobState.DEGRADED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """A job of an operator that runs without a Brain."""

    id: JobId
    document: JobDocument
    owner: str
    #: Desired number of replicas.
    size: int
    #: Amounts that an earlier plan of a Brain set for each replica; None if the document's apply.
    resources: Resources | None = None
    #: The groups of replicas, with the sizes and amounts that an earlier plan of a Brain set.
    groups: Roles = ()
    #: Generation of the last plan of a Brain; an annotation of the job's pods has it, too.
    generation: int = 0
    epoch: int | None = None
    state: JobState = JobState.STARTING
    reason: str = "admitted"
    intent: Intent = Intent.RUN
    failures: int = 0
    exit_code: int | None = None
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    version: int = 1

    def moved(self, state: JobState, reason: str, now: datetime, **fields: Any) -> "OwnJob":
        """Return the job with a new state; the same object if state, reason and fields stay the
        same.
        """
        if (state, reason) == (self.state, self.reason) and not fields:
            return self
        ended = now if state in FINISHED else None
        fields |= {"updated_at": now, "finished_at": ended, "version": self.version + 1}
        return replace(self, state=state, reason=reason, **fields)


def begun(job: ElasticJob, document: JobDocument, owner: str, now: datetime) -> OwnJob:
    """Build the job from its object's status, which an earlier operator wrote."""
    status = job.status
    role = next((role for role in status.roles if role.name == job.scaled), RoleStatus(name=""))
    phase = _TRAINED.get(status.phase, JobState.STARTING)
    made = OwnJob(
        id=JobId(job.metadata.uid),
        document=document,
        owner=owner,
        size=role.desired or document.replicas.first,
        resources=_planned(role, document.resources),
        groups=_groups(role, document),
        generation=status.generation,
        epoch=status.world_epoch,
        failures=status.restarts,
        state=phase,
        created_at=now,
        updated_at=now,
    )
    if over(job):
        return made.moved(JobState(status.phase), status.message, status.completion_time or now)
    if status.phase == JobState.SUSPENDED:
        return made.moved(JobState.SUSPENDED, status.message, now, intent=Intent.SUSPEND)
    return made


def _groups(role: RoleStatus, document: JobDocument) -> Roles:
    """Return the groups with the sizes and amounts that a plan set."""
    known = {one.name: one for one in role.groups}
    return ordered(
        {
            name: _standing(size, known.get(name, GroupStatus(name=name)), document.resources)
            for name, size in document.allocation.roles
        }
    )


def _standing(size: RoleSize, known: GroupStatus, document: Resources) -> RoleSize:
    own = document if size.resources is None else size.resources
    desired = known.desired or size.replicas
    return replace(size, replicas=desired, resources=_planned(known, own) or own)


def _planned(role: RoleStatus | GroupStatus, document: Resources) -> Resources | None:
    """Return the amounts that a plan set for each replica; None if they equal ``document``."""
    held = replace(resources(role.resources, "status.roles.resources"), gpus=document.gpus)
    return held if role.resources and held != document else None
