"""``Stores`` in SQL: a transaction has one connection, which all stores use."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import sqlalchemy as sa

from brain.db.ahead import KnownSamples
from brain.db.engine import CONNECTIONS, PATIENCE_SECONDS, open_engine, sqlite_file
from brain.db.faults import READ_ONLY
from brain.db.jobs import SqlJobs, SqlPlans
from brain.db.pools import SqlPools
from brain.db.records import SqlAccess, SqlAudit, SqlEvents, SqlFreezes, SqlTokenUses
from brain.db.space import free_bytes, shrink
from brain.db.telemetry import SqlTelemetry
from brain.db.worlds import SqlFits, SqlLeases, SqlNodes, SqlWorlds
from brain.errors import Unavailable
from brain.ports import StoredFit
from brain.types.job import Job, JobId
from brain.types.plan import ScalePlan
from brain.types.pool import Freeze
from brain.types.recommendation import Recommendation
from brain.types.resources import Node, PoolName
from brain.types.world import Replica, World

#: Key of the advisory lock of writers; any number that nothing else in the database uses.
_WRITERS = 0x627261696E


class SqlTransaction:
    """All stores on one connection.

    A transaction caches the plans, worlds, fits, nodes and freezes that it has read. No other
    transaction writes them meanwhile, and a turn (one pass of decisions about a pool) reads each of
    them several times. A transaction also caches rows that were read ahead.
    """

    def __init__(self, connection: sa.Connection, *, read_only: bool) -> None:
        self._connection = connection
        self._free = read_only or connection.dialect.name != "postgresql"
        self._jobs: dict[str, Job] = {}
        self._named: dict[tuple[str, str], Job] = {}
        self._plans: dict[JobId, Sequence[ScalePlan]] = {}
        self._effective: dict[JobId, tuple[Sequence[ScalePlan], int]] = {}
        self._decisions: dict[JobId, Recommendation | None] = {}
        self._undecided: set[JobId] = set()
        self._worlds: dict[JobId, Sequence[World]] = {}
        self._latest: dict[JobId, World | None] = {}
        self._present: dict[JobId, Sequence[Replica]] = {}
        self._nodes: dict[PoolName | None, Sequence[Node]] = {}
        self._freezes: list[Sequence[Freeze]] = []
        self._samples = KnownSamples()
        self._fits: dict[tuple[JobId, str], StoredFit | None] = {}

    @property
    def telemetry(self) -> SqlTelemetry:
        """Return the samples; on PostgreSQL several transactions may write samples at the same
        time.
        """
        return SqlTelemetry(self._connection, self._samples)

    @property
    def uses(self) -> SqlTokenUses:
        """Return the last uses of tokens; transactions that write them do not wait
        for each other.
        """
        return SqlTokenUses(self._connection)

    @property
    def jobs(self) -> SqlJobs:
        return SqlJobs(self._in_turn(), self._jobs, self._named)

    @property
    def plans(self) -> SqlPlans:
        return SqlPlans(
            self._in_turn(), self._plans, self._decisions, self._effective, self._undecided
        )

    @property
    def fits(self) -> SqlFits:
        """Fitted models."""
        return SqlFits(self._in_turn(), self._fits)

    @property
    def leases(self) -> SqlLeases:
        """The leases of pools; the holder of a lease decides for its pool."""
        return SqlLeases(self._in_turn())

    @property
    def worlds(self) -> SqlWorlds:
        return SqlWorlds(self._in_turn(), self._worlds, self._latest, self._present)

    @property
    def nodes(self) -> SqlNodes:
        return SqlNodes(self._in_turn(), self._nodes)

    @property
    def events(self) -> SqlEvents:
        return SqlEvents(self._in_turn())

    @property
    def audit(self) -> SqlAudit:
        """The audit log: principals and their actions."""
        return SqlAudit(self._in_turn())

    @property
    def access(self) -> SqlAccess:
        """Tokens, sign-in codes, stored answers to requests, and secret values of jobs."""
        return SqlAccess(self._in_turn())

    @property
    def freezes(self) -> SqlFreezes:
        return SqlFreezes(self._in_turn(), self._freezes)

    @property
    def pools(self) -> SqlPools:
        """The policies and latest rounds of pools."""
        return SqlPools(self._in_turn())

    def _in_turn(self) -> sa.Connection:
        # Ids are assigned when rows are inserted, not when they commit. So of two open transactions
        # the later id could become visible first, and an SSE client that resumes after it would
        # never see the earlier one. So transactions that may write an event go one after another,
        # as they do on SQLite, and take this lock before any row's, so that no two can wait for
        # each other.
        if not self._free:
            self._connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITERS)))
            self._free = True
        return self._connection


class SqlStores:
    """Stores in a database that ``brain.db.prepare`` has brought to this code's schema."""

    def __init__(
        self,
        url: str,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        connections: int = CONNECTIONS,
    ) -> None:
        self._engine = open_engine(url, patience_seconds=patience_seconds, connections=connections)
        self._sqlite = self._engine.dialect.name == "sqlite"
        # SQLite itself polls for its lock, up to 100 ms apart; this lock is passed on at once.
        self._writing = Lock() if self._sqlite else None
        self._patience_seconds = patience_seconds

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[SqlTransaction]:
        """Open a transaction; see ``brain.ports.Stores``."""
        with (
            self._turn(read_only=read_only),
            self._connection(read_only=read_only) as connection,
            connection.begin(),
        ):
            yield SqlTransaction(connection, read_only=read_only)

    def size_bytes(self) -> int:
        """Return the size of the database's files in bytes, including the write-ahead log."""
        if self._sqlite:
            file = sqlite_file(self._engine.url)
            files = (file, file.with_name(f"{file.name}-wal"))
            return sum(each.stat().st_size for each in files if each.exists())
        with self._connection(read_only=True) as connection:
            size = sa.func.pg_database_size(sa.func.current_database())
            return int(connection.execute(sa.select(size)).scalar_one())

    def free_bytes(self) -> int:
        """Return the size of the free pages of an SQLite file in bytes; PostgreSQL manages its own
        pages.
        """
        return free_bytes(self._engine) if self._sqlite else 0

    def shrink(self, *, whole: bool) -> int:
        """Give an SQLite file's free pages back to the file system while other processes use the
        file; return the number of freed bytes.

        With ``whole``, a file from an earlier release, which kept free pages, is rewritten; this
        blocks other writers for a while.
        """
        return shrink(self._engine, whole=whole) if self._sqlite else 0

    def close(self) -> None:
        """Close all connections; a connection in use is closed once its thread returns it."""
        sa.event.listen(self._engine, "checkin", lambda _, record: record.invalidate())
        self._engine.dispose()

    @contextmanager
    def _turn(self, *, read_only: bool) -> Iterator[None]:
        if self._writing is None or read_only:
            yield
            return
        if not self._writing.acquire(timeout=self._patience_seconds):
            raise Unavailable(
                f"another transaction has been open for {self._patience_seconds:g} s; "
                "transactions may not be nested"
            )
        try:
            yield
        finally:
            self._writing.release()

    def _connection(self, *, read_only: bool) -> sa.Connection:
        options: dict[str, object] = {READ_ONLY: read_only}
        if read_only and not self._sqlite:
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            return self._engine.connect().execution_options(**options)
        except sa.exc.TimeoutError as full:
            raise Unavailable(
                "all connections to the database are in use; retry later, or raise "
                "database_connections"
            ) from full
