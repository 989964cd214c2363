"""What a job gets: replicas on nodes, with resources."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from brain.types.batch import BatchWish
from brain.types.resources import NodeName, Resources
from brain.types.roles import WORKER, Roles, RoleSize, others


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A size: replicas, the processes of each, and what each replica reserves."""

    replicas: int
    processes_per_replica: int = 1
    #: Reserved by each replica.
    resources: Resources = Resources()
    #: Roles of its first replicas; the others are workers.
    roles: Roles = ()
    #: Replicas on each node, where that was chosen; empty: wherever they fit. It is no part of the
    #: size, and does not tell two of them apart.
    nodes: tuple[tuple[NodeName, int], ...] = field(default=(), compare=False)
    #: Batch that its script is asked to take with this size, where it asks and Brain chose one;
    #: another batch alone is no other size, either.
    batch: BatchWish | None = field(default=None, compare=False)

    def elsewhere(self, other: "Allocation") -> bool:
        """True if both say where their replicas are, and not the same."""
        return bool(self.nodes and other.nodes) and dict(self.nodes) != dict(other.nodes)

    def of(self, role: str) -> Resources:
        """What each replica of a role reserves."""
        own = dict(self.roles).get(role, RoleSize()).resources
        return self.resources if own is None else own

    def reserving(self, role: str, amounts: Resources) -> "Allocation":
        """Return this size with other amounts of a role alone: those that had the workers' amounts
        keep them."""
        if amounts == self.of(role):
            return self
        workers = role == WORKER
        roles = tuple(
            (name, replace(size, resources=self.of(name) if workers else amounts))
            if workers or name == role
            else (name, size)
            for name, size in self.roles
        )
        return replace(self, resources=amounts if workers else self.resources, roles=roles)

    @property
    def amounts(self) -> Mapping[str, Resources]:
        """What each replica of each role reserves."""
        return {role: self.of(role) for role in (WORKER, *dict(self.roles))}

    @property
    def each(self) -> Resources:
        """What a replica reserves on average, rounded down: a machine that they fill has them."""
        if not self.roles:
            return self.resources
        all_of = self.resources.times(self.workers)
        for role, size in self.roles:
            all_of += self.of(role).times(size.replicas)
        return Resources(
            cpu_millis=all_of.cpu_millis // self.replicas,
            memory_bytes=all_of.memory_bytes // self.replicas,
            gpus=self.resources.gpus,
        )

    @property
    def workers(self) -> int:
        """Replicas without another role."""
        return self.replicas - others(self.roles)

    def loosest(self, other: "Allocation") -> "Allocation":
        """Return this size with the larger amounts of both."""
        size = self
        for role in self.amounts.keys() & other.amounts.keys():
            size = size.reserving(role, self.of(role).loosest(other.of(role)))
        return size

    @property
    def processes(self) -> int:
        """The WORLD_SIZE of this size."""
        return self.replicas * self.processes_per_replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The replica counts a job may have: multiples of ``unit`` from ``min`` to ``max``."""

    min: int = 1
    max: int = 1
    unit: int = 1
    #: Where the job begins; ``min`` when None. One that shares its pool, and that Brain may change,
    #: begins with fewer rather than to wait, and with what is idle when None.
    start: int | None = None

    @property
    def first(self) -> int:
        """The size of generation 0."""
        return self.min if self.start is None else self.start

    def sizes(self) -> Iterator[int]:
        """All allowed replica counts, ascending; empty when the bounds are impossible."""
        lowest = -(-max(self.min, 1) // self.unit) * self.unit
        return iter(range(lowest, self.max + 1, self.unit))

    def allow(self, replicas: int) -> bool:
        """True if a job of these bounds may run at ``replicas``."""
        return self.min <= replicas <= self.max and replicas % self.unit == 0
