"""What a job gets: replicas on nodes, with resources."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from brain.types.batch import BatchWish
from brain.types.resources import NodeName, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A size: replicas, the processes of each, and what each replica reserves."""

    replicas: int
    processes_per_replica: int = 1
    #: Reserved by each replica.
    resources: Resources = Resources()
    #: Replicas on each node, where that was chosen; empty: wherever they fit. It is no part of the
    #: size, and does not tell two of them apart.
    nodes: tuple[tuple[NodeName, int], ...] = field(default=(), compare=False)
    #: Batch that its script is asked to take with this size, where it asks and Brain chose one;
    #: another batch alone is no other size, either.
    batch: BatchWish | None = field(default=None, compare=False)

    def elsewhere(self, other: "Allocation") -> bool:
        """True if both say where their replicas are, and not the same."""
        return bool(self.nodes and other.nodes) and dict(self.nodes) != dict(other.nodes)

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
