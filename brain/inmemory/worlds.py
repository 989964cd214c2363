"""Stores worlds, replicas, nodes, fits and leases of pools in dictionaries."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from brain.errors import UnknownNode
from brain.inmemory.rows import Rows
from brain.ports import StoredFit
from brain.types.job import Job, JobId
from brain.types.order import NODES, Order, Place
from brain.types.pool import PoolLease
from brain.types.resources import Node, NodeName, PoolName
from brain.types.world import Replica, ReplicaState, World

#: Expiry of a released lease; its row stays, because its term must keep growing.
LET_GO = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryWorlds:
    """``WorldStore`` that keeps, for each job, worlds by epoch and replicas by role and id."""

    def __init__(
        self,
        worlds: Rows[JobId, Mapping[int, World]],
        replicas: Rows[JobId, Mapping[tuple[str, int], Replica]],
        jobs: Rows[JobId, Job],
    ) -> None:
        self._worlds = worlds
        self._replicas = replicas
        self._jobs = jobs

    def put(self, world: World) -> None:
        self._worlds[world.job] = {**self._worlds.get(world.job, {}), world.epoch: world}

    def latest(self, job: JobId) -> World | None:
        worlds = self._worlds.get(job)
        return worlds[max(worlds)] if worlds else None

    def of(self, job: JobId) -> Sequence[World]:
        worlds = self._worlds.get(job, {}).values()
        return sorted(worlds, key=lambda world: world.epoch, reverse=True)

    def read_ahead(self, jobs: Collection[JobId], *, every: bool = False) -> None:
        """Do nothing: dictionaries need no reading ahead."""

    def put_replicas(self, job: JobId, replicas: Iterable[Replica]) -> None:
        news = {(replica.role, replica.id): replica for replica in replicas}
        if news:
            self._replicas[job] = {**self._replicas.get(job, {}), **news}

    def replicas(self, job: JobId) -> Sequence[Replica]:
        found = self._replicas.get(job, {}).values()
        return sorted(found, key=lambda replica: (replica.id, replica.role))

    def present(self, job: JobId) -> Sequence[Replica]:
        return [
            each
            for each in self.replicas(job)
            if each.state is not ReplicaState.EXITED or each.unfit
        ]

    def live(self, pool: PoolName) -> Mapping[JobId, Sequence[Replica]]:
        found = {
            job: [each for each in self.replicas(job) if each.state is not ReplicaState.EXITED]
            for job, it in self._jobs.items()
            if it.pool == pool and not it.finished
        }
        return {job: replicas for job, replicas in found.items() if replicas}

    def on(self, nodes: Collection[NodeName]) -> Mapping[JobId, Sequence[Replica]]:
        wanted = set(nodes)
        found = {
            job: [each for each in self.present(job) if each.node in wanted]
            for job, it in self._jobs.items()
            if not it.finished
        }
        return {job: replicas for job, replicas in found.items() if replicas}


class MemoryNodes:
    """``NodeStore`` that keeps nodes in a dictionary by name."""

    def __init__(self, rows: Rows[NodeName, Node]) -> None:
        self._rows = rows

    def put(self, node: Node) -> None:
        self._rows[node.name] = node

    def of(self, pool: PoolName | None = None) -> Sequence[Node]:
        nodes = [node for node in self._rows.values() if pool is None or node.pool == pool]
        return sorted(nodes, key=lambda node: node.name)

    def page(self, *, after: Place | None, size: int, order: Order = NODES) -> Sequence[Node]:
        return order.page(self._rows.values(), after=after, size=size)

    def pools(self) -> Sequence[PoolName]:
        return sorted({node.pool for node in self._rows.values()})

    def remove(self, names: Collection[NodeName]) -> None:
        for name in names:
            self._rows.pop(name, None)

    def get(self, name: NodeName) -> Node:
        try:
            return self._rows[name]
        except KeyError:
            raise UnknownNode(
                f"no node named {name} has registered; `brain nodes` lists the nodes"
            ) from None


class MemoryFits:
    """``FitStore`` that keeps fits in a dictionary by job and kind."""

    def __init__(self, rows: Rows[tuple[JobId, str], StoredFit]) -> None:
        self._rows = rows

    def put(self, fit: StoredFit) -> None:
        self._rows[fit.job, fit.kind] = fit

    def read_ahead(self, jobs: Collection[JobId], *kinds: str) -> None:
        """Do nothing: dictionaries need no reading ahead."""

    def get(self, job: JobId, kind: str) -> StoredFit | None:
        return self._rows.get((job, kind))


class MemoryLeases:
    """``LeaseStore`` that keeps leases in a dictionary by pool."""

    def __init__(self, rows: Rows[PoolName, PoolLease]) -> None:
        self._rows = rows

    def acquire(
        self, pool: PoolName, holder: str, *, until: datetime, now: datetime
    ) -> PoolLease | None:
        held = self._rows.get(pool)
        if held and held.holder != holder and now < held.expires_at <= until + (until - now):
            return None
        term = held.term if held else 0
        changes = held is None or held.holder != holder
        lease = PoolLease(pool=pool, holder=holder, term=term + changes, expires_at=until)
        self._rows[pool] = lease
        return lease

    def release(self, pool: PoolName, holder: str) -> None:
        held = self._rows.get(pool)
        if held and held.holder == holder:
            self._rows[pool] = replace(held, expires_at=LET_GO)
