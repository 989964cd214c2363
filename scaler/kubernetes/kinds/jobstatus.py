"""The observed state of an ElasticJob, which the operator writes."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from scaler.kubernetes.kinds.fields import (
    Amounts,
    Count,
    Fields,
    GroupName,
    Int64,
    Name,
    Opaque,
)


class ElasticJobCondition(Fields, frozen=True, kw_only=True):
    """A condition: true, false or unknown."""

    #: Type of the condition.
    type: Name
    #: `True`, `False` or `Unknown`.
    status: Name
    #: One word.
    reason: Name = ""
    #: One sentence: the finding, and its remedy.
    message: str = ""
    #: Generation of the object that the condition describes.
    observed_generation: Int64 = 0
    #: When the status last changed.
    last_transition_time: datetime | None = None


class GroupStatus(Fields, frozen=True, kw_only=True):
    """The numbers of replicas of one group."""

    #: The group; `worker` has the replicas outside the other groups.
    name: Name
    #: Replicas of the present target.
    desired: int = 0
    #: Pods that exist.
    observed: int = 0
    #: Pods that are ready.
    ready: int = 0
    #: Pods without a node.
    pending: int = 0
    #: Pods that failed since the job began.
    failed: int = 0
    #: Amounts that each replica should reserve.
    resources: Amounts = msgspec.field(default_factory=dict)


class RoleStatus(Fields, frozen=True, kw_only=True):
    """The numbers of replicas of one role."""

    #: The role.
    name: Name
    #: Replicas of the present target.
    desired: int = 0
    #: Pods that exist.
    observed: int = 0
    #: Pods that are ready.
    ready: int = 0
    #: Pods without a node.
    pending: int = 0
    #: Pods that failed since the job began.
    failed: int = 0
    #: Pods that run outside the world, kept warm.
    spare: int = 0
    #: Amounts that each replica should reserve (of a replica outside the groups, if there are
    #: groups).
    resources: Amounts = msgspec.field(default_factory=dict)
    #: The groups of the role, if its replicas differ.
    groups: tuple[GroupStatus, ...] = ()


class Request(Fields, frozen=True, kw_only=True):
    """The answer to an edit of `replicas` or `kubectl scale`."""

    #: Generation of the object with the edit.
    observed_generation: Int64 = 0
    #: Requested replicas; if the role has groups, the number in Brain's last answer.
    replicas: int = 0
    #: Replicas of each group in Brain's last answer.
    groups: Mapping[GroupName, Count] = {}
    #: `accepted`, `clamped`, `refused` or `waiting`.
    outcome: str = ""
    #: Replicas of the plan that answers the request.
    granted: int | None = None
    #: Generation of the plan that answers the request.
    generation: Int64 | None = None
    #: The reason for the outcome, in one sentence.
    message: str = ""


class ElasticJobStatus(Fields, frozen=True, kw_only=True):
    """The observed state."""

    #: Generation of the spec that the status describes.
    observed_generation: Int64 = 0
    #: Queued, Starting, Running, Changing, Degraded, Suspended, Succeeded, Failed or Cancelled.
    phase: str = ""
    #: The reason for the phase, in one sentence.
    message: str = ""
    #: Facts about the job, one of each type.
    conditions: tuple[ElasticJobCondition, ...] = ()
    #: Worker pods that exist; for the scale subresource.
    replicas: int = 0
    #: Worker pods that are ready.
    ready_replicas: int = 0
    #: Selector of the worker pods; for the scale subresource.
    selector: str = ""
    #: The numbers of pods of each role.
    roles: tuple[RoleStatus, ...] = ()
    #: Generation of the plan that set the present size; 0 is the submitted size.
    generation: Int64 = 0
    #: Name of the active ScalePlan.
    scale_plan: str = ""
    #: The answer to the last request.
    request: Request | None = None
    #: Epoch of the present world.
    world_epoch: Int64 | None = None
    #: Worlds lost to failures.
    restarts: int = 0
    #: When the job began to train; a suspension clears this time.
    start_time: datetime | None = None
    #: When the job ended.
    completion_time: datetime | None = None
    #: Status of DLRover's own controller, if it runs; this operator does not change it.
    status: Opaque | None = None
