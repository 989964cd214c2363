"""Measurements over time, and the places where jobs run."""

from dataclasses import dataclass
from datetime import datetime

from brain.types.job import JobId
from brain.types.resources import NodeName, PoolName, Resources
from brain.types.sharing import PoolRound, StoredPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    at: datetime
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of a job over time."""

    metric: str
    unit: str
    since: datetime
    until: datetime
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker's step time, and the times of the other workers for comparison."""

    rank: int
    replica: int
    local_rank: int
    node: NodeName
    step_seconds: float
    #: Excess over the median step time of all workers; 0.07 is 7 % slower.
    deviation: float
    straggler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft:
    """A job that left a node because the node was sick or slow, and avoids the node for a while."""

    job: JobId
    job_name: str
    until: datetime
    #: The reason, in one sentence.
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node and the resources reserved on it."""

    name: NodeName
    pool: PoolName
    accelerator: str
    capacity: Resources
    reserved: Resources
    slots: int | None
    seen_at: datetime
    #: False if the scaler has not reported the node for too long.
    ready: bool
    schedulable: bool
    #: Names of the jobs with replicas on the node.
    jobs: tuple[str, ...]
    #: Unfinished jobs that avoid the node.
    left: tuple[NodeLeft, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool: its nodes, its policy, and the results of its latest round."""

    name: PoolName
    nodes: int
    capacity: Resources
    #: Resources that live replicas reserve.
    reserved: Resources
    #: Number of unfinished jobs, and of those that share the pool.
    jobs: int
    sharing: int
    #: Policy of the pool; None if projects share it without rules.
    policy: StoredPolicy | None
    #: Latest round; None before the first one, or if no job shares the pool.
    round: PoolRound | None
    #: Upper bound on the share of the utility that a better division could add; None without a
    #: round.
    gap: float | None
