"""Accelerator-hours that Brain's plans saved, computed from measurements."""

from dataclasses import dataclass
from datetime import datetime

from brain.types.estimate import Band
from brain.types.job import JobId
from brain.types.plan import PlanVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSaving:
    """The saving of one of Brain's applied plans within the requested interval."""

    job: JobId
    job_name: str
    generation: int
    #: Size that a person asked for, and size that the plan led to.
    replicas_asked: int
    replicas: int
    #: Verdict; for ``not yet`` only the plan's cost is counted.
    verdict: PlanVerdict
    #: Accelerator-hours, less the cost of the change; below 0 if the plan spent more.
    saved_hours: float
    #: Hours by which the work ended sooner.
    sooner_hours: float
    #: Seconds without steps, and seconds of repeated steps.
    cost_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoursBucket:
    """The mean number of accelerators in use during one interval."""

    at: datetime
    working: float
    #: Accelerators of jobs that did not step, or waited for data.
    idle: float
    #: Accelerators not needed, because of plans with a verdict.
    saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsOf:
    """Savings of accelerators, or of processors for jobs without accelerators."""

    #: ``GPU-h`` or ``core-h``.
    unit: str
    #: Capacity of the nodes.
    capacity: float
    #: Hours held by jobs, and hours of those at work.
    allocated_hours: float
    working_hours: float
    #: Measured saving against the sizes that people asked for, less changes and rollbacks.
    saved_hours: Band
    sooner_hours: Band
    #: Money at the installation's prices; None without prices.
    saved_money: float | None
    #: Saving that advice which was not taken had promised.
    proposed_hours: float
    #: Plans, the largest saving first, a hundred at most.
    plans: tuple[PlanSaving, ...]
    #: Scored savings of advice that was not taken, by later measurements.
    advice_kept: int
    advice_fell_short: int
    advice_inconclusive: int
    buckets: tuple[HoursBucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """The answer of ``GET savings``: measured savings by Brain's plans."""

    since: datetime
    until: datetime
    currency: str
    #: Savings, accelerators first; empty if nothing ran.
    of: tuple[SavingsOf, ...]
