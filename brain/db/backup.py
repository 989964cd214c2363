"""A database as one file and back: SQLite's online copy, PostgreSQL's pg_dump and pg_restore."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import sqlalchemy as sa

from brain.db.engine import database_url, open_engine, sqlite_file
from brain.db.schema import copy_sqlite, current, set_aside
from brain.errors import Conflict, NotFound, Unavailable

#: Characters of a program's last words that are shown.
_LAST_WORDS = 300
#: Seconds within which a Brain that was stopped has left PostgreSQL.
_PATIENCE_SECONDS = 5.0


def backend_of(url: str) -> str:
    """Return ``sqlite`` or ``postgresql``."""
    return database_url(url).get_backend_name()


def dump(url: str, file: Path) -> str:
    """Write the database as it is at one moment, while others write it; return its revision.

    Raises:
        NotFound: there is no database of Brain.
        Unavailable: it cannot be read, the file not be written, or pg_dump is not installed.
    """
    found = database_url(url)
    if backend_of(url) == "sqlite":
        if not sqlite_file(found).exists():
            raise _nothing(found)
        copy_sqlite(sqlite_file(found), file)
        return _revision(f"sqlite:///{file}", found)
    revision = _revision(url, found)
    _postgresql("pg_dump", found, "--format=custom", f"--file={file}")
    return revision


def load(url: str, file: Path, *, overwrite: bool) -> Path | None:
    """Put back what ``dump`` wrote, whole or not at all; return the copy of an SQLite file that
    was there before.

    Raises:
        Conflict: there is a database already, or a Brain is connected to it.
        Unavailable: it cannot be written, or pg_restore is not installed.
    """
    found = database_url(url)
    if backend_of(url) == "sqlite":
        return _load_sqlite(sqlite_file(found), file, overwrite=overwrite)
    _make_empty(url, overwrite=overwrite)
    _postgresql("pg_restore", found, "--single-transaction", "--exit-on-error", str(file))
    return None


def _load_sqlite(target: Path, file: Path, *, overwrite: bool) -> Path | None:
    before = None
    if target.exists():
        if not overwrite:
            raise _occupied(str(target))
        before = set_aside(target, "restore")
        for each in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm"))):
            each.unlink(missing_ok=True)
    copy_sqlite(file, target)
    return before


def _make_empty(url: str, *, overwrite: bool) -> None:
    engine = open_engine(url)
    where = engine.url.render_as_string(hide_password=True)
    try:
        if not _left_alone(engine):
            raise Conflict(f"a Brain is connected to {where}; stop all of them, then restore")
        with engine.begin() as connection:
            tables = sa.inspect(connection).get_table_names()
            if tables and not overwrite:
                raise _occupied(where)
            for table in tables:
                quoted = engine.dialect.identifier_preparer.quote(table)
                connection.exec_driver_sql(f"DROP TABLE {quoted} CASCADE")
    finally:
        engine.dispose()


def _left_alone(engine: sa.Engine) -> bool:
    """True if no other Brain is connected; the server takes a moment to end a session."""
    others = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'brain' "
        "AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with engine.begin() as connection:
            if not connection.execute(others).scalar_one():
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def _occupied(where: str) -> Conflict:
    return Conflict(
        f"{where} is not empty; restore into a new database, or say --overwrite to give up what "
        "is in it"
    )


def _nothing(found: sa.URL) -> NotFound:
    return NotFound(
        f"{found.render_as_string(hide_password=True)} is no database of Brain; name the state "
        "directory with --home, or the database with --database-url"
    )


def _revision(url: str, found: sa.URL) -> str:
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            revision = current(connection)
    finally:
        engine.dispose()
    if revision is None:
        raise _nothing(found)
    return revision


def _postgresql(program: str, url: sa.URL, *arguments: str) -> None:
    """Run a program of PostgreSQL's; the password is in its environment, which nobody else reads.

    Raises:
        Unavailable: it is not installed, or it failed; with its last words.
    """
    if shutil.which(program) is None:
        raise Unavailable(
            f"{program} is not installed, which does this for PostgreSQL; install the client of "
            "your server's version (Debian: apt-get install postgresql-client)"
        )
    bare = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    password = {"PGPASSWORD": str(url.password)} if url.password else {}
    done = subprocess.run(
        [program, "--no-owner", "--no-acl", f"--dbname={bare}", *arguments],
        env=os.environ | password,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Unavailable(f"{program} failed: {done.stderr.strip()[-_LAST_WORDS:]}")
