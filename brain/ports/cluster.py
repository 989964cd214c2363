"""Stores of nodes, worlds, and pools with their leases and freezes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from brain.types.job import JobId, JobState
from brain.types.order import NODES, Order, Place
from brain.types.pool import Freeze, PoolLease
from brain.types.resources import Node, NodeName, PoolName
from brain.types.sharing import PoolRound, StoredPolicy
from brain.types.world import Replica, World


class LeaseStore(Protocol):
    """The leases of pools; at most one process holds the lease of a pool."""

    def acquire(
        self, pool: PoolName, holder: str, *, until: datetime, now: datetime
    ) -> PoolLease | None:
        """Take, renew or take over the lease of a pool; return None if another holder has a valid
        lease.

        The lease's ``term`` increases whenever the holder changes. A stored lease also counts as
        expired if its remaining time is more than twice the time from ``now`` to ``until``, because
        this shows that the clock was set back.
        """
        ...

    def release(self, pool: PoolName, holder: str) -> None:
        """End the lease now, so that another process need not wait for it; do nothing if ``holder``
        does not hold the lease.
        """
        ...


class WorldStore(Protocol):
    """Worlds and replicas, as coordinators and scalers last reported them."""

    def put(self, world: World) -> None:
        """Store a world, or replace the stored world of the same job and epoch."""
        ...

    def latest(self, job: JobId) -> World | None:
        """Return the job's world with the highest epoch; None if no world has formed yet."""
        ...

    def of(self, job: JobId) -> Sequence[World]:
        """Return all worlds of a job, highest epoch first."""
        ...

    def read_ahead(self, jobs: Collection[JobId], *, every: bool = False) -> None:
        """Read the latest worlds, or ``every`` world, and the present replicas of all these jobs
        with few statements, so that later queries for these in the same transaction need no further
        statement.
        """
        ...

    def put_replicas(self, job: JobId, replicas: Iterable[Replica]) -> None:
        """Store replicas. Each replica replaces the stored replica of the same job, role and id;
        all other stored replicas stay.
        """
        ...

    def replicas(self, job: JobId) -> Sequence[Replica]:
        """Return all replicas that a job ever had, lowest id first."""
        ...

    def present(self, job: JobId) -> Sequence[Replica]:
        """Return the replicas of a job that have not exited, and those that left an unfit node,
        lowest id first.
        """
        ...

    def live(self, pool: PoolName) -> Mapping[JobId, Sequence[Replica]]:
        """Return, by unfinished job of a pool, the replicas that have not exited, lowest id first.
        Jobs without such replicas are left out.
        """
        ...

    def on(self, nodes: Collection[NodeName]) -> Mapping[JobId, Sequence[Replica]]:
        """Return, by job, the replicas of unfinished jobs on these nodes, lowest id first: those
        that have not exited, and those that left a sick or slow node. Jobs without such replicas
        are left out.
        """
        ...


class NodeStore(Protocol):
    """The nodes of all pools, each as its scaler last registered it."""

    def put(self, node: Node) -> None:
        """Store a node, or replace the stored node of the same name."""
        ...

    def of(self, pool: PoolName | None = None) -> Sequence[Node]: ...

    def page(self, *, after: Place | None, size: int, order: Order = NODES) -> Sequence[Node]:
        """Return at most ``size`` nodes that follow the row ``after`` in ``order``, or the first
        nodes if ``after`` is None. The default order is by name.
        """
        ...

    def pools(self) -> Sequence[PoolName]: ...

    def remove(self, names: Collection[NodeName]) -> None:
        """Remove the nodes of these names; ignore names that no node has."""
        ...

    def get(self, name: NodeName) -> Node:
        """Return the node of this name.

        Raises:
            UnknownNode: no node of this name has registered.
        """
        ...


class FreezeStore(Protocol):
    """Freezes, each with its scope, its target and the person who set it."""

    def put(self, freeze: Freeze) -> None:
        """Store a freeze; it replaces the stored freeze of the same scope and target."""
        ...

    def remove(self, scope: str, target: str) -> bool:
        """Remove the freeze of a scope and target; return False if there was none."""
        ...

    def all(self) -> Sequence[Freeze]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A value that changes whenever a job or its telemetry changes."""

    state: JobState
    #: Changes whenever the job, its plans, worlds or replicas change.
    life: str
    #: Changes whenever samples of the job are stored.
    heard: str


class PoolStore(Protocol):
    """The policies of pools, and the result of the latest round of each pool."""

    def marks(self, pool: PoolName) -> Mapping[JobId, Mark]:
        """Return the mark of every unfinished job of a pool, oldest first.

        A reader need not read a job again while its mark is the same.
        """
        ...

    def policy(self, pool: PoolName) -> StoredPolicy | None:
        """Return the policy of a pool; None if it has none."""
        ...

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        """Store or replace the policy of a pool; return it with its version increased by one.

        Raises:
            VersionMismatch: the policy was changed since ``policy.version`` was read; version 0
                means that the pool had no policy.
        """
        ...

    def remove_policy(self, pool: PoolName) -> bool:
        """Remove the policy of a pool; return False if there was none."""
        ...

    def policies(self) -> Sequence[StoredPolicy]: ...

    def round(self, pool: PoolName) -> PoolRound | None:
        """Return the latest round of a pool; None if there was none."""
        ...

    def put_round(self, round: PoolRound) -> None:
        """Replace the latest round of the round's pool."""
        ...
