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
    """Something to know beside a state: ``Straggler``, ``Hung``, ``LeftNode`` …; of a cluster's
    object, the reason of what is not as it should be: ``NeverFits`` …"""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """How far a job's checkpoints in memory are ahead of storage."""

    #: Seconds since the oldest save that is not on storage; 0: all are.
    ahead_seconds: float
    #: Whether another host has the newest one; None: it is not to have it.
    buddy: bool | None
    #: Why checkpoints go to storage as always although memory was asked for; empty: they do not.
    off: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job with its observations, as lists and the head of its page show it."""

    id: JobId
    name: str
    project: str
    owner: str
    pool: PoolName
    state: JobState
    reason: str
    conditions: tuple[Condition, ...]
    intent: Intent
    #: Effective approval mode: the job's own, else the service's.
    mode: PolicyMode
    optimize_mode: OptimizeMode
    advise_only: str | None
    failures: int
    exit_code: int | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    #: For ``If-Match``.
    version: int
    #: Smallest, largest and stepwise size.
    replicas_min: int
    replicas_max: int
    unit: int
    #: Observed in the latest world, and wished for.
    replicas: int
    replicas_wished: int
    processes_per_replica: int
    #: Per replica.
    resources: Resources
    epoch: int | None
    generation: int
    #: ``examples/s``, or ``steps/s`` where the probe saw no batch size.
    unit_of_throughput: str
    #: Of the present world, measured as decisions measure it: over the last minute, over a quarter
    #: of an hour where that has too few steps. None when nothing is known.
    throughput: Prediction | None
    #: What the standing plan promised at this size, where one did.
    promised: Prediction | None
    data_wait_share: float | None
    cpu_share: float | None
    memory_share: float | None
    gpu_share: float | None
    #: Optimizer steps of the script so far, where known.
    step: int | None
    #: 0 to 1, of declared steps.
    progress: float | None
    ends_at: datetime | None
    #: Age of the newest sample; None before the first.
    telemetry_age_seconds: float | None
    losses: TelemetryLosses
    #: None where no checkpoint is kept in memory.
    memory: MemoryView | None
    #: Throughput of the last hours, oldest first; None where nothing was measured.
    sparkline: tuple[float | None, ...]
    #: Newest plan, active or not.
    plan: ScalePlan | None
    #: What came of that plan; ``not yet`` where there is none, ``rolled back`` where it is the way
    #: back from a missed promise.
    verdict: PlanVerdict
    #: Latest decision, hold or not.
    decision: Recommendation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRequest:
    """The jobs of ``POST jobs:cancel`` and similar requests: named jobs, or those that match a
    filter.
    """

    #: Names or ids.
    jobs: tuple[str, ...] = ()
    #: As of lists of jobs; of those that did not end.
    filter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The outcome for one of several jobs: the job as it is now, or the reason why it was not
    changed.
    """

    #: Name or id by which it was asked for.
    asked: str
    job: JobView | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """One job in full."""

    job: JobView
    #: As submitted, camelCase; the environment shows names only.
    document: Mapping[str, Any]
    world: World | None
    worlds: tuple[World, ...]
    replicas: tuple[Replica, ...]
    #: All that a cluster says of its object; empty where it has none.
    object_conditions: tuple[ObjectCondition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredJob:
    """The desired state of one job, for a scaler."""

    job: JobId
    name: str
    project: str
    state: JobState
    wish: DesiredWorld
    #: As submitted, camelCase, without values of the environment.
    document: Mapping[str, Any]
    #: Whose job it is, if that is no administrator: it is kept apart from the service, or does not
    #: run. None, too, where a rehearsal of the service failed.
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
    #: What came of its promise, and the one word for it wherever the plan is shown or counted.
    verdict: PlanVerdict
    #: Why it cannot be approved now (frozen, job ended, not active); None where it can.
    blocked: str | None = None
    #: True where the job's mode is shadow: it is recorded and scored, never applied.
    shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The model's answer for one size."""

    replicas: int
    prediction: Prediction | None
    #: Why there is none.
    undetermined: str | None = None
    #: What was measured at this size in this job's life.
    measured: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The model's curve over the sizes a job may have."""

    current: int
    recommended: int
    sizes: tuple[WhatIf, ...]
    #: What the model rests on, in one sentence.
    basis: str
