"""The schema: the revision of a database, and its upgrade to the revision of this code."""

import fcntl
import itertools
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory

import brain
from brain.db.engine import open_engine, sqlite_file
from brain.db.faults import READ_ONLY, domain_error
from brain.errors import SchemaTooNew, Unavailable

#: Key of the advisory lock of migrations on PostgreSQL.
_MIGRATIONS = 0x627261696E21
#: Copies of an SQLite file that are kept.
_COPIES = 3
#: The oldest supported PostgreSQL, which is also tested.
_POSTGRESQL = (15,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """The result of bringing the schema up to date."""

    #: Revision before and after; None: there was no schema.
    before: str | None
    after: str
    #: Copy of the SQLite file, made before any change.
    copy: Path | None = None
    #: *Contract* steps that are left for ``brain migrate``, oldest first.
    pending: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Return one or two sentences for the log; an empty string if no step was
        done or remains.
        """
        said = []
        if self.before != self.after:
            said.append(f"migrated the database from {self.before or 'nothing'} to {self.after}")
        if self.copy:
            said.append(f"the copy of the previous database is {self.copy}")
        if self.pending:
            said.append(
                f"contract steps {', '.join(self.pending)} are pending: run brain migrate once no "
                "older Brain is running"
            )
        return "; ".join(said)


def prepare(url: str, *, contract: bool = False, migrations: Path | None = None) -> MigrationResult:
    """Bring the database to this code's schema, under a lock for which other processes wait.

    At service start only *expand* steps run on PostgreSQL, because an older Brain may still be
    serving beside this one. ``brain migrate`` sets ``contract=True``, which also runs *contract*
    steps. An SQLite file belongs to one Brain: every step runs, and an existing file is copied
    first. ``migrations`` is the directory of the shipped steps.

    Raises:
        SchemaTooNew: a newer Brain wrote the database.
        Unavailable: the database cannot be reached or written; nothing was changed.
    """
    engine = open_engine(url)
    try:
        if engine.dialect.name == "sqlite":
            file = sqlite_file(engine.url)
            with _file_lock(file):
                _make_private(file)
                with engine.begin() as connection:
                    return _migrate(connection, contract=True, migrations=migrations)
        with engine.begin() as connection:
            _refuse_old_server(connection)
            # Longer than for other locks: a migration takes a while, and nothing works before its
            # end.
            connection.execute(sa.text("SET LOCAL lock_timeout = '120s'"))
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATIONS)))
            return _migrate(connection, contract=contract, migrations=migrations)
    finally:
        engine.dispose()


def missing(url: str, *, migrations: Path | None = None) -> tuple[str, ...]:
    """Return the steps that ``brain migrate`` would take, oldest first; nothing is changed.

    Raises:
        SchemaTooNew: a newer Brain wrote the database.
        Unavailable: the database cannot be reached or read.
    """
    engine = open_engine(url)
    try:
        if engine.dialect.name == "sqlite" and not sqlite_file(engine.url).exists():
            # Opening the file to look into it would create it.
            steps = ScriptDirectory(str(migrations or migrations_path()))
            return tuple(step.revision for step in _missing(steps, None))
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            steps = ScriptDirectory.from_config(config(connection, migrations))
            return tuple(step.revision for step in _missing(steps, current(connection)))
    finally:
        engine.dispose()


def current(connection: sa.Connection) -> str | None:
    """Return the revision of a database; None if there is no schema."""
    return MigrationContext.configure(connection).get_current_revision()


def expect_known(revision: str) -> None:
    """Check that this version of Brain can use or migrate a database with this revision.

    Raises:
        SchemaTooNew: a newer version of Brain wrote the database.
    """
    _missing(ScriptDirectory(str(migrations_path())), revision)


def config(connection: sa.Connection, migrations: Path | None = None) -> Config:
    """Return Alembic's configuration, which reads no file and contains the database connection."""
    made = Config()
    made.set_main_option("script_location", str(migrations or migrations_path()).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def migrations_path() -> Path:
    """Return the directory of the migrations.

    It is inside the package if Brain is installed, and beside the package in a checkout.
    """
    package = Path(brain.__file__).parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


def _migrate(
    connection: sa.Connection, *, contract: bool, migrations: Path | None
) -> MigrationResult:
    made = config(connection, migrations)
    scripts = ScriptDirectory.from_config(made)
    before = current(connection)
    missing = _missing(scripts, before)
    waiting = next((i for i, step in enumerate(missing) if step.module.KIND == "contract"), None)
    # No older Brain can be serving from a new database.
    now = missing if contract or not before or waiting is None else missing[:waiting]
    copy = None
    if now and before and connection.dialect.name == "sqlite":
        copy = set_aside(sqlite_file(connection.engine.url), now[-1].revision)
    if now:
        command.upgrade(made, now[-1].revision)
    return MigrationResult(
        before=before,
        after=now[-1].revision if now else before or "",
        copy=copy,
        pending=tuple(step.revision for step in missing[len(now) :]),
    )


def _missing(scripts: ScriptDirectory, before: str | None) -> list[Script]:
    known = {step.revision for step in scripts.walk_revisions()}
    if before is not None and before not in known:
        raise SchemaTooNew(
            f"the database is at revision {before}, which this version {brain.__version__} does "
            "not know; run the newer Brain, or put back the copy it made (brain.db.before-…)"
        )
    steps = scripts.iterate_revisions("head", before or "base")
    return [step for step in steps if step.revision != before][::-1]


@contextmanager
def _file_lock(database: Path) -> Iterator[None]:
    lock = database.with_name(f"{database.name}.migrating")
    try:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise Unavailable(
            f"{lock} cannot be written ({refused.strerror}): create its directory and give this "
            "user write permission"
        ) from refused
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make_private(file: Path) -> None:
    """Make a file that other users cannot read, because it will hold tokens and secrets."""
    if not file.exists():
        file.touch(mode=0o600)


def set_aside(database: Path, name: str) -> Path:
    """Copy an SQLite file to ``….before-<name>`` beside it, with all committed changes.

    An earlier copy is not overwritten, because its content may differ: a database that was restored
    may be migrated again.
    """
    copy = _free_name(database, name)
    copy_sqlite(database, copy)
    _forget_old(database)
    return copy


def displace(database: Path, name: str) -> Path:
    """Rename an SQLite file that nobody uses, damaged or not, to ``….before-<name>``."""
    copy = _free_name(database, name)
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # The log of a damaged file moves with it, or SQLite would read the log into the next file.
    for end in ("-wal", "-shm", ""):
        if (part := database.with_name(database.name + end)).exists():
            part.rename(copy.with_name(copy.name + end))
    os.utime(copy)  # the newest copy, whatever the age of the file
    _forget_old(database)
    return copy


def _free_name(database: Path, name: str) -> Path:
    first = database.with_name(f"{database.name}.before-{name}")
    more = (first.with_name(f"{first.name}.{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([first], more) if not path.exists())


def _forget_old(database: Path) -> None:
    found = database.parent.glob(f"{database.name}.before-*")
    copies = [each for each in found if not each.name.endswith(("-wal", "-shm"))]
    for old in sorted(copies, key=lambda each: each.stat().st_mtime)[:-_COPIES]:
        for end in ("", "-wal", "-shm"):
            old.with_name(old.name + end).unlink(missing_ok=True)


def copy_sqlite(database: Path, copy: Path) -> None:
    """Copy an SQLite file with its write-ahead log, completely or not at all, while other processes
    write to it.

    Raises:
        Unavailable: one of the files cannot be read or written.
    """
    unfinished = copy.with_name(f"{copy.name}.partial")
    try:
        unfinished.unlink(missing_ok=True)
        _make_private(unfinished)
        with (
            closing(sqlite3.connect(database)) as source,
            closing(sqlite3.connect(unfinished)) as target,
        ):
            source.backup(target)
        unfinished.replace(copy)
    except sqlite3.Error as refused:
        raise domain_error(refused, str(unfinished)) or refused from refused
    except OSError as refused:
        raise Unavailable(
            f"{unfinished} cannot be written ({refused.strerror}); nothing was changed"
        ) from refused
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_old_server(connection: sa.Connection) -> None:
    version = connection.dialect.server_version_info
    if version and version < _POSTGRESQL:
        raise Unavailable(
            f"PostgreSQL {'.'.join(map(str, version))} is older than {_POSTGRESQL[0]}; upgrade it"
        )
