"""Digests: what the jobs of one owner reserved, used, needed and wasted in one week."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from brain.types.job import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestLine:
    """The amounts of one resource that all measured replicas of an owner reserved, used, needed and
    wasted, in ``unit``.
    """

    #: ``cpu``, ``memory`` or ``accelerator``, and ``core-h``, ``GiB-h`` or ``GPU-h``.
    resource: str
    unit: str
    requested: float
    used: float
    #: By the advice on each replica; of accelerators, which no advice is about, those requested.
    recommended: float
    #: Requested above the recommendation; of accelerators, the time in which they did not compute.
    wasted: float
    #: Money for what was requested and for what was wasted; None: there is no price.
    cost: float | None = None
    wasted_cost: float | None = None

    def __add__(self, other: "DigestLine") -> "DigestLine":
        return replace(
            self,
            requested=self.requested + other.requested,
            used=self.used + other.used,
            recommended=self.recommended + other.recommended,
            wasted=self.wasted + other.wasted,
            cost=total((self.cost, other.cost)),
            wasted_cost=total((self.wasted_cost, other.wasted_cost)),
        )


def total(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the costs that are not None; None if all costs are None."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestJob:
    job: JobId
    name: str
    replica_hours: float
    #: Share of what it requested that it used, the mean over its resources.
    used_share: float
    cost: float | None = None
    wasted_cost: float | None = None
    #: The most useful next step, in one sentence.
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The amounts that one owner's jobs reserved, used, needed and wasted in one week."""

    owner: str
    #: For example ``2026-W48``, and its Monday 00:00 UTC to the next one, or to now.
    week: str
    since: datetime
    until: datetime
    currency: str
    #: Jobs that held replicas in the week, and those of them that nothing was measured of.
    jobs: int
    unmeasured: int
    lines: tuple[DigestLine, ...] = ()
    #: Money for all that was requested, and for what of it was wasted; None: there is no price.
    cost: float | None = None
    wasted_cost: float | None = None
    #: Jobs that wasted most, worst first, and those of the others that used most of their request.
    worst: tuple[DigestJob, ...] = ()
    best: tuple[DigestJob, ...] = ()
