"""Reports on a job's resources: reservation, use, advice, and the cost of the difference."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from brain.types.advice import Notice
from brain.types.job import JobId
from brain.types.resources import NodeName


class Grade(StrEnum):
    """The grade of a reservation compared with the use: wasteful, good, tight or short."""

    GOOD = "good"
    #: Reserved: more than advised, and more than twice as much.
    GENEROUS = "generous"
    WASTEFUL = "wasteful"
    #: Reserved: less than advised, and less than was used.
    TIGHT = "tight"
    SHORT = "short"
    #: Nothing is reserved, or the amount is unknown.
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLine:
    """The reserved, used and advised amount of one resource for each replica of a role, in mCPU or
    bytes.
    """

    role: str
    #: ``cpu``, ``memory``, ``shared memory`` or ``scratch``.
    resource: str
    reserved: float
    used: float
    low: float
    advised: float
    high: float
    grade: Grade
    #: The reason for the advised amount.
    reason: str
    #: Comparison of the advice with the use of the last days, in one sentence; empty for amounts
    #: that are not reserved.
    hindsight: str = ""
    #: Money per day for the reservation of all replicas above the advice; None: there is no price.
    unused_cost_a_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNode:
    """Replicas on one node that were idle recently."""

    node: NodeName
    role: str
    replicas: int
    minutes: float
    cost_a_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    job: JobId
    name: str
    replicas: int
    #: The most useful next step, in one sentence.
    headline: str
    lines: tuple[ResourceLine, ...] = ()
    idle: tuple[IdleNode, ...] = ()
    notices: tuple[Notice, ...] = ()
    #: The amounts that Brain would have reserved in the last day, the difference that this would
    #: have made, and the reason why Brain left them to people, in one sentence; empty if Brain
    #: changes amounts by itself, or would have changed none.
    hindsight: str = ""
    #: Mean utilisation of the accelerators in the last day; None: none was read.
    accelerator_share: float | None = None
    #: Money per day for all replicas at their present reservation; None: there is no price.
    cost_a_day: float | None = None
    currency: str = ""
    basis: str = ""
    exploring: bool = False
    #: Number of readings that were left out, and the reason for the last one.
    rejected: int = 0
    rejected_because: str = ""
    #: One sentence for each measure that would let the report say more.
    missing: tuple[str, ...] = ()
    #: The document to submit next time, without the values of its environment.
    document: Mapping[str, Any]
