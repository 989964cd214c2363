"""Engines: how connections to SQLite and PostgreSQL are opened, and how transactions begin."""

import json
import sqlite3
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from brain.db import faults
from brain.errors import BadInput

#: Seconds to wait for another's lock, or for a connection, before saying so.
PATIENCE_SECONDS = 10.0
#: One for each of the service's 42 threads (``brain.api.app``), and some for what it does beside
#: requests; a connection that waits for its turn costs nothing. Two Brains have room in
#: PostgreSQL's default of 100.
_CONNECTIONS = 48


def database_url(url: str) -> sa.URL:
    """Read the setting ``database_url``; ``postgresql://`` means psycopg 3.

    Raises:
        BadInput: it is no URL, or one of another database.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as bad:
        raise BadInput(
            f"database_url {url!r} is no URL; write sqlite:////absolute/path or postgresql://…",
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
        f"database_url of {backend}: only sqlite and postgresql are supported",
        field="database_url",
    )


def sqlite_file(url: sa.URL) -> Path:
    """The file of an SQLite URL."""
    assert url.database
    return Path(url.database.removeprefix("file:"))


def open_engine(url: str, *, patience_seconds: float = PATIENCE_SECONDS) -> sa.Engine:
    """An engine whose connections are set up and whose errors are translated."""
    parsed = database_url(url)
    made = _postgresql if parsed.drivername.startswith("postgresql") else _sqlite
    engine = made(parsed, patience_seconds)
    faults.install(engine)
    return engine


def _as_text(json: str | bytes) -> str:
    return json if isinstance(json, str) else json.decode()


def _create(url: sa.URL, patience_seconds: float, **options: object) -> sa.Engine:
    return sa.create_engine(
        url,
        # Not a number is no JSON: refused when written, or the row could never be read again.
        json_serializer=partial(json.dumps, allow_nan=False),
        # Columns decode it by their types.
        json_deserializer=_as_text,
        pool_size=5,
        max_overflow=_CONNECTIONS - 5,
        pool_timeout=patience_seconds,
        **options,
    )


def _postgresql(url: sa.URL, patience_seconds: float) -> sa.Engine:
    options = f"-c timezone=UTC -c lock_timeout={round(patience_seconds * 1000)}"
    return _create(
        url,
        patience_seconds,
        # A restarted server costs one ping, not one failed request per connection.
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "application_name": "brain", "options": options},
    )


def _sqlite(url: sa.URL, patience_seconds: float) -> sa.Engine:
    engine = _create(url, patience_seconds)

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _: object) -> None:
        # The driver must not begin transactions by itself: it would begin them too late.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {round(patience_seconds * 1000)}")
        if not connection.execute("PRAGMA page_count").fetchone()[0]:
            # Of a new file alone, because it takes the writers' lock: retirement gives pages back.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # WAL alone may forget the last commits in a power cut; acknowledged means on disk.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads = bool(connection.get_execution_options().get(faults.READ_ONLY))
        connection.exec_driver_sql(f"PRAGMA query_only = {int(reads)}")
        # A writer that began as a reader would fail, not wait, once somebody else has written.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine
