"""A database as one file, and its restoration: SQLite's online copy, PostgreSQL's pg_dump and
pg_restore.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from brain.db.engine import database_url, open_engine, sqlite_file
from brain.db.schema import copy_sqlite, current, displace
from brain.errors import Conflict, NotFound, Unavailable

#: Most characters of a program's last output that are shown.
_LAST_WORDS = 300
#: Seconds after which PostgreSQL has ended the sessions of a stopped Brain.
_PATIENCE_SECONDS = 5.0


def backend_of(url: str) -> str:
    """Return the kind of database that a URL names: ``sqlite`` or ``postgresql``."""
    return database_url(url).get_backend_name()


def dump(url: str, file: Path) -> str:
    """Write the database as it is at one moment, while other processes write to it; return its
    revision.

    Raises:
        NotFound: there is no database of Brain.
        Unavailable: the database cannot be read, the file cannot be written, or pg_dump is missing.
    """
    found = database_url(url)
    if backend_of(url) == "sqlite":
        if not sqlite_file(found).exists():
            raise _nothing(found)
        copy_sqlite(sqlite_file(found), file)
        return _revision(f"sqlite:///{file}", found)
    revision = _revision(url, found)
    _dump_postgresql(found, file)
    return revision


def load(url: str, file: Path, *, overwrite: bool) -> Path | None:
    """Restore a dump completely, or change nothing.

    Returns the path to which an existing SQLite file was moved.

    Raises:
        Conflict: the target is not empty, or a Brain is connected to it.
        Unavailable: the database cannot be written, or PostgreSQL's client is not installed.
    """
    found = database_url(url)
    if backend_of(url) == "sqlite":
        return _load_sqlite(sqlite_file(found), file, overwrite=overwrite)
    _replay(found, file, _occupying(url, overwrite=overwrite))
    return None


def _load_sqlite(target: Path, file: Path, *, overwrite: bool) -> Path | None:
    if target.exists() and not overwrite:
        raise _occupied(str(target))
    # The copy is complete before the old file, which may be damaged, is moved away.
    ready = target.with_name(f"{target.name}.restoring")
    copy_sqlite(file, ready)
    before = displace(target, "restore") if target.exists() else None
    for end in ("-wal", "-shm"):  # the log of a removed file would be read into the next file
        target.with_name(target.name + end).unlink(missing_ok=True)
    ready.replace(target)
    return before


def _occupying(url: str, *, overwrite: bool) -> Sequence[str]:
    """Return the quoted names of the tables that the restored ones replace."""
    engine = open_engine(url)
    where = engine.url.render_as_string(hide_password=True)
    try:
        if not _left_alone(engine):
            raise Conflict(
                f"a Brain process is connected to {where}; stop every Brain process, then restore"
            )
        with engine.connect() as connection:
            tables = sa.inspect(connection).get_table_names()
    finally:
        engine.dispose()
    if tables and not overwrite:
        raise _occupied(where)
    return [engine.dialect.identifier_preparer.quote(table) for table in tables]


def _replay(found: sa.URL, file: Path, tables: Sequence[str]) -> None:
    """Drop tables and restore others in one transaction, which is rolled back if anything fails."""
    _expect_installed("psql")
    _expect_installed("pg_restore")
    # A partition is gone with its table.
    first = ["BEGIN", *(f"DROP TABLE IF EXISTS {table} CASCADE" for table in tables)]
    with subprocess.Popen(
        [
            *("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"),
            f"--dbname={_bare(found)}",
            *(f"--command={statement}" for statement in first),
            "--file=-",
        ],
        env=os.environ | _password(found),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as psql:
        restored = subprocess.run(
            ["pg_restore", "--no-owner", "--no-acl", "--file=-", str(file)],
            stdout=psql.stdin,
            stderr=subprocess.PIPE,
            text=True,
        )
        _, said = psql.communicate("" if restored.returncode else "COMMIT;\n")
    # If psql failed, pg_restore only lost its reader.
    _expect_done("psql", psql.returncode, said)
    _expect_done("pg_restore", restored.returncode, restored.stderr)


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
        f"{where} is not empty; restore into a new database, or use --overwrite to replace it"
    )


def _nothing(found: sa.URL) -> NotFound:
    return NotFound(
        f"{found.render_as_string(hide_password=True)} is not a database of Brain; name the state "
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


def _dump_postgresql(url: sa.URL, file: Path) -> None:
    _expect_installed("pg_dump")
    done = subprocess.run(
        [
            *("pg_dump", "--no-owner", "--no-acl", "--format=custom"),
            f"--dbname={_bare(url)}",
            f"--file={file}",
        ],
        env=os.environ | _password(url),
        capture_output=True,
        text=True,
    )
    _expect_done("pg_dump", done.returncode, done.stderr)


def _bare(url: sa.URL) -> str:
    return url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)


def _password(url: sa.URL) -> dict[str, str]:
    """Return the password as a variable: others cannot read a process's environment."""
    return {"PGPASSWORD": str(url.password)} if url.password else {}


def _expect_installed(program: str) -> None:
    if shutil.which(program) is None:
        raise Unavailable(
            f"a backup or restore of PostgreSQL needs {program}, which is not installed; install "
            "the client of your server's version (Debian: apt-get install postgresql-client)"
        )


def _expect_done(program: str, code: int, said: str) -> None:
    if code:
        raise Unavailable(f"{program} failed: {said.strip()[-_LAST_WORDS:]}")
