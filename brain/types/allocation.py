"""The size of a job: its replicas, with their processes, resources and nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from brain.errors import ImpossibleBounds
from brain.types.batch import BatchWish
from brain.types.resources import NodeName, Resources
from brain.types.roles import WORKER, Roles, RoleSize, others

#: Largest number of replicas; a larger one is a mistake, because every turn considers every allowed
#: size.
MOST_REPLICAS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A size: the replicas of a job, the processes of each, and the amounts that each reserves."""

    replicas: int
    processes_per_replica: int = 1
    #: Amounts that each replica reserves.
    resources: Resources = Resources()
    #: Roles of the first replicas, or groups; all other replicas are workers.
    roles: Roles = ()
    #: Chosen replicas on each node; empty: any nodes where they fit. Nodes are not part of the
    #: size: sizes that differ only in nodes are equal.
    nodes: tuple[tuple[NodeName, int], ...] = field(default=(), compare=False)
    #: Batch for the script to take with this size, if the script asks and Brain chose one. A
    #: different batch alone does not make another size, either.
    batch: BatchWish | None = field(default=None, compare=False)

    def elsewhere(self, other: "Allocation") -> bool:
        """Return True if both sizes name their nodes, and the nodes differ."""
        return bool(self.nodes and other.nodes) and dict(self.nodes) != dict(other.nodes)

    def of(self, role: str) -> Resources:
        """Return the amounts that each replica of a role reserves."""
        own = dict(self.roles).get(role, RoleSize()).resources
        return self.resources if own is None else own

    def reserving(self, role: str, amounts: Resources) -> "Allocation":
        """Return this size with new amounts for one role; the amounts of other roles stay."""
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
        """Return the amounts of each replica, by role."""
        return {role: self.of(role) for role in (WORKER, *dict(self.roles))}

    @property
    def total(self) -> Resources:
        """Return the amounts that all replicas reserve together."""
        beside = (self.of(role).times(size.replicas) for role, size in self.roles)
        return sum(beside, self.resources.times(self.workers))

    @property
    def each(self) -> Resources:
        """Return the average amounts of a replica, rounded down."""
        if not self.roles:
            return self.resources
        all_of = self.total
        return Resources(
            cpu_millis=all_of.cpu_millis // self.replicas,
            memory_bytes=all_of.memory_bytes // self.replicas,
            gpus=all_of.gpus // self.replicas,
        )

    @property
    def workers(self) -> int:
        """Return the number of replicas with the role ``worker`` that belong to no group."""
        return self.replicas - others(self.roles)

    def loosest(self, other: "Allocation") -> "Allocation":
        """Return this size with each resource raised to the amount in ``other`` if that amount is
        larger; 0 means no limit, and counts as the largest amount.
        """
        size = self
        for role in self.amounts.keys() & other.amounts.keys():
            size = size.reserving(role, self.of(role).loosest(other.of(role)))
        return size

    @property
    def processes(self) -> int:
        """Return the WORLD_SIZE of this size.

        >>> large = RoleSize(replicas=1, processes_per_replica=8)
        >>> Allocation(replicas=3, processes_per_replica=4, roles=(("large", large),)).processes
        16
        """
        return self.workers * self.processes_per_replica + sum(
            size.replicas * self.processes_of(role) for role, size in self.roles
        )

    def processes_of(self, role: str) -> int:
        """Return the number of processes of each replica of a role or group."""
        own = dict(self.roles).get(role, RoleSize()).processes_per_replica
        return self.processes_per_replica if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The replica counts a job may have: multiples of ``unit`` from ``min`` to ``max``."""

    min: int = 1
    max: int = 1
    unit: int = 1
    #: Replicas that the job begins with; ``min`` when None. A job that shares its pool and that
    #: Brain may change begins with fewer instead of waiting; if None, it begins with idle
    #: resources.
    start: int | None = None

    @property
    def first(self) -> int:
        """Return the number of replicas at the start of the job: ``start``, or else the smallest
        allowed number.
        """
        return self.min if self.start is None else self.start

    def sizes(self) -> Iterator[int]:
        """Return all allowed numbers of replicas, ascending; none if the bounds are impossible."""
        lowest = -(-max(self.min, 1) // self.unit) * self.unit
        return iter(range(lowest, self.max + 1, self.unit))

    def allow(self, replicas: int) -> bool:
        """Return True if these bounds allow this number of replicas."""
        return self.min <= replicas <= self.max and replicas % self.unit == 0


def check_bounds(bounds: Bounds) -> None:
    """Raise ImpossibleBounds if no replica count satisfies the bounds, or ``start`` does not.

    Raises:
        ImpossibleBounds: the message names the field, its value and the remedy.
    """
    if bounds.min < 1 or bounds.unit < 1:
        raise ImpossibleBounds(
            f"replicas: min {bounds.min} and unit {bounds.unit} must both be at least 1",
            field="replicas",
        )
    if bounds.min > bounds.max:
        raise ImpossibleBounds(
            f"replicas.min {bounds.min} is more than replicas.max {bounds.max}; "
            "raise max or lower min",
            field="replicas.min",
        )
    if bounds.max > MOST_REPLICAS:
        raise ImpossibleBounds(
            f"replicas.max {bounds.max} is more than {MOST_REPLICAS}; lower it to the "
            "largest number that the job could use",
            field="replicas.max",
        )
    if next(bounds.sizes(), None) is None:
        raise ImpossibleBounds(
            f"replicas.unit {bounds.unit} has no multiple from {bounds.min} to "
            f"{bounds.max}; raise max to {-(-bounds.min // bounds.unit) * bounds.unit}",
            field="replicas.unit",
        )
    if bounds.start is None and not bounds.allow(bounds.min):
        raise ImpossibleBounds(
            f"replicas.min {bounds.min} is not a multiple of replicas.unit {bounds.unit}; "
            f"set min to {next(bounds.sizes())}",
            field="replicas.min",
        )
    if bounds.start is not None and not bounds.allow(bounds.start):
        raise ImpossibleBounds(
            f"replicas.start {bounds.start} is not a multiple of {bounds.unit} from "
            f"{bounds.min} to {bounds.max}; set start to such a multiple, or leave it out",
            field="replicas.start",
        )
