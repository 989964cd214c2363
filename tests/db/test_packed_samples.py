"""Samples of a release before packed tables come through the migration as they were."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from brain import wire
from brain.clocks import microseconds_of
from brain.db import SqlStores, missing, packing, prepare
from brain.db.engine import open_engine
from brain.db.schema import config
from brain.series import gpu_memory_share, gpu_share
from brain.types.telemetry import GpuReading, ReplicaReading, Sample, StorageReading
from tests.builders import JOB, NOW, at, host, loss, save, throughput
from tests.postgresql import Server

LATE = timedelta(minutes=10)
GPUS = tuple(
    GpuReading(
        index=index,
        name="H100",
        utilization=0.9 + index / 100,
        memory_used_bytes=70 * 2**30 + index,
        memory_total_bytes=80 * 2**30,
        power_watts=612.345 if index else None,
        temperature_celsius=1 / 3,
    )
    for index in range(8)
)
STORAGE = StorageReading(
    shm_used_bytes=1,
    shm_capacity_bytes=2,
    scratch_used_bytes=3,
    scratch_capacity_bytes=4,
    io_stalled_share=0.25,
)
REPLICAS = (
    ReplicaReading(replica=0, cpu_millis=250, memory_bytes=1 << 30),
    ReplicaReading(replica=3, cpu_millis=0, memory_bytes=7),
)
THROUGHPUT = [
    throughput(1),
    throughput(2, epoch=2, local_batch=None, examples_per_second=None, met=True),
    throughput(3, exchange_wait_seconds=0.01, gns_unavailable="one replica"),
]
HOSTS = [
    host(1),
    host(2, gpus=GPUS, storage=STORAGE, unavailable=("disk: no counters",), throttled_share=0.5),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of the revision before packed tables, with samples."""
    if request.param == "sqlite":
        yield _filled(f"sqlite:///{tmp_path / 'brain.db'}")
        return
    server: Server = request.getfixturevalue("postgresql")
    with server.database() as name:
        yield _filled(server.url(name))


def test_samples_of_the_release_before_are_read_as_they_were(old_url: str) -> None:
    assert missing(old_url) == ("0010", "0011", "0012", "0013", "0014", "0015", "0016", "0017")
    prepare(old_url, contract=True)
    assert missing(old_url) == ()
    with closing(SqlStores(old_url)) as stores, stores.transaction() as tx:
        kept = tx.telemetry.throughput(JOB, since=at(-9))
        assert kept == [replace(each, measured_at=each.measured_at + LATE) for each in THROUGHPUT]
        hosts = tx.telemetry.hosts(JOB, since=at(-9))
        assert hosts == [replace(each, measured_at=each.measured_at + LATE) for each in HOSTS]
        assert [each.path for each in tx.telemetry.saves(JOB, since=at(-9))] == [save(1).path]
        # By what the sender's clock said they are known again.
        again = tx.telemetry.add([*THROUGHPUT, *HOSTS, save(1), loss(4)], received_at=NOW)
        assert (again.stored, again.duplicates) == (0, 7)


def test_sqlite_gives_the_pages_of_retired_samples_back(sqlite_url: str, tmp_path: Path) -> None:
    def pages() -> tuple[int, int]:
        with closing(sqlite3.connect(tmp_path / "brain.db")) as connection:
            return tuple(
                connection.execute(f"PRAGMA {what}").fetchone()[0]
                for what in ("page_count", "freelist_count")
            )  # type: ignore[return-value]

    empty, _ = pages()
    with closing(SqlStores(sqlite_url)) as stores:
        with stores.transaction() as tx:
            tx.telemetry.add([throughput(n) for n in range(5000)], received_at=NOW)
        assert pages()[0] > empty + 50
        with stores.transaction() as tx:
            tx.telemetry.retire(raw_before=at(9000), means_before=at(9000), hours_before=at(9000))
    used, free = pages()
    assert used < empty + 20
    assert free == 0


def test_readings_are_packed_without_loss() -> None:
    assert packing.gpus_of(packing.devices_of(GPUS), packing.packed_gpus(GPUS)) == GPUS
    assert packing.gpus_of((), packing.packed_gpus(())) == ()
    assert packing.storage_of(packing.packed_storage(STORAGE)) == STORAGE
    assert packing.replicas_of(packing.packed_replicas(REPLICAS)) == REPLICAS
    assert packing.replicas_of(packing.packed_replicas(())) == ()
    whole = [replace(GPUS[0], utilization=n / 100, power_watts=500.125) for n in range(101)]
    assert packing.gpus_of(packing.devices_of(whole), packing.packed_gpus(whole)) == tuple(whole)


def _filled(url: str) -> str:
    engine = open_engine(url)
    with engine.begin() as connection:
        command.upgrade(config(connection), "0009")
    with engine.begin() as connection:
        for sample in (*THROUGHPUT, *HOSTS, save(1), loss(4)):
            _insert(connection, sample)
        for source in ("collector", "worker-0", THROUGHPUT[0].place.source):
            _heard(connection, source)
    engine.dispose()
    return url


def _insert(connection: sa.Connection, sample: Sample) -> None:
    told: dict[str, Any] = wire.plain(sample)
    told |= told.pop("place", {})
    told |= {
        "measured_at": _stamp(connection, sample.measured_at),
        "corrected_at": _stamp(connection, sample.measured_at + LATE),
    }
    kind = type(sample).__name__.removesuffix("Sample").lower()
    told.pop("sharded_bytes", None)  # which that release did not have
    if kind == "host":
        del told["replica_readings"]  # which that release did not have
        told |= {"gpu_share": gpu_share(sample), "gpu_memory_share": gpu_memory_share(sample)}
        for name in ("gpus", "storage", "unavailable"):
            told[name] = None if told[name] is None else wire.encode(told[name]).decode()
    names = ", ".join(f'"{name}"' for name in told)
    values = ", ".join(
        f"CAST(:{name} AS JSONB)" if _json(connection, name) else f":{name}" for name in told
    )
    connection.execute(sa.text(f"INSERT INTO {kind}_samples ({names}) VALUES ({values})"), told)


def _json(connection: sa.Connection, name: str) -> bool:
    return connection.dialect.name == "postgresql" and name in ("gpus", "storage", "unavailable")


def _heard(connection: sa.Connection, source: str) -> None:
    given = {
        "job": JOB,
        "source": source,
        "at": _stamp(connection, at(9)),
        "then": _stamp(connection, at(9) + LATE),
    }
    connection.execute(
        sa.text(
            "INSERT INTO sources (job, source, highest, stored, dropped, offset_seconds, heard_at, "
            "measured_at, corrected_at) VALUES (:job, :source, 9, 9, 0, 600, :at, :at, :then) "
            "ON CONFLICT DO NOTHING"
        ),
        given,
    )


def _stamp(connection: sa.Connection, instant: Any) -> Any:
    return microseconds_of(instant) if connection.dialect.name == "sqlite" else instant
