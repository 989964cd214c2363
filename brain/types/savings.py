"""What Brain's plans saved, as measured."""

from dataclasses import dataclass
from datetime import datetime

from brain.types.estimate import Band
from brain.types.job import JobId
from brain.types.plan import PlanVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSaving:
    """What one applied plan of Brain's saved within the time asked about."""

    job: JobId
    job_name: str
    generation: int
    #: That a person asked for, and that the plan led to.
    replicas_asked: int
    replicas: int
    #: ``not yet``: only its cost is counted.
    verdict: PlanVerdict
    #: Accelerator-hours, what the change cost taken off; below 0 where more were spent.
    saved_hours: float
    #: Hours by which the work was done sooner.
    sooner_hours: float
    #: Time without steps, and steps made again.
    cost_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoursBucket:
    """Accelerators in use on average in a stretch of time."""

    at: datetime
    working: float
    #: Held by jobs without stepping, or waiting for data.
    idle: float
    #: Not needed, because of plans that were judged.
    saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsOf:
    """What plans saved of accelerators, or of processors of jobs that have none."""

    #: ``GPU-h`` or ``core-h``.
    unit: str
    #: What the nodes have.
    capacity: float
    #: Held by jobs, and of that at work.
    allocated_hours: float
    working_hours: float
    #: Against the sizes that people asked for, as measured; changes and rollbacks taken off.
    saved_hours: Band
    sooner_hours: Band
    #: At the installation's prices; None where there is none.
    saved_money: float | None
    #: What advice that nobody took would have saved, by its promises.
    proposed_hours: float
    #: The largest first, a hundred at most.
    plans: tuple[PlanSaving, ...]
    #: Advice that was not taken, by what was measured later.
    advice_kept: int
    advice_fell_short: int
    advice_inconclusive: int
    buckets: tuple[HoursBucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What Brain's plans saved: ``GET savings``."""

    since: datetime
    until: datetime
    currency: str
    #: Accelerators first; empty where nothing ran.
    of: tuple[SavingsOf, ...]
