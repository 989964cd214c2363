"""A PostgreSQL server of the tests' own: started once per session, thrown away at the end."""

import glob
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

_REMEDY = (
    "PostgreSQL's server binaries (initdb, postgres; 15 or later) were not found. "
    "Debian, Ubuntu: apt-get install -y postgresql. Fedora: dnf install postgresql-server. "
    "macOS: brew install postgresql@17."
)
_START_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """A running server that listens on a socket in ``directory`` and nowhere else."""

    directory: Path
    _count: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str) -> str:
        """The ``database_url`` of one of its databases."""
        return f"postgresql://brain@/{database}?host={self.directory}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """A database without any table; yields its name."""
        name = f"test_{next(self._count)}"
        with self.connected("postgres") as connection:
            connection.execute(_naming("CREATE DATABASE {} TEMPLATE template0", name))
        try:
            yield name
        finally:
            with self.connected("postgres") as connection:
                connection.execute(_naming("DROP DATABASE {} WITH (FORCE)", name))

    def empty(self, database: str, tables: Iterable[str]) -> None:
        """Delete all rows; a hundred times faster than a database for each test."""
        with self.connected(database) as connection, connection.transaction():
            for table in tables:
                connection.execute(_naming("DELETE FROM {}", table))

    def connected(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        """A plain connection, to look at or harm what Brain does not show."""
        where = f"host={self.directory} user=brain dbname={database}"
        return psycopg.connect(where, autocommit=True)


def _naming(statement: LiteralString, name: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(name))


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """Start a server, as another user where we are root, which it refuses.

    A ``durable`` one has the settings that PostgreSQL comes with.
    """
    binaries = _binaries()
    # Short: the path of a socket has 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="brain-pg-"))
    other = ("--reuid=postgres", "--regid=postgres", "--clear-groups")
    as_other = other if os.geteuid() == 0 else ()
    if as_other:
        shutil.chown(directory, "postgres", "postgres")
    data = directory / "data"
    initdb = (binaries / "initdb", "-D", data, "-U", "brain", "-A", "trust", "--no-sync")
    locale = ("--encoding=UTF8", "--locale=C.UTF-8")
    try:
        subprocess.run(
            ["setpriv", *as_other, *initdb, *locale], check=True, capture_output=True, cwd="/"
        )
        # It ends with us, however we end.
        alone = ("setpriv", *as_other, "--pdeathsig", "QUIT")
        with _running(
            [*alone, binaries / "postgres", "-D", data, *_settings(directory, durable=durable)]
        ):
            yield Server(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _binaries() -> Path:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = glob.glob("/usr/lib/postgresql/*/bin/initdb") + glob.glob("/usr/pgsql-*/bin/initdb")
    if not versions:
        raise RuntimeError(_REMEDY)
    return Path(max(versions)).parent


def _settings(directory: Path, *, durable: bool) -> list[str]:
    where = {"listen_addresses": "", "unix_socket_directories": directory}
    settings: dict[str, object] = (
        {}
        if durable
        else {
            # Thrown away at the end; nothing here needs to survive a power cut.
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": "60",
            "shared_buffers": "32MB",
            # Another zone than UTC, so that a naive comparison shows.
            "timezone": "Asia/Kathmandu",
        }
    )
    return [
        word for name, value in (where | settings).items() for word in ("-c", f"{name}={value}")
    ]


@contextmanager
def _running(command: list[object]) -> Iterator[None]:
    process = subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, text=True, cwd="/", encoding="utf-8"
    )
    ready, said = threading.Event(), list[str]()
    reader = threading.Thread(target=_listen, args=(process, ready, said), daemon=True)
    reader.start()
    try:
        if not ready.wait(_START_SECONDS) or process.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start: {''.join(said)}")
        yield
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=30)
        reader.join(timeout=10)
        if process.stderr:
            process.stderr.close()


def _listen(process: "subprocess.Popen[str]", ready: threading.Event, said: list[str]) -> None:
    assert process.stderr
    for line in process.stderr:
        if "ready to accept connections" in line:
            ready.set()
        if not ready.is_set():
            said.append(line)
    ready.set()
