"""What the API answers with: the shapes that UI, CLI and SDK share.

Words, like ``brain.types``: standard library only, so that the client can parse answers beside
a job. ``brain.api`` builds these from the stores; the OpenAPI document describes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from brain.types.estimate import Question
from brain.types.explanation import Explanation
from brain.types.job import Intent, JobId, JobState, OptimizeMode, PolicyMode
from brain.types.plan import ScalePlan
from brain.types.recommendation import Prediction, Recommendation
from brain.types.resources import NodeName, PoolName, Resources
from brain.types.sharing import PoolRound, StoredPolicy
from brain.types.telemetry import Losses
from brain.types.world import Replica, World, WorldWish

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list; ``next_page_token`` is None on the last one."""

    items: tuple[T, ...]
    next_page_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something to know beside a state: ``Straggler``, ``Holding``, ``StaleTelemetry`` …"""

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
    """A job with what was observed of it, as lists and the head of its page show it."""

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
    losses: Losses
    #: None where no checkpoint is kept in memory.
    memory: MemoryView | None
    #: Throughput of the last hours, oldest first; None where nothing was measured.
    sparkline: tuple[float | None, ...]
    #: Newest plan, active or not.
    plan: ScalePlan | None
    #: Latest decision, hold or not.
    decision: Recommendation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """One job in full."""

    job: JobView
    #: As submitted, camelCase; the environment shows names only.
    document: Mapping[str, Any]
    world: World | None
    worlds: tuple[World, ...]
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWish:
    """What a scaler needs to know of one job."""

    job: JobId
    name: str
    project: str
    state: JobState
    wish: WorldWish
    #: As submitted, camelCase, without values of the environment.
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWishes:
    """All unfinished jobs of a pool; the ETag is ``version``."""

    v: int = 1
    pool: PoolName
    version: str
    jobs: tuple[JobWish, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan with the name of its job, as the inbox lists it."""

    job_name: str
    plan: ScalePlan
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A promise of throughput, and what was measured afterwards."""

    job: JobId
    job_name: str
    generation: int
    #: The size that was promised about.
    replicas: int
    promised: Prediction
    measured: Prediction
    #: Whether what was measured lies in the 90 % band.
    inside: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """How promises came out: do 90 % bands hold nine in ten?"""

    count: int
    #: Share of measurements inside of their bands, and the 90 % interval of that share.
    coverage: float
    coverage_low: float
    coverage_high: float
    #: Mean of log measured over promised: above 0, more was achieved than promised.
    bias: float
    #: Mean absolute percentage error; 0.1 is 10 %.
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the fit of one kind of accelerator rests on."""

    accelerator: str
    observations: int
    configurations: int
    #: Directions that the data tell apart, of ten.
    rank: int
    #: Root mean square error of log step time at rows left out; None where fewer than two are.
    held_out_error: float | None
    bounds_hit: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTrial:
    """Micro-batches that would tell about a size, at no restart."""

    #: The size that is doubtful.
    replicas: int
    local_batch: float
    accumulation: int
    #: Share of the doubt that goes.
    learned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What sampled gradients say of a job, or why they say nothing."""

    #: Gradient noise scale in examples, with its 90 % interval; None where it is not measured.
    examples: float | None = None
    low: float | None = None
    high: float | None = None
    #: Why it is not measured; None where it is.
    unavailable: str | None = None
    #: Global batch in examples that others are judged against, and that of the present world.
    first_batch: float | None = None
    batch: float | None = None
    #: What an example of the present batch is worth, in examples of the first one; 1 where the
    #: noise is not measured, and the global batch then stays.
    efficiency: float = 1.0
    #: Share of a step that the slowest rank waits for the exchange of gradients; None where it was
    #: not measured.
    exchange_wait_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """The batch of most goodput at the present size, within what the owner allows."""

    #: Examples per optimizer step over all workers, and how each worker would make them.
    examples: float
    local_batch: float
    accumulation: int
    #: What an example of it brings, in examples of the first batch.
    efficiency: float
    #: Change of goodput against the present batch; 0.2 is 20 % more.
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """What is known of how a job scales, and how far to trust it."""

    #: ``examples/s``, or ``steps/s`` where no batch was seen.
    unit: str
    #: What the model rests on, in one sentence; where there is none, what is missing.
    basis: str
    fitted: bool
    batching: str | None = None
    #: Worlds that were used, and why others were not.
    points: int = 0
    left_out: tuple[str, ...] = ()
    fits: tuple[Fit, ...] = ()
    #: Factor by which bands were widened because earlier ones did not hold.
    widening: float = 1.0
    #: Whether the job lately was other than predicted, so that nothing larger is.
    surprised: bool = False
    noise: Noise
    #: What the next change is reckoned to cost, and on how many of the job's own that rests.
    restart_seconds: float
    restarts_measured: int
    #: Training time to come, and why that long.
    remaining_seconds: float
    remaining_basis: str
    trials: tuple[FreeTrial, ...] = ()
    #: Where the batch may be chosen, and the noise of gradients is measured: the best one here.
    best_batch: BestBatch | None = None
    calibration: Calibrated | None = None
    #: Newest first.
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsView:
    """Promised against measured, over all jobs."""

    calibration: Calibrated | None
    #: Newest first.
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """A bucket of a series."""

    at: datetime
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric over time."""

    metric: str
    unit: str
    since: datetime
    until: datetime
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker's step time against its peers."""

    rank: int
    replica: int
    local_rank: int
    node: NodeName
    step_seconds: float
    #: Against the median of all workers; 0.07 is 7 % slower.
    deviation: float
    straggler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node and what is reserved on it."""

    name: NodeName
    pool: PoolName
    accelerator: str
    capacity: Resources
    reserved: Resources
    slots: int | None
    seen_at: datetime
    #: False once it has been silent for too long.
    ready: bool
    schedulable: bool
    #: Names of the jobs with replicas on it.
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """What a job is that does not run yet, and what is asked: ``POST jobs:estimate``."""

    #: As it would be submitted, camelCase.
    document: Mapping[str, Any]
    question: Question = Question()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool: what it has, how it is divided, and what its latest round came to."""

    name: PoolName
    nodes: int
    capacity: Resources
    #: Of live replicas.
    reserved: Resources
    #: Unfinished jobs, and those of them that are decided about together.
    jobs: int
    sharing: int
    #: None where projects share it as they come.
    policy: StoredPolicy | None
    #: None before the first round, and where no job shares it.
    round: PoolRound | None
    #: Share of the utility that a better division might add; None without a round.
    gap: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRequest:
    """A person's or program's plan: ``POST jobs/{job}/plans``."""

    replicas: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Body of ``:approve :reject :rollback``; ``version`` is that of the plan that was seen."""

    version: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What would have happened."""

    would: str
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A minted token; the only time its secret is shown."""

    id: str
    name: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """A token without its secret."""

    id: str
    name: str
    role: str
    job: JobId | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    #: Path of the field at fault, where one is.
    field: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of the service: ``GET /api/v1/health``, for the doctor and the UI's footer."""

    version: str
    started_at: datetime
    database: str
    database_bytes: int
    pools: tuple[PoolName, ...]
    policy_mode: PolicyMode
    #: Everything that is degraded, one sentence each; empty when nothing is.
    degraded: tuple[str, ...]
    #: Largest clock offset of a sender seen lately, seconds.
    skew_seconds: float
    who: str
    role: str
