"""The API's shapes of jobs and their plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from brain.types.job import (
    Intent,
    JobId,
    JobState,
    ObjectCondition,
    OptimizeMode,
    PolicyMode,
)
from brain.types.plan import PlanVerdict, ScalePlan
from brain.types.recommendation import Prediction, Recommendation
from brain.types.resources import PoolName, Resources
from brain.types.telemetry import TelemetryLosses
from brain.types.world import DesiredWorld, Replica, World
from brain.views.exchange import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A fact about a job in addition to its state, such as ``Straggler``, ``Hung`` or ``LeftNode``.
    A condition of a job in a cluster may also report a problem of the job's object, such as
    ``NeverFits``.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """The time and bytes by which a job's checkpoints in memory are ahead of storage."""

    #: Seconds since the oldest save that is not on storage; 0: all saves are.
    ahead_seconds: float
    #: True if another host has the newest checkpoint; None: no other host is meant to have it.
    buddy: bool | None
    #: The reason why checkpoints go to storage directly although the job asks for memory; empty:
    #: they do not.
    off: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group or role of a job; ``worker`` stands for the workers that belong to no other group."""

    name: str
    #: Replicas in the latest world, and in the desired world.
    replicas: int
    replicas_wished: int
    processes_per_replica: int
    #: Resources of each replica.
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job with its observations, as shown in lists and at the top of the job's page."""

    id: JobId
    name: str
    project: str
    owner: str
    pool: PoolName
    state: JobState
    reason: str
    conditions: tuple[Condition, ...]
    intent: Intent
    #: Approval mode in force: the job's own, else the service's.
    mode: PolicyMode
    optimize_mode: OptimizeMode
    advise_only: str | None
    failures: int
    exit_code: int | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    #: Version of the job, for ``If-Match``.
    version: int
    #: Bounds of the size, and its unit.
    replicas_min: int
    replicas_max: int
    unit: int
    #: Replicas in the latest world, and in the desired world.
    replicas: int
    replicas_wished: int
    processes_per_replica: int
    #: Resources of each replica.
    resources: Resources
    #: Groups and roles of replicas that differ; empty if all replicas are alike.
    groups: tuple[GroupView, ...] = ()
    epoch: int | None
    generation: int
    #: ``examples/s``, or ``steps/s`` if the probe saw no batch size.
    unit_of_throughput: str
    #: Throughput of the present world, measured as for decisions: over the last minute, or over a
    #: longer time if the minute has too few steps. None if unknown.
    throughput: Prediction | None
    #: Throughput that the standing plan promised at this size, if any.
    promised: Prediction | None
    data_wait_share: float | None
    cpu_share: float | None
    memory_share: float | None
    gpu_share: float | None
    #: Optimizer steps of the script so far, if known.
    step: int | None
    #: Share of the declared steps that is done, 0 to 1.
    progress: float | None
    ends_at: datetime | None
    #: Age of the newest sample; None before the first one.
    telemetry_age_seconds: float | None
    #: Age from which telemetry is stale: ``stale_seconds``, or more if the job's steps are slow.
    stale_after_seconds: float = 60.0
    losses: TelemetryLosses
    #: State of checkpoints in memory; None if the job keeps none there.
    memory: MemoryView | None
    #: Throughput of the last hours, oldest first; None for intervals without measurements.
    sparkline: tuple[float | None, ...]
    #: Newest plan, active or not.
    plan: ScalePlan | None
    #: Outcome of that plan's promise; ``not yet`` if there is no plan, ``rolled back`` if the plan
    #: undoes one that missed its promise.
    verdict: PlanVerdict
    #: Latest decision, a change or a hold.
    decision: Recommendation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRequest:
    """The jobs of ``POST jobs:cancel`` and similar requests: named jobs, or those that match a
    filter.
    """

    #: Names or ids.
    jobs: tuple[str, ...] = ()
    #: Filter as in lists of jobs; it selects unfinished jobs only.
    filter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The outcome for one of several jobs: the changed job, or the reason why it was not
    changed.
    """

    #: Name or id in the request.
    asked: str
    job: JobView | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    job: JobView
    #: Document as submitted, camelCase; of the environment it shows only names.
    document: Mapping[str, Any]
    world: World | None
    worlds: tuple[World, ...]
    replicas: tuple[Replica, ...]
    #: All conditions of the job's object in a cluster; empty if it has no object.
    object_conditions: tuple[ObjectCondition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredJob:
    """The desired state of one job, for a scaler."""

    job: JobId
    name: str
    project: str
    state: JobState
    wish: DesiredWorld
    #: Document as submitted, camelCase, without values of the environment.
    document: Mapping[str, Any]
    #: Owner of a job that must be confined, because the owner is not an administrator. None if the
    #: owner is one, or if this machine cannot confine jobs.
    member: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredPool:
    """All unfinished jobs of a pool; the ETag is ``version``."""

    v: int = 1
    pool: PoolName
    version: str
    jobs: tuple[DesiredJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan with the name of its job, as the inbox lists it."""

    job_name: str
    plan: ScalePlan
    #: Outcome of the plan's promise, as shown and counted everywhere.
    verdict: PlanVerdict
    #: The reason why the plan cannot be approved now (frozen, job ended, not active); None if it
    #: can.
    blocked: str | None = None
    #: True if the job's mode is shadow: the plan is recorded and scored, never applied.
    shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The model's prediction for one size."""

    replicas: int
    prediction: Prediction | None
    #: The reason why there is no prediction.
    undetermined: str | None = None
    #: Last throughput measured at this size in the job's life.
    measured: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The model's predictions for all sizes that a job may have."""

    current: int
    recommended: int
    sizes: tuple[WhatIf, ...]
    #: The measurements that the model rests on, in one sentence.
    basis: str
