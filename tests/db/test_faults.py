"""A database that cannot serve is refused visibly, and nothing that is stored is damaged."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from brain.db import SqlStores
from brain.db.faults import domain_error
from brain.errors import BadInput, Unavailable
from brain.types.recommendation import Prediction
from brain.types.telemetry import Receipt, Sample
from tests.builders import JOB, NOW, event, job, node, plan, throughput
from tests.cables import cable
from tests.postgresql import Server

CHECKOUT = Path(__file__).parents[2]


@contextmanager
def opened(url: str, **options: Any) -> Iterator[SqlStores]:
    """Stores, closed at the end."""
    stores = SqlStores(url, **options)
    try:
        yield stores
    finally:
        stores.close()


def submit(stores: SqlStores, *samples: Sample) -> Receipt:
    """Add a job and samples of it."""
    with stores.transaction() as t:
        t.jobs.add(job())
        return t.telemetry.add(samples, received_at=NOW)


@contextmanager
def room_for_pages(count: int) -> Iterator[None]:
    """Let SQLite believe that the disk has room for so many pages of each new connection."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {count}")

    sa.event.listen(sa.Engine, "connect", limit)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "connect", limit)


def integrity(file: Path) -> str:
    """What SQLite says of a file's structure."""
    with closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


class TestFullDisk:
    def test_stores_nothing_of_the_transaction(self, sqlite_url: str, tmp_path: Path) -> None:
        samples = [throughput(n) for n in range(5000)]
        with room_for_pages(80), opened(sqlite_url) as stores:
            with pytest.raises(Unavailable, match="the disk is full, so nothing"):
                submit(stores, *samples)
            with stores.transaction() as t:
                assert not t.jobs.page(after=None, size=1)
        assert integrity(tmp_path / "brain.db") == "ok"

    def test_takes_writes_again_once_there_is_room(self, sqlite_url: str) -> None:
        samples = [throughput(n) for n in range(5000)]
        with room_for_pages(80), opened(sqlite_url) as stores, pytest.raises(Unavailable):
            submit(stores, *samples)
        with opened(sqlite_url) as stores:
            assert submit(stores, *samples).stored == 5000

    def test_is_unavailable_on_postgresql_too(self) -> None:
        said = domain_error(psycopg.errors.DiskFull("could not extend file"), "db")
        assert isinstance(said, Unavailable)


class TestReadOnlyFile:
    def test_refuses_writes_and_says_what_to_do(self, sqlite_url: str, tmp_path: Path) -> None:
        file = tmp_path / "brain.db"
        before = file.read_bytes()
        file.chmod(0o444)
        # Root may write everywhere by a capability, which a child can do without.
        mortal = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
        writer = [*mortal, sys.executable, "-m", "tests.db.writer", sqlite_url]
        done = subprocess.run(writer, capture_output=True, text=True, cwd=CHECKOUT, timeout=60)
        assert (done.returncode, done.stdout) == (1, "")
        assert "brain.errors.Unavailable" in done.stderr
        assert "give this user write permission" in done.stderr
        assert file.read_bytes() == before


class TestLockedFile:
    def test_is_unavailable_while_another_process_holds_it(
        self, sqlite_url: str, tmp_path: Path
    ) -> None:
        with closing(sqlite3.connect(tmp_path / "brain.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with opened(sqlite_url) as stores, stores.transaction(read_only=True) as t:
                assert t.events.last_id() == 0
            refused = pytest.raises(Unavailable, match="holds its lock")
            with opened(sqlite_url, patience_seconds=0) as stores, refused:
                submit(stores)


class TestDamagedFile:
    def test_is_unavailable_with_what_to_put_back(self, sqlite_url: str, tmp_path: Path) -> None:
        (tmp_path / "brain.db").write_bytes(b"no database at all" * 100)
        with opened(sqlite_url) as stores, pytest.raises(Unavailable, match="not an SQLite data"):
            submit(stores)


class TestTooFewConnections:
    """A server that admits one connection of this user."""

    @pytest.fixture
    def url(self, postgresql_url: str, postgresql: Server) -> Iterator[str]:
        with postgresql.connected(sa.make_url(postgresql_url).database or "") as admin:
            admin.execute("CREATE ROLE alone LOGIN CONNECTION LIMIT 1")
            admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO alone")
            try:
                yield postgresql_url.replace("brain@", "alone@")
            finally:
                admin.execute("DROP OWNED BY alone")
                admin.execute("DROP ROLE alone")

    def test_are_told_with_the_setting_that_keeps_within_them(self, url: str) -> None:
        full = "the server admits no more connections; .* lower database_connections"
        with (
            opened(url) as stores,
            stores.transaction(read_only=True),
            pytest.raises(Unavailable, match=full),
            stores.transaction(read_only=True),
        ):
            pass

    def test_are_waited_for_within_the_setting(self, url: str) -> None:
        with opened(url, connections=1) as stores, ThreadPoolExecutor() as pool:
            with stores.transaction(read_only=True):
                waiting = pool.submit(submit, stores, throughput(1))
            assert waiting.result().stored == 1


class TestLostServer:
    def test_is_unavailable_when_there_is_none(self, tmp_path: Path) -> None:
        url = f"postgresql://brain@/brain?host={tmp_path}"
        with opened(url) as stores, pytest.raises(Unavailable, match="check that the server runs"):
            submit(stores)

    def test_stores_nothing_when_the_connection_breaks(
        self, postgresql_url: str, postgresql: Server
    ) -> None:
        with opened(postgresql_url) as stores:
            with pytest.raises(Unavailable, match="check that the server runs"):
                _submit_and_lose(stores, postgresql)
            with stores.transaction() as t:
                assert not t.jobs.page(after=None, size=1)

    def test_is_noticed_within_half_a_minute_though_its_host_is_gone(
        self, postgresql_url: str, postgresql: Server
    ) -> None:
        limits: list[int] = []

        def ask(connection: psycopg.Connection[object], _: object) -> None:
            way = socket.socket(fileno=os.dup(connection.fileno()))
            with way:
                tcp = socket.IPPROTO_TCP
                silent = way.getsockopt(tcp, socket.TCP_KEEPINTVL) * way.getsockopt(
                    tcp, socket.TCP_KEEPCNT
                )
                limits.append(way.getsockopt(tcp, socket.TCP_KEEPIDLE) + silent)
                limits.append(way.getsockopt(tcp, socket.TCP_USER_TIMEOUT) // 1000)

        end = postgresql.directory / ".s.PGSQL.5432"
        sa.event.listen(sa.Engine, "connect", ask)
        try:
            with cable(lambda: asyncio.open_unix_connection(end)) as way:
                name = sa.make_url(postgresql_url).database
                with opened(f"postgresql://brain@127.0.0.1:{way.port}/{name}") as stores:
                    assert submit(stores, throughput(1)).stored == 1
        finally:
            sa.event.remove(sa.Engine, "connect", ask)
        assert limits == [25, 25]

    def test_never_shows_the_password(self) -> None:
        nobody = "postgresql://brain:hunter2@127.0.0.1:1/brain"
        with opened(nobody) as stores, pytest.raises(Unavailable) as refused:
            submit(stores)
        assert "hunter2" not in str(refused.value)


def _submit_and_lose(stores: SqlStores, server: Server) -> None:
    with stores.transaction() as t, server.connected("postgres") as admin:
        t.jobs.add(job())
        ours = "FROM pg_stat_activity WHERE application_name = 'brain'"
        admin.execute(f"SELECT pg_terminate_backend(pid) {ours}")
        t.nodes.put(node())


class TestKilledWriter:
    def test_loses_nothing_that_was_acknowledged(self, database_url: str) -> None:
        command = [sys.executable, "-m", "tests.db.writer", database_url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as writer:
            assert writer.stdout
            acknowledged = [int(writer.stdout.readline()) for _ in range(30)]
            writer.kill()
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        with opened(database_url) as stores, stores.transaction() as t:
            events = t.events.after(0, limit=100_000)
            samples = t.telemetry.throughput(JOB, since=NOW)
        assert {event.id for event in events} >= set(acknowledged)
        assert [sample.sequence for sample in samples] == [event.subject for event in events]


class TestBugs:
    def test_are_seen_when_a_number_is_none(self, database_url: str) -> None:
        nan = Prediction(examples_per_second=float("nan"), low=0.0, high=1.0)
        refused = pytest.raises((sa.exc.StatementError, ValueError), match="not JSON")
        with opened(database_url) as stores, stores.transaction() as t, refused:
            t.plans.add(plan(promised=nan))

    def test_crash_when_a_reader_writes(self, database_url: str) -> None:
        refused = pytest.raises(sa.exc.DBAPIError)
        with opened(database_url) as stores, stores.transaction(read_only=True) as t, refused:
            t.events.add(event())

    def test_leave_the_next_transaction_alone(self, database_url: str) -> None:
        with opened(database_url) as stores:
            with stores.transaction(read_only=True) as t, pytest.raises(sa.exc.DBAPIError):
                t.events.add(event())
            with stores.transaction() as t:
                assert t.events.add(event()).id

    def test_are_told_from_values_that_no_column_holds(self, postgresql_url: str) -> None:
        refused = pytest.raises(BadInput, match="cannot be stored")
        with opened(postgresql_url) as stores, stores.transaction() as t, refused:
            t.nodes.put(node("nul\x00byte"))
