"""Opens connections to SQLite and PostgreSQL, and begins transactions."""

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from brain.db import faults
from brain.errors import BadInput

#: Seconds to wait for another's lock, or for a connection, before an error.
PATIENCE_SECONDS = 10.0
#: Most connections: one for each of the service's 42 threads (``brain.api.app``), and some for its
#: work beside requests; an idle connection costs nothing. Two Brains fit PostgreSQL's default of
#: 100.
CONNECTIONS = 48
#: Connections that stay open when they are idle.
_IDLE = 5
#: Key in a connection's info: True behind a pooler such as PgBouncer, where each transaction may
#: get another session.
_POOLED = "brain_pooled"
#: The process of the session. PgBouncer itself carries a client's time zone from session to
#: session.
_ZONE = "SELECT pg_backend_pid(), set_config('TimeZone', 'UTC', false)"


def database_url(url: str) -> sa.URL:
    """Parse the setting ``database_url``; ``postgresql://`` means psycopg 3.

    Raises:
        BadInput: the setting is not a URL, or names another kind of database.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as bad:
        raise BadInput(
            f"database_url {url!r} is not a URL; write sqlite:////absolute/path or postgresql://…",
            field="database_url",
        ) from bad
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise BadInput(
                "database_url sqlite:// names no file; write sqlite:////absolute/path",
                field="database_url",
            )
        return parsed.set(drivername="sqlite+pysqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise BadInput(
        f"database_url names {backend}, but only sqlite and postgresql are supported; name one of "
        "them",
        field="database_url",
    )


def sqlite_file(url: sa.URL) -> Path:
    assert url.database
    return Path(url.database.removeprefix("file:"))


def open_engine(
    url: str, *, patience_seconds: float = PATIENCE_SECONDS, connections: int = CONNECTIONS
) -> sa.Engine:
    """Return an engine for a database; the engine sets up each connection, and raises the errors of
    ``brain.errors``.

    A thread that finds all ``connections`` in use waits ``patience_seconds`` for one.
    """
    parsed = database_url(url)
    made = _postgresql if parsed.drivername.startswith("postgresql") else _sqlite
    engine = made(parsed, patience_seconds, connections)
    faults.install(engine)
    return engine


def _as_text(json: str | bytes) -> str:
    return json if isinstance(json, str) else json.decode()


#: A host that is gone ends its connections within half a minute. The kernel's own limits are two
#: hours of silence, and a quarter of an hour for what is under way.
_GONE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def _create(url: sa.URL, patience_seconds: float, connections: int, **options: object) -> sa.Engine:
    return sa.create_engine(
        url,
        # NaN is not JSON: it is refused at writing, because the row could never be read again.
        json_serializer=partial(json.dumps, allow_nan=False),
        # Column types decode the text.
        json_deserializer=_as_text,
        pool_size=min(_IDLE, connections),
        max_overflow=max(0, connections - _IDLE),
        pool_timeout=patience_seconds,
        **options,
    )


def _postgresql(url: sa.URL, patience_seconds: float, connections: int) -> sa.Engine:
    engine = _create(
        url,
        patience_seconds,
        connections,
        # A restarted server costs one ping, not one failed request per connection.
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "application_name": "brain", **_GONE},
    )
    patience = f"{round(patience_seconds * 1000)}ms"

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: psycopg.Connection[Any], record: sa.pool.ConnectionPoolEntry) -> None:
        # Not at the start of the connection: a pooler refuses options there.
        pid, _ = connection.execute(_ZONE).fetchone() or (0, "")
        # A pooler reports a number of its own.
        if pooled := pid != connection.info.backend_pid:
            # The next statement may run in another session, which does not know the prepared one.
            connection.prepare_threshold = None
        else:
            connection.execute("SELECT set_config('lock_timeout', %s, false)", (patience,))
        connection.commit()
        record.info[_POOLED] = pooled

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.info[_POOLED]:
            connection.exec_driver_sql("SELECT set_config('lock_timeout', %s, true)", (patience,))

    return engine


def _sqlite(url: sa.URL, patience_seconds: float, connections: int) -> sa.Engine:
    engine = _create(url, patience_seconds, connections)

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _: object) -> None:
        # The driver must not begin transactions by itself, because it begins them too late.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {round(patience_seconds * 1000)}")
        if not connection.execute("PRAGMA page_count").fetchone()[0]:
            # Only for a new file, because this takes the writers' lock: retirement gives pages
            # back.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # WAL alone may lose the last commits in a power cut; an acknowledged commit must be on
        # disk.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads = bool(connection.get_execution_options().get(faults.READ_ONLY))
        connection.exec_driver_sql(f"PRAGMA query_only = {int(reads)}")
        # A transaction that first reads and then writes would fail, instead of waiting, once
        # another one has written.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine
