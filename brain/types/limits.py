"""Limits that the owner of a job sets: amounts of all replicas together, budget, deadline."""

import math
from dataclasses import dataclass
from datetime import datetime

from brain.errors import BadInput, ImpossibleBounds
from brain.types.allocation import Allocation
from brain.types.resources import Resources
from brain.types.roles import check_resources, others

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a run may use, including its restarts; Brain chooses no size that would use
    more.

    The budget counts the GPUs of each replica, or its cores if it reserves no GPU.
    """

    accelerator_hours: float | None = None
    #: Money, at the installation's ``accelerator_prices``.
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """The largest amounts that all replicas of a job together may reserve; None: no limit."""

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None

    def allow(self, size: Allocation) -> bool:
        """Return True if all replicas of a size together stay within the limits."""
        return self.excess(size) is None

    def excess(self, size: Allocation) -> tuple[str, str] | None:
        """Return the field that a size exceeds, and a clause that says by how much; None if it
        exceeds none.

        >>> size = Allocation(replicas=3, resources=Resources(cpu_millis=1500))
        >>> ResourceLimits(cpu_millis=4000).excess(size)
        ('resourceLimits.cpuMillis', '3 replicas reserve 4.5 CPUs, but resourceLimits allow 4')
        >>> ResourceLimits(gpus=0).excess(Allocation(replicas=1, resources=Resources(gpus=1)))
        ('resourceLimits.gpus', '1 replica reserves 1 GPU, but resourceLimits allow 0')
        """
        total = size.total
        for field, limit, amount, scale, unit in (
            ("cpuMillis", self.cpu_millis, total.cpu_millis, 1000, "CPUs"),
            ("memoryBytes", self.memory_bytes, total.memory_bytes, _GIB, "GiB"),
            ("gpus", self.gpus, total.gpus, 1, "GPUs"),
        ):
            if limit is not None and amount > limit:
                who = (
                    "1 replica reserves"
                    if size.replicas == 1
                    else f"{size.replicas} replicas reserve"
                )
                units = unit.removesuffix("s") if amount == scale else unit
                clause = (
                    f"{who} {amount / scale:g} {units}, but resourceLimits allow {limit / scale:g}"
                )
                return f"resourceLimits.{field}", clause
        return None

    def most(self, size: Allocation) -> int | None:
        """Return the largest number of replicas within the limits if only the number of workers
        varies; None if every number is within them.

        >>> ResourceLimits(gpus=9).most(Allocation(replicas=1, resources=Resources(gpus=2)))
        4
        """
        beside = Allocation(
            replicas=others(size.roles), resources=size.resources, roles=size.roles
        ).total
        most = [
            (limit - held) // each
            for limit, held, each in (
                (self.cpu_millis, beside.cpu_millis, size.resources.cpu_millis),
                (self.memory_bytes, beside.memory_bytes, size.resources.memory_bytes),
                (self.gpus, beside.gpus, size.resources.gpus),
            )
            if limit is not None and each
        ]
        return others(size.roles) + max(0, min(most)) if most else None

    def capped(self, size: Allocation, role: str, amounts: Resources) -> Resources:
        """Return ``amounts`` for each replica of a role, lowered to what the limits leave to the
        role, but not below the role's present amounts.
        """
        count = dict(size.roles)[role].replicas if role in dict(size.roles) else size.workers
        now = size.of(role)
        beside = size.total - now.times(count)

        def cap(limit: int | None, held: int, present: int, amount: int) -> int:
            most = amount if limit is None else (limit - held) // max(1, count)
            return min(amount, max(present, most))

        return Resources(
            cpu_millis=cap(self.cpu_millis, beside.cpu_millis, now.cpu_millis, amounts.cpu_millis),
            memory_bytes=cap(
                self.memory_bytes, beside.memory_bytes, now.memory_bytes, amounts.memory_bytes
            ),
            gpus=amounts.gpus,
        )


def check_reservation(limits: ResourceLimits, *sizes: Allocation) -> None:
    """Raise an error if a limit is negative, or if a size with which a job may begin exceeds it.

    Raises:
        BadInput: a limit is negative; the error names field, value and remedy.
        ImpossibleBounds: a size exceeds a limit; the error names the field and the remedy.
    """
    amounts = Resources(
        cpu_millis=limits.cpu_millis or 0,
        memory_bytes=limits.memory_bytes or 0,
        gpus=limits.gpus or 0,
    )
    check_resources(amounts, "resourceLimits")
    for size in sizes:
        if found := limits.excess(size):
            field, clause = found
            raise ImpossibleBounds(
                f"{clause}; raise {field}, or let the job begin with fewer replicas or smaller "
                "amounts",
                field=field,
            )


def check_budget(budget: Budget, deadline: datetime | None, steps: int | None) -> None:
    """Raise BadInput for a budget or a deadline that cannot be met or not be predicted.

    Raises:
        BadInput: a limit cannot be used; the error names field, value and remedy.
    """
    given: dict[str, object] = {
        "budget.acceleratorHours": budget.accelerator_hours,
        "budget.cost": budget.cost,
        "deadline": deadline,
    }
    for name, limit in given.items():
        if isinstance(limit, int | float) and not 0 < limit < math.inf:
            raise BadInput(
                f"{name} {limit:g} is not a limit; give more than 0, or leave it out", field=name
            )
        if isinstance(limit, datetime) and limit.tzinfo is None:
            raise BadInput(f"{name} {limit.isoformat()} has no time zone; append Z", field=name)
        if limit is not None and steps is None:
            raise BadInput(f"{name} needs the length of the job; declare steps", field=name)
