"""PgBouncer, with its defaults, between Brain and PostgreSQL: a session for each transaction."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from brain import calls
from brain.client import BrainClient
from brain.db import SqlStores, prepare
from brain.db.stores import _WRITERS
from brain.errors import Unavailable
from tests.api.app import digits
from tests.builders import job, throughput
from tests.patience import Patience
from tests.postgresql import Server
from tests.serving import eventually, service

PROGRAM = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
pytestmark = pytest.mark.skipif(
    not os.access(PROGRAM, os.X_OK),
    reason="PgBouncer is not installed; on Debian and Ubuntu: apt-get install pgbouncer",
)


@pytest.fixture
def pooled_url(postgresql: Server, postgresql_url: str) -> Iterator[str]:
    """The URL of an empty database by way of PgBouncer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    directory = Path(tempfile.mkdtemp(prefix="brain-pgbouncer-"))
    (directory / "users.txt").write_text('"brain" "secret"\n')
    (directory / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={postgresql.directory}\n[pgbouncer]\npool_mode = transaction\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_file = {directory}/users.txt\n"
    )
    command = [PROGRAM, "--quiet", str(directory / "pgbouncer.ini")]
    if os.geteuid() == 0:
        for each in (directory, *directory.iterdir()):
            shutil.chown(each, "postgres", "postgres")
        other = ("--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=TERM")
        command = ["setpriv", *other, *command]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    name = sa.make_url(postgresql_url).database
    url = f"postgresql://brain:secret@127.0.0.1:{port}/{name}"
    try:
        eventually(lambda: _answers(url))
        yield url
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_jobs_are_run_and_measured_by_way_of_a_pooler(tmp_path: Path, pooled_url: str) -> None:
    with (
        service(tmp_path, f"--database-url={pooled_url}", "--tick-seconds=0.2") as running,
        running.client() as admin,
        running.client("scaler") as scaler,
        ThreadPoolExecutor(8) as beside,
    ):
        ids = [admin.send(calls.submit(digits(name=f"digits-{n}"))).id for n in range(4)]
        secrets = [scaler.send(calls.mint_agent_token(each)).secret for each in ids]
        began = datetime.now(UTC)

        def ingest(number: int) -> int:
            mine, at = ids[number % 4], datetime.now(UTC)
            with BrainClient(running.url, secrets[number % 4]) as agent:
                sample = throughput(number, job=mine, measured_at=at)
                return agent.send(calls.telemetry([sample], sent_at=at)).stored

        # More often than the driver waits before it prepares a statement.
        for _ in range(3):
            assert sum(beside.map(ingest, range(40))) == 40
            assert len(list(beside.map(lambda _: admin.send(calls.jobs()), range(10)))) == 10
        shown = admin.send(calls.job(ids[0]))
        assert abs((shown.job.created_at - began).total_seconds()) < 600, "the zone is UTC"
        admin.send(calls.cancel(ids[1]))
        assert admin.send(calls.job(ids[1])).job.state in {"Cancelling", "Cancelled"}
        assert admin.send(calls.health()).degraded == ()


def test_partitions_are_made_and_dropped_by_way_of_a_pooler(
    pooled_url: str, postgresql: Server
) -> None:
    prepare(pooled_url)
    now = datetime.now(UTC)
    name = sa.make_url(pooled_url).database or ""
    with closing(SqlStores(pooled_url)) as stores, postgresql.connected(name) as plain:

        def parts(at: datetime) -> int:
            """Count the partitions of a table, and itself, after a retention at a time."""
            long_ago = at - timedelta(days=365)
            with stores.transaction() as tx:
                tx.telemetry.make_ready(now=at, keep=timedelta(days=1))
            with stores.transaction() as tx:
                tx.telemetry.retire(
                    raw_before=at - timedelta(days=1), means_before=long_ago, hours_before=long_ago
                )
            found = plain.execute("SELECT count(*) FROM pg_partition_tree('host_rows')").fetchone()
            return int(found[0])  # type: ignore[call-overload, index]

        # The table, its first partition, its default one, and three or four for the next hours.
        assert 6 <= parts(now) <= 7
        # The server's own vacuum of its catalogs may keep a partition until the next retention.
        patience = Patience(60)
        while parts(now + timedelta(days=3)) != 7:
            assert not patience.over
        waits = plain.execute("SHOW lock_timeout").fetchone()
    assert waits == ("0",)


def test_a_lock_is_waited_for_no_longer_by_way_of_a_pooler(
    pooled_url: str, postgresql: Server
) -> None:
    with closing(SqlStores(pooled_url, patience_seconds=0.2)) as stores:
        submit(stores, "first")
        with postgresql.connected(sa.make_url(pooled_url).database or "") as other:
            other.execute("SELECT pg_advisory_lock(%s)", (_WRITERS,))
            with pytest.raises(Unavailable):
                submit(stores, "second")


def submit(stores: SqlStores, name: str) -> None:
    """Add a job."""
    with stores.transaction() as tx:
        tx.jobs.add(job(id=name, name=name))
