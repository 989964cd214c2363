"""Amounts of CPU, memory and accelerators that a replica needs or a node offers."""

from dataclasses import dataclass
from datetime import datetime
from typing import NewType

NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """An amount of CPU, memory and accelerators."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            cpu_millis=self.cpu_millis + other.cpu_millis,
            memory_bytes=self.memory_bytes + other.memory_bytes,
            gpus=self.gpus + other.gpus,
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return self + other.times(-1)

    def times(self, count: int) -> "Resources":
        return Resources(
            cpu_millis=self.cpu_millis * count,
            memory_bytes=self.memory_bytes * count,
            gpus=self.gpus * count,
        )

    def at_least(self, other: "Resources") -> "Resources":
        """Return, for each resource, the larger of the two amounts."""
        return Resources(
            cpu_millis=max(self.cpu_millis, other.cpu_millis),
            memory_bytes=max(self.memory_bytes, other.memory_bytes),
            gpus=max(self.gpus, other.gpus),
        )

    def loosest(self, other: "Resources") -> "Resources":
        """Return, for each resource, the larger of the two limits; 0 means no limit and wins."""
        cpu = (self.cpu_millis, other.cpu_millis)
        memory = (self.memory_bytes, other.memory_bytes)
        return Resources(
            cpu_millis=max(cpu) if all(cpu) else 0,
            memory_bytes=max(memory) if all(memory) else 0,
            gpus=max(self.gpus, other.gpus),
        )

    def copies_within(self, capacity: "Resources") -> int | None:
        """Return how many times this amount fits into ``capacity``; None if the amount is empty."""
        needs = [
            (self.cpu_millis, capacity.cpu_millis),
            (self.memory_bytes, capacity.memory_bytes),
            (self.gpus, capacity.gpus),
        ]
        fits = [max(0, have) // need for need, have in needs if need > 0]
        return min(fits) if fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, as its scaler last reported it."""

    name: NodeName
    pool: PoolName
    capacity: Resources
    #: Product name of the node's devices; ``cpu`` for a node without.
    accelerator: str = "cpu"
    #: Slots set by ``--slots``, in place of the machine's own count.
    slots: int | None = None
    seen_at: datetime
    #: False if an operator has drained the node.
    schedulable: bool = True
