"""Report on a job's resources: requested, used, advised, and what the difference costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from brain.types.advice import Notice
from brain.types.job import JobId
from brain.types.resources import NodeName


class Grade(StrEnum):
    """A reservation, held against what was used."""

    GOOD = "good"
    #: More than advised, and more than twice as much.
    GENEROUS = "generous"
    WASTEFUL = "wasteful"
    #: Less than advised, and less than was used.
    TIGHT = "tight"
    SHORT = "short"
    #: Nothing is reserved, or nobody knows how much.
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLine:
    """One resource of each replica of a role, in mCPU or bytes."""

    role: str
    #: ``cpu``, ``memory``, ``shared memory`` or ``scratch``.
    resource: str
    reserved: float
    used: float
    low: float
    advised: float
    high: float
    grade: Grade
    #: Why so much is advised.
    reason: str
    #: The advice held against the use of the last days, in one sentence; empty where nobody would
    #: reserve it.
    hindsight: str = ""
    #: Money a day for what all replicas reserve beyond the advice; None: there is no price.
    unused_cost_a_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNode:
    """Replicas on one node that did next to nothing lately."""

    node: NodeName
    role: str
    replicas: int
    minutes: float
    cost_a_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The report card of a job."""

    job: JobId
    name: str
    replicas: int
    #: One sentence: the most useful thing to do.
    headline: str
    lines: tuple[ResourceLine, ...] = ()
    idle: tuple[IdleNode, ...] = ()
    notices: tuple[Notice, ...] = ()
    #: Mean utilisation of the accelerators in the last day; None: none was read.
    accelerator_share: float | None = None
    #: Money a day for all replicas at their present reservation; None: there is no price.
    cost_a_day: float | None = None
    currency: str = ""
    basis: str = ""
    exploring: bool = False
    #: Readings that were left out, and why the last one.
    rejected: int = 0
    rejected_because: str = ""
    #: What would let the report say more, one sentence each.
    missing: tuple[str, ...] = ()
    #: The document to submit next time, without the values of its environment.
    document: Mapping[str, Any]
