"""Sharing a pool: how its projects divide it, and what one round of deciding came to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from brain.errors import BadInput
from brain.types.job import JobId, check_name
from brain.types.resources import NodeName, PoolName

#: Priority classes beyond these say nothing more: each step counts fourfold already.
PRIORITIES = range(-8, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectShare:
    """What one project may have of a pool, in accelerators; in cores where it has none."""

    #: Given to it as soon as its jobs can use them, whoever else wants them.
    guaranteed: int = 0
    #: Never more than these; None: no limit.
    limit: int | None = None
    #: Added to the priority of each of its jobs; each step counts fourfold.
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShares:
    """What a person writes to divide a pool among projects (YAML or JSON, camelCase keys)."""

    #: Projects that are not named have neither guarantee nor limit.
    projects: Mapping[str, ProjectShare] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what can never be kept.

        Raises:
            BadInput: a share cannot be used; the message names field, value and remedy.
        """
        for name, share in self.projects.items():
            check_name("projects", name)
            for field_, value in _amounts(name, share):
                if value < 0:
                    raise BadInput(f"{field_} {value} must be 0 or more", field=field_)
            if share.limit is not None and share.limit < share.guaranteed:
                raise BadInput(
                    f"projects.{name}.limit {share.limit} is less than its guaranteed "
                    f"{share.guaranteed}; raise limit or lower guaranteed",
                    field=f"projects.{name}.limit",
                )
            if share.priority not in PRIORITIES:
                raise BadInput(
                    f"projects.{name}.priority {share.priority} must be from {PRIORITIES[0]} to "
                    f"{PRIORITIES[-1]}; each step counts fourfold",
                    field=f"projects.{name}.priority",
                )

    def check_capacity(self, capacity: int, unit: str) -> None:
        """Refuse guarantees that a pool of ``capacity`` can never keep all at once.

        Raises:
            BadInput: their sum is more than the pool has.
        """
        wanted = sum(share.guaranteed for share in self.projects.values())
        if wanted > capacity:
            raise BadInput(
                f"projects.*.guaranteed add up to {wanted} and the pool has {capacity} {unit}; "
                "lower them, or register more nodes first",
                field="projects",
            )


def _amounts(name: str, share: ProjectShare) -> Iterator[tuple[str, int]]:
    yield f"projects.{name}.guaranteed", share.guaranteed
    if share.limit is not None:
        yield f"projects.{name}.limit", share.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """The policy of a pool as it stands."""

    pool: PoolName
    policy: PoolShares
    by: str
    updated_at: datetime
    #: Grows with every stored change; for ``If-Match``.
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A configuration that a job might have had."""

    accelerator: str
    replicas: int
    #: Utility that it has more than what the job got; below 0 where it has less.
    gain: float
    #: What its accelerators would have cost more, at the prices of the round.
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """What one job got from a round, and why."""

    job: JobId
    name: str
    project: str
    #: ``keeps``, ``grows``, ``shrinks``, ``starts``, ``moves``, ``waits``, ``held`` or ``refused``.
    outcome: str
    accelerator: str | None
    #: Before the round, and after it; 0 while it waits.
    before: int
    replicas: int
    nodes: tuple[tuple[NodeName, int], ...] = ()
    next_best: Rival | None = None
    #: Name of the job that has the accelerators of ``next_best``.
    lost_to: str | None = None
    #: One sentence.
    reason: str
    #: Generation of the plan that makes it so; None where nothing changes.
    plan: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRound:
    """One division of a pool among its jobs, with the proof of how good it is."""

    pool: PoolName
    decided_at: datetime
    #: True where nothing was proposed: the first round after a start only looks.
    observed_only: bool = False
    #: What is counted, by accelerator: ``GPU``, or ``core`` for jobs that reserve none.
    units: Mapping[str, str] = field(default_factory=dict)
    #: Utility of the division, and a proof that no division has more.
    value: float
    bound: float
    #: Marginal utility of one unit, by accelerator; and on top by project.
    prices: Mapping[str, float] = field(default_factory=dict)
    project_prices: Mapping[str, float] = field(default_factory=dict)
    #: Units by accelerator: what this round divided, and what it gave.
    capacity: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    #: Units that guarantees lack, by project.
    short: Mapping[str, float] = field(default_factory=dict)
    shares: tuple[JobShare, ...] = ()

    @property
    def gap(self) -> float:
        """Share of the utility that a better division might add: 0.001 is 0.1 %."""
        return max(0.0, self.bound - self.value) / max(abs(self.bound), 1e-12)
