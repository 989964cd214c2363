"""Sharing of a pool: its division among projects, and the result of one round."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from brain.errors import BadInput
from brain.types.document import PRIORITIES, check_name
from brain.types.job import JobId
from brain.types.resources import NodeName, PoolName


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectShare:
    """Guarantee, limit and priority of one project in a pool; the amounts are in accelerators, or
    in cores if the pool has no accelerators.
    """

    #: Accelerators that the project gets as soon as its jobs can use them, before all others.
    guaranteed: int = 0
    #: The most that the project may have; None: no limit.
    limit: int | None = None
    #: Number added to the priority of each job of the project; each step multiplies a job's weight
    #: by 4.
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShares:
    """The rules that divide a pool among projects, as a person writes them (YAML or JSON, camelCase
    keys).
    """

    #: Shares by project; other projects have neither guarantee nor limit.
    projects: Mapping[str, ProjectShare] = field(default_factory=dict)

    def check(self) -> None:
        """Raise BadInput for shares that no pool can satisfy.

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
                    f"{PRIORITIES[-1]}; each step multiplies the weight of its jobs by 4",
                    field=f"projects.{name}.priority",
                )

    def check_capacity(self, capacity: int, unit: str) -> None:
        """Raise BadInput for guarantees that exceed a pool of ``capacity``.

        Raises:
            BadInput: the sum of the guarantees is more than the pool has.
        """
        wanted = sum(share.guaranteed for share in self.projects.values())
        if wanted > capacity:
            raise BadInput(
                f"projects.*.guaranteed add up to {wanted}, but the pool has {capacity} {unit}; "
                "lower them, or register more nodes first",
                field="projects",
            )


def _amounts(name: str, share: ProjectShare) -> Iterator[tuple[str, int]]:
    yield f"projects.{name}.guaranteed", share.guaranteed
    if share.limit is not None:
        yield f"projects.{name}.limit", share.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    pool: PoolName
    policy: PoolShares
    by: str
    updated_at: datetime
    #: Grows with every stored change; for ``If-Match``.
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A configuration that a job could have got instead, with its utility and cost."""

    accelerator: str
    replicas: int
    #: Utility above the job's grant; below 0 if it has less.
    gain: float
    #: Cost of its accelerators above the grant's, at the prices of the round.
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """The share of one job in a round, with the reason."""

    job: JobId
    name: str
    project: str
    #: ``keeps``, ``grows``, ``shrinks``, ``starts``, ``moves``, ``waits``, ``held`` or ``refused``.
    outcome: str
    accelerator: str | None
    #: Replicas before the round, and after it; 0 while the job waits.
    before: int
    replicas: int
    nodes: tuple[tuple[NodeName, int], ...] = ()
    next_best: Rival | None = None
    #: Name of the job that has the accelerators of ``next_best``.
    lost_to: str | None = None
    #: The reason, in one sentence.
    reason: str
    #: Generation of the plan that carries out the share; None if nothing changes.
    plan: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRound:
    """One division of a pool among its jobs, with a bound on the utility of any better one."""

    pool: PoolName
    decided_at: datetime
    #: True if the round proposed nothing: the first round after a start only observes.
    observed_only: bool = False
    #: Unit by accelerator: ``GPU``, or ``core`` for jobs that reserve none.
    units: Mapping[str, str] = field(default_factory=dict)
    #: Utility of the division, and an upper bound on that of any division.
    value: float
    bound: float
    #: Marginal utility of one unit, by accelerator; and surcharge by project.
    prices: Mapping[str, float] = field(default_factory=dict)
    project_prices: Mapping[str, float] = field(default_factory=dict)
    #: Units by accelerator that the round divided, and those that it granted.
    capacity: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    #: Units that guarantees lack, by project.
    short: Mapping[str, float] = field(default_factory=dict)
    shares: tuple[JobShare, ...] = ()

    @property
    def gap(self) -> float:
        """Return the most that a better division could add, as a share of the utility; 0.001 is
        0.1 %.
        """
        return max(0.0, self.bound - self.value) / max(abs(self.bound), 1e-12)
