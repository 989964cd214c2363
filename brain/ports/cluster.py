"""Stores of nodes, worlds, and pools with their leases and freezes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from brain.types.job import JobId, JobState
from brain.types.pool import Freeze, PoolLease
from brain.types.resources import Node, NodeName, PoolName
from brain.types.sharing import PoolRound, StoredPolicy
from brain.types.world import Replica, World


class LeaseStore(Protocol):
    """One holder per pool at a time."""

    def acquire(
        self, pool: PoolName, holder: str, *, until: datetime, now: datetime
    ) -> PoolLease | None:
        """Take, keep or take over the lease; None while another holds an unexpired one.

        ``term`` grows whenever the holder changes. A lease that ends more than twice as far ahead
        as this one would was taken before the clock was set back, and counts as expired.
        """
        ...

    def release(self, pool: PoolName, holder: str) -> None:
        """Let go, so that another needs not wait; nothing happens if ``holder`` has it not."""
        ...


class WorldStore(Protocol):
    """Worlds and replicas as coordinators and scalers observed them."""

    def put(self, world: World) -> None:
        """Store or replace the world of (job, epoch)."""
        ...

    def latest(self, job: JobId) -> World | None:
        """The world of the highest epoch."""
        ...

    def of(self, job: JobId) -> Sequence[World]:
        """All worlds of a job, highest epoch first."""
        ...

    def read_ahead(self, jobs: Collection[JobId]) -> None:
        """Read worlds and replicas of these jobs at once, for the questions that follow."""
        ...

    def put_replicas(self, job: JobId, replicas: Iterable[Replica]) -> None:
        """Store or replace replicas by (job, role, id); those not named stay."""
        ...

    def replicas(self, job: JobId) -> Sequence[Replica]:
        """All replicas a job ever had, lowest id first."""
        ...


class NodeStore(Protocol):
    """Nodes as their scalers last described them."""

    def put(self, node: Node) -> None:
        """Store or replace a node by name."""
        ...

    def of(self, pool: PoolName | None = None) -> Sequence[Node]:
        """Nodes of a pool, or all, by name."""
        ...

    def get(self, name: NodeName) -> Node:
        """One node.

        Raises:
            UnknownNode: none of this name registered.
        """
        ...


class FreezeStore(Protocol):
    """The freezes, and the names of those who set them."""

    def put(self, freeze: Freeze) -> None:
        """Freeze; replaces a freeze of the same scope and target."""
        ...

    def remove(self, scope: str, target: str) -> bool:
        """Thaw; False if nothing was frozen."""
        ...

    def all(self) -> Sequence[Freeze]:
        """Everything frozen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark of a job; it differs from the last one if the job or its telemetry changed."""

    state: JobState
    #: Differs whenever the job, its plans, worlds or replicas were changed.
    life: str
    #: Differs whenever samples of the job were stored.
    heard: str


class PoolStore(Protocol):
    """The policies of pools, and the result of the latest round of each pool."""

    def marks(self, pool: PoolName) -> Mapping[JobId, Mark]:
        """Return the mark of every unfinished job of a pool, oldest first.

        Data that was read of a job need not be read again while the job's mark stays.
        """
        ...

    def policy(self, pool: PoolName) -> StoredPolicy | None:
        """The policy of a pool."""
        ...

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        """Store or replace the policy of a pool and return it with its version grown by one.

        Raises:
            VersionMismatch: it was changed since ``policy.version`` was read; 0 where none was.
        """
        ...

    def remove_policy(self, pool: PoolName) -> bool:
        """Drop the policy of a pool; False if there was none."""
        ...

    def policies(self) -> Sequence[StoredPolicy]:
        """All policies, by pool."""
        ...

    def round(self, pool: PoolName) -> PoolRound | None:
        """The latest round of a pool."""
        ...

    def put_round(self, round: PoolRound) -> None:
        """Replace the latest round of its pool."""
        ...
