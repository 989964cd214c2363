"""Worlds, replicas, nodes, fits and leases of pools in the database."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from brain.db.columns import insert, page, reader, row, upsert, value, values
from brain.db.jobs import OF_POOL
from brain.db.tables import PRESENT, UNFINISHED, fits, jobs, leases, nodes, replicas, worlds
from brain.errors import UnknownNode
from brain.ports import StoredFit
from brain.types.job import JobId
from brain.types.order import NODES, Order, Place
from brain.types.pool import PoolLease
from brain.types.resources import Node, NodeName, PoolName
from brain.types.world import Replica, ReplicaState, World

#: Expiry of a released lease; its row stays, because its term must keep growing.
_LET_GO = datetime(1970, 1, 1, tzinfo=UTC)


class SqlWorlds:
    """``WorldStore``, with one row per world and one row per replica.

    ``known`` holds the worlds of jobs that this transaction has already read, ``newest`` their
    latest worlds and ``placed`` their present replicas.
    """

    def __init__(
        self,
        connection: sa.Connection,
        known: dict[JobId, Sequence[World]],
        newest: dict[JobId, World | None],
        placed: dict[JobId, Sequence[Replica]],
    ) -> None:
        self._connection = connection
        self._known = known
        self._newest = newest
        self._placed = placed

    def put(self, world: World) -> None:
        self._known.pop(world.job, None)
        self._newest.pop(world.job, None)
        upsert(self._connection, worlds, [row(world)])

    def latest(self, job: JobId) -> World | None:
        if job in self._known:
            return next(iter(self._known[job]), None)
        if job not in self._newest:
            self._newest[job] = next(iter(self._read(_LATEST, job)), None)
        return self._newest[job]

    def of(self, job: JobId) -> Sequence[World]:
        if job not in self._known:
            self._known[job] = self._read(_WORLDS_OF, job)
        return list(self._known[job])

    def read_ahead(self, jobs: Collection[JobId], *, every: bool = False) -> None:
        asked = {"jobs": list(jobs)}
        statement = _WORLDS_AMONG if every else _LATEST_AMONG
        found: dict[JobId, list[World]] = {job: [] for job in jobs}
        for each in values(World, self._connection.execute(statement, asked)):
            found[each.job].append(each)
        if every:
            self._known.update(found)
        self._newest.update((job, next(iter(mine), None)) for job, mine in found.items())
        placed: dict[JobId, list[Replica]] = {job: [] for job in jobs}
        for job, replica in _by_job(self._connection.execute(_PRESENT_AMONG, asked)):
            placed[job].append(replica)
        self._placed.update(placed)

    def put_replicas(self, job: JobId, replicas_: Iterable[Replica]) -> None:
        self._placed.pop(job, None)
        upsert(self._connection, replicas, [{**row(each), "job": job} for each in replicas_])

    def replicas(self, job: JobId) -> Sequence[Replica]:
        return values(Replica, self._connection.execute(_REPLICAS_OF, {"job": job}))

    def present(self, job: JobId) -> Sequence[Replica]:
        if job not in self._placed:
            found = self._connection.execute(_PRESENT_AMONG, {"jobs": [job]})
            self._placed[job] = values(Replica, found)
        return self._placed[job]

    def live(self, pool: PoolName) -> Mapping[JobId, Sequence[Replica]]:
        found: defaultdict[JobId, list[Replica]] = defaultdict(list)
        for job, replica in _by_job(self._connection.execute(_LIVE, {"pool": pool})):
            found[job].append(replica)
        return found

    def on(self, nodes: Collection[NodeName]) -> Mapping[JobId, Sequence[Replica]]:
        found: defaultdict[JobId, list[Replica]] = defaultdict(list)
        names = list(nodes)
        for first in range(0, len(names), _NAMES):
            asked = {"nodes": names[first : first + _NAMES]}
            for job, replica in _by_job(self._connection.execute(_REPLICAS_ON, asked)):
                found[job].append(replica)
        for replicas_ in found.values():
            replicas_.sort(key=lambda replica: (replica.id, replica.role))
        return found

    def _read(self, statement: sa.Select[Any], job: JobId) -> list[World]:
        return values(World, self._connection.execute(statement, {"job": job}))


def _by_job(found: sa.CursorResult[Any]) -> Iterator[tuple[JobId, Replica]]:
    columns = tuple(found.keys())
    read, job = reader(Replica, columns), columns.index("job")
    return ((each[job], read(each)) for each in found.all())


_MINE = sa.select(worlds).where(worlds.c.job == sa.bindparam("job"))
_WORLDS_OF = _MINE.order_by(worlds.c.epoch.desc())
_LATEST = _WORLDS_OF.limit(1)
_JOBS: sa.BindParameter[Any] = sa.bindparam("jobs", expanding=True)
_WORLDS_AMONG = (
    sa.select(worlds).where(worlds.c.job.in_(_JOBS)).order_by(worlds.c.job, worlds.c.epoch.desc())
)
_last = (
    sa.select(worlds.c.job, sa.func.max(worlds.c.epoch).label("epoch"))
    .where(worlds.c.job.in_(_JOBS))
    .group_by(worlds.c.job)
    .subquery("last")
)
_LATEST_AMONG = sa.select(worlds).join(
    _last, (_last.c.job == worlds.c.job) & (_last.c.epoch == worlds.c.epoch)
)
_PRESENT_AMONG = (
    sa.select(replicas)
    .where(
        replicas.c.job.in_(_JOBS),
        (replicas.c.state != ReplicaState.EXITED) | (replicas.c.unfit != ""),
    )
    .order_by(replicas.c.job, replicas.c.id, replicas.c.role)
)
_REPLICAS_OF = (
    sa.select(replicas)
    .where(replicas.c.job == sa.bindparam("job"))
    .order_by(replicas.c.id, replicas.c.role)
)
_LIVE = (
    sa.select(replicas)
    .where(replicas.c.job.in_(OF_POOL), replicas.c.state != ReplicaState.EXITED)
    .order_by(replicas.c.job, replicas.c.id, replicas.c.role)
)
#: Most names in one statement; SQLite takes 32,766.
_NAMES = 10_000
_REPLICAS_ON = sa.select(replicas).where(
    replicas.c.node.in_(sa.bindparam("nodes", expanding=True)),
    PRESENT,
    # SQLite would read all unfinished jobs for an IN.
    sa.exists().where(jobs.c.id == replicas.c.job, UNFINISHED),
)


class SqlNodes:
    """``NodeStore``, one row per node; ``known`` holds the nodes of pools that this transaction has
    already read.
    """

    def __init__(
        self, connection: sa.Connection, known: dict[PoolName | None, Sequence[Node]]
    ) -> None:
        self._connection = connection
        self._known = known

    def put(self, node: Node) -> None:
        self._known.clear()
        upsert(self._connection, nodes, [row(node)])

    def of(self, pool: PoolName | None = None) -> Sequence[Node]:
        if pool not in self._known:
            named = sa.select(nodes).order_by(nodes.c.name)
            asked = named if pool is None else named.where(nodes.c.pool == pool)
            self._known[pool] = self._read(asked)
        return list(self._known[pool])

    def page(self, *, after: Place | None, size: int, order: Order = NODES) -> Sequence[Node]:
        return self._read(page(nodes, order, after, size))

    def pools(self) -> Sequence[PoolName]:
        found = sa.select(nodes.c.pool).distinct().order_by(nodes.c.pool)
        return self._connection.execute(found).scalars().all()

    def remove(self, names: Collection[NodeName]) -> None:
        self._known.clear()
        self._connection.execute(sa.delete(nodes).where(nodes.c.name.in_(names)))

    def get(self, name: NodeName) -> Node:
        found = self._read(sa.select(nodes).where(nodes.c.name == name))
        if not found:
            raise UnknownNode(f"no node named {name} has registered; `brain nodes` lists the nodes")
        return found[0]

    def _read(self, statement: sa.Select[Any]) -> list[Node]:
        return values(Node, self._connection.execute(statement))


class SqlFits:
    """``FitStore``, with one row per job and kind of fit; ``known`` holds the fits that this
    transaction has already read.
    """

    def __init__(
        self, connection: sa.Connection, known: dict[tuple[JobId, str], StoredFit | None]
    ) -> None:
        self._connection = connection
        self._known = known

    def put(self, fit: StoredFit) -> None:
        upsert(self._connection, fits, [row(fit)])
        self._known[fit.job, fit.kind] = fit

    def read_ahead(self, jobs: Collection[JobId], *kinds: str) -> None:
        self._known.update(((job, kind), None) for job in jobs for kind in kinds)
        asked = {"jobs": list(jobs), "kinds": kinds}
        for each in self._connection.execute(_FITS_AMONG, asked).mappings():
            self._known[each["job"], each["kind"]] = value(StoredFit, each)

    def get(self, job: JobId, kind: str) -> StoredFit | None:
        if (job, kind) not in self._known:
            asked = {"job": job, "kind": kind}
            found = self._connection.execute(_FIT, asked).mappings().one_or_none()
            self._known[job, kind] = value(StoredFit, found) if found else None
        return self._known[job, kind]


_KINDS: sa.BindParameter[str] = sa.bindparam("kinds", expanding=True)
_FITS_AMONG = sa.select(fits).where(fits.c.job.in_(_JOBS), fits.c.kind.in_(_KINDS))
_FIT = sa.select(fits).where(fits.c.job == sa.bindparam("job"), fits.c.kind == sa.bindparam("kind"))


class SqlLeases:
    """``LeaseStore``, one row per pool."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def acquire(
        self, pool: PoolName, holder: str, *, until: datetime, now: datetime
    ) -> PoolLease | None:
        # One statement, so that the second of two concurrent writers sees the row of the first.
        take = insert(self._connection, leases).values(
            pool=pool, holder=holder, term=1, expires_at=until
        )
        mine = leases.c.holder == take.excluded.holder
        taken = take.on_conflict_do_update(
            index_elements=[leases.c.pool],
            set_={
                "holder": take.excluded.holder,
                "term": leases.c.term + sa.case((mine, 0), else_=1),
                "expires_at": take.excluded.expires_at,
            },
            where=mine
            | (leases.c.expires_at <= now)
            | (leases.c.expires_at > until + (until - now)),
        ).returning(*leases.c)
        found = self._connection.execute(taken).mappings().one_or_none()
        return value(PoolLease, found) if found else None

    def release(self, pool: PoolName, holder: str) -> None:
        mine = (leases.c.pool == pool) & (leases.c.holder == holder)
        self._connection.execute(sa.update(leases).where(mine).values(expires_at=_LET_GO))
