"""The services that are measured, each in its own process, and their processor time."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import sqlalchemy as sa

from benchmarks.ingest.load import Client
from brain import calls, wire
from brain.client import BrainClient
from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.telemetry import (
    GpuReading,
    HostSample,
    Phase,
    Sample,
    SampleSource,
    SourceId,
    ThroughputSample,
)
from tests import postgresql
from tests.serving import Service, service

_TICK = os.sysconf("SC_CLK_TCK")
#: Seconds after its start by which a service has begun its hourly retention for the first time.
_FIRST_RETENTION_SECONDS = 32.0


@dataclass(frozen=True, slots=True)
class Running:
    """A service, and the processes whose time counts."""

    url: str
    pids: Sequence[int]

    @property
    def cpu_seconds(self) -> float:
        """Return the processor seconds so far of these processes and of all processes that they
        started.
        """
        return sum(_seconds(pid) for root in self.pids for pid in _tree(root))

    @property
    def memory_mib(self) -> float:
        """Return the resident memory of the service's own process in MiB."""
        return float(psutil.Process(self.pids[0]).memory_info().rss) / 2**20


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a service: its URL, and the server's process if it has one."""

    url: str
    pids: tuple[int, ...] = ()


@contextmanager
def database(kind: str) -> Iterator[Database]:
    """Create an empty database, ``SQLite`` or ``PostgreSQL``, with the default durability."""
    if kind == "SQLite":
        with tempfile.TemporaryDirectory(prefix="brain-ingest-") as directory:
            yield Database(f"sqlite:///{directory}/bench.db")
        return
    with postgresql.server(durable=True) as server, server.database() as name:
        pid = int((server.directory / "data" / "postmaster.pid").read_text().splitlines()[0])
        yield Database(server.url(name), (pid,))


@contextmanager
def brain(at: Database) -> Iterator[tuple[Running, Service]]:
    """Start the service with its usual command; limits per address and token are raised so that
    they never apply.
    """
    flags = (
        "--connections-per-address=20000",
        "--program-requests-per-second=1000000",
        "--tick-seconds=1000",
    )
    with (
        tempfile.TemporaryDirectory(prefix="brain-ingest-") as home,
        service(Path(home), f"--database-url={at.url}", *flags, cold=True) as running,
    ):
        yield Running(running.url, (running.process.pid, *at.pids)), running


def settle(running: Running) -> None:
    """Wait until a service that has just started has done its hourly work."""
    time.sleep(_FIRST_RETENTION_SECONDS)
    used, quiet = running.cpu_seconds, 0
    # On a busy machine it may be little at a time.
    while quiet < 3:
        time.sleep(2)
        used, before = running.cpu_seconds, used
        quiet = quiet + 1 if used - before < 0.1 else 0


@contextmanager
def plain(at: Database) -> Iterator[Running]:
    """Start the plain service of ``plain.py`` under uvicorn."""
    url = at.url.replace("postgresql://", "postgresql+psycopg://")
    with _uvicorn("plain", at.pids, DATABASE_URL=url) as running:
        yield running


@contextmanager
def fanout() -> Iterator[Running]:
    """Start the fan-out server of ``fanout.py`` under uvicorn."""
    with _uvicorn("fanout") as running:
        yield running


@contextmanager
def _uvicorn(name: str, pids: Sequence[int] = (), **environment: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.ingest.{name}:app", "--port=0"]
    process = subprocess.Popen(
        [*command, "--no-access-log"],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr
        where = next(
            found[1] for line in process.stderr if (found := re.search(r"(http://\S+)", line))
        )
        yield Running(where, (process.pid, *pids))
    finally:
        process.kill()
        process.communicate()


def job_senders(running: Service, count: int, *, batch: int) -> list[Client]:
    """Return agents, each of its own job, that send the given number of job samples per request."""
    with running.client() as admin, running.client("scaler") as scaler:
        return [_agent(running.url, admin, scaler, number, batch) for number in range(count)]


def plain_senders(running: Running, count: int, *, batch: int) -> list[Client]:
    """Return senders of the same samples in the form that the plain service takes: flat, with only
    the fields that are set.
    """

    def flat(sample: ThroughputSample) -> dict[str, object]:
        told = wire.plain(sample)
        told |= told.pop("place")
        return {key: value for key, value in told.items() if value is not None}

    def client(number: int) -> Client:
        samples = job_samples(f"job-{number}")

        def body() -> tuple[bytes, int]:
            return wire.encode([flat(next(samples)) for _ in range(batch)]), batch

        return Client(running.url, "/telemetry", ("Content-Type: application/json",), body)

    return [client(number) for number in range(count)]


def node_senders(running: Service, count: int) -> list[Client]:
    """Return agents that report one node of 8 GPUs per request."""
    with running.client() as admin, running.client("scaler") as scaler:
        return [_agent(running.url, admin, scaler, n, 1, nodes=True) for n in range(count)]


def _agent(
    url: str,
    admin: BrainClient,
    scaler: BrainClient,
    number: int,
    batch: int,
    *,
    nodes: bool = False,
) -> Client:
    document = {"name": f"bench-{number}-{time.monotonic_ns()}", "command": ["true"]}
    document |= {"replicas": {"min": 1, "max": 1}}
    job = admin.send(calls.submit(document)).id
    secret = scaler.send(calls.mint_agent_token(job)).secret
    samples: Iterator[Sample] = node_reports(job) if nodes else job_samples(job)

    def body() -> tuple[bytes, int]:
        several = [next(samples) for _ in range(batch)]
        return wire.encode_batch(several, sent_at=datetime.now(UTC)), batch

    return Client(url, "/api/v1/telemetry", (f"Authorization: Bearer {secret}",), body)


def job_samples(job: str) -> Iterator[ThroughputSample]:
    """Return samples of one worker, one microsecond apart, so that all samples differ."""
    begin = datetime.now(UTC) - timedelta(minutes=10)
    place = SampleSource(
        job=JobId(job),
        source=SourceId(f"{job[-8:]}-{time.monotonic_ns() % 10**8}"),
        replica=0,
        local_rank=0,
        rank=0,
        epoch=1,
        generation=0,
    )
    sequence = 0
    while True:
        yield ThroughputSample(
            place=place,
            measured_at=begin + timedelta(microseconds=sequence),
            sequence=sequence,
            phase=Phase.TRAINING,
            nodes=1,
            replicas=1,
            processes=1,
            accelerator="NVIDIA H100 80GB HBM3",
            local_batch=32,
            accumulation=1,
            steps=10,
            step=10 * sequence + 10,
            step_seconds=0.1 + sequence * 1e-6,
            step_seconds_mean=0.101 + sequence * 1e-6,
            data_wait_seconds=0.002,
            examples_per_second=316.8,
        )
        sequence += 1


def node_reports(job: str) -> Iterator[HostSample]:
    """Return reports of one node with 8 GPUs."""
    begin = datetime.now(UTC) - timedelta(minutes=10)
    source, sequence = SourceId(f"{job[-8:]}-{time.monotonic_ns() % 10**8}"), 0
    while True:
        gpus = tuple(
            GpuReading(
                index=index,
                name="NVIDIA H100 80GB HBM3",
                utilization=0.9 + index / 100,
                memory_used_bytes=70 * 2**30 + sequence * 4096,
                memory_total_bytes=80 * 2**30,
                power_watts=600.0 + index,
            )
            for index in range(8)
        )
        yield HostSample(
            job=JobId(job),
            source=source,
            node=NodeName(f"node-{job[-6:]}"),
            measured_at=begin + timedelta(microseconds=sequence),
            sequence=sequence,
            cpu_millis=50_000 + sequence,
            cpu_capacity_millis=128_000,
            memory_bytes=2**38,
            memory_capacity_bytes=2**40,
            job_cpu_millis=48_000,
            job_memory_bytes=2**37,
            network_receive_bytes_per_second=1e9,
            network_send_bytes_per_second=1e9,
            disk_read_bytes_per_second=1e8,
            disk_write_bytes_per_second=1e7,
            gpus=gpus,
        )
        sequence += 1


def size_of(at: Database, kind: str) -> tuple[int, int]:
    """Return the bytes of the tables of one kind of sample with their indexes, and the number of
    samples.
    """
    engine = sa.create_engine(at.url.replace("postgresql://", "postgresql+psycopg://"))
    rows, contexts = f"{kind}_rows", f"{kind}_contexts"
    bytes_of = (
        "SELECT sum(pgsize) FROM dbstat WHERE name IN "
        f"(SELECT name FROM sqlite_master WHERE tbl_name IN ('{rows}', '{contexts}'))"
        if engine.dialect.name == "sqlite"
        else f"SELECT pg_total_relation_size('{rows}') + pg_total_relation_size('{contexts}')"
    )
    with engine.connect() as connection:
        size = connection.exec_driver_sql(bytes_of).scalar_one()
        count = connection.exec_driver_sql(f"SELECT count(*) FROM {rows}").scalar_one()
    engine.dispose()
    return int(size), int(count)


def _tree(root: int) -> Iterator[int]:
    yield root
    for child in psutil.Process(root).children(recursive=True):
        yield child.pid


def _seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # Its own time, and that of its children which ended.
    return sum(map(int, fields[11:15])) / _TICK
