"""Partitions of samples on PostgreSQL: made ahead, dropped when old, and never in the way."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from brain import calls
from brain.api.bell import Bell
from brain.api.metrics import Metrics, ServiceCondition
from brain.client import BrainClient
from brain.clocks import microseconds_of
from brain.db import SqlStores, prepare
from brain.db.engine import open_engine
from brain.db.partitions import PERIOD, Partition, boundary, missing, old
from brain.db.samples import SLOT
from brain.db.schema import config
from brain.service.tick import Ticker
from brain.types.job import JobId
from brain.types.record import Role
from brain.types.telemetry import Sample
from tests.api.app import URL, Api, AppTransport, digits
from tests.builders import JOB, host, loss, save, throughput
from tests.postgresql import Server

#: The first partition ends some hours after the migration, so these tests begin now.
BEGIN = datetime.now(UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Database:
    """A migrated database of a test's own, and its tables."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name
        self.url = server.url(name)

    def asked(self, statement: str) -> list[tuple[object, ...]]:
        with self._server.connected(self._name) as connection:
            return connection.execute(statement.encode()).fetchall()

    def partitions(self, table: str = "throughput_rows") -> set[object]:
        return {
            name
            for (name,) in self.asked(
                f"SELECT relid::regclass::text FROM pg_partition_tree('{table}') WHERE isleaf"
            )
        }

    def bytes(self, table: str = "throughput_rows") -> int:
        tree = f"pg_partition_tree('{table}')"
        ((size,),) = self.asked(f"SELECT sum(pg_total_relation_size(relid))::int8 FROM {tree}")
        assert isinstance(size, int)
        return size

    def reader(self) -> "closing[sa.Connection]":
        """A transaction that has read samples and has not ended."""
        engine = sa.create_engine(open_engine(self.url).url, poolclass=sa.pool.NullPool)
        connection = engine.connect()
        connection.exec_driver_sql("SELECT FROM throughput_rows")
        return closing(connection)


@pytest.fixture
def database(postgresql: Server) -> Iterator[Database]:
    with postgresql.database() as name:
        prepare(postgresql.url(name))
        yield Database(postgresql, name)


@pytest.fixture
def stores(database: Database) -> Iterator[SqlStores]:
    with closing(SqlStores(database.url)) as made:
        yield made


def retaining(api: Api) -> Ticker:
    metrics = Metrics()
    return Ticker(
        api.stores,
        api.settings,
        lambda: api.now,
        home=api.home,
        bell=Bell(),
        metrics=metrics,
        condition=ServiceCondition(metrics),
        turn=lambda *_: None,
    )


def ready(stores: SqlStores, now: datetime) -> None:
    with stores.transaction() as tx:
        tx.telemetry.make_ready(now=now, keep=DAY)


def stored(stores: SqlStores, *instants: datetime) -> int:
    with stores.transaction() as tx:
        samples = [throughput(0, measured_at=at) for at in instants]
        return tx.telemetry.add(samples, received_at=max(instants)).stored


def retired(stores: SqlStores, now: datetime) -> int:
    with stores.transaction() as tx:
        return tx.telemetry.retire(
            raw_before=now - DAY, means_before=now - 30 * DAY, hours_before=now - 365 * DAY
        )


def read(stores: SqlStores, job: str = JOB) -> list[datetime]:
    with stores.transaction() as tx:
        found = tx.telemetry.throughput(JobId(job), since=BEGIN - 9 * DAY)
        return [each.measured_at for each in found]


def test_a_service_keeps_a_day_of_samples_and_drops_what_is_older(
    tmp_path: Path, database: Database, stores: SqlStores
) -> None:
    api = Api(tmp_path, stores=stores, now=BEGIN)
    with api.client() as admin, api.client(Role.SCALER) as scaler:
        job = admin.send(calls.submit(digits())).id
        secret = scaler.send(calls.mint_agent_token(job)).secret
    ticker, sent = retaining(api), []
    with BrainClient(URL, secret, transport=AppTransport(api.app)) as agent:
        for _ in range(6):
            ticker.retain()
            sample = throughput(0, job=job, measured_at=api.now)
            assert agent.send(calls.telemetry([sample], sent_at=api.now)).stored == 1
            sent.append(api.now)
            api.pass_time(hours=14)
        ticker.retain()
        again = agent.send(calls.telemetry([sample], sent_at=api.now))
    kept = read(stores, job)
    assert again.duplicates == 1
    assert kept == sent[-len(kept) :]
    assert {at for at in sent if at >= api.now - DAY} <= set(kept)
    assert min(kept) > api.now - DAY - 4 * HOUR
    # Each sample is ten steps of 0.1 s, and weighs a second.
    ((folded,),) = database.asked("SELECT sum(weight) FROM minute_means WHERE metric = 'replicas'")
    assert folded == pytest.approx(len(sent) - len(kept))
    assert "throughput_rows_before" not in database.partitions()
    assert len(database.partitions()) < 17
    assert database.asked("SELECT count(*) FROM throughput_rows_rest") == [(0,)]


def test_a_clock_that_jumps_two_days_and_back_costs_no_sample(
    tmp_path: Path, stores: SqlStores
) -> None:
    api = Api(tmp_path, stores=stores, now=BEGIN)
    ticker = retaining(api)

    def pass_an_hour() -> None:
        ticker.retain_at = 0.0
        ticker.tick()
        for thread in threading.enumerate():
            if thread.name == "retention":
                thread.join(60)

    pass_an_hour()
    assert stored(stores, api.now) == 1
    api.pass_time(days=2)
    pass_an_hour()
    assert stored(stores, api.now) == 1
    api.pass_time(days=-2, minutes=30)
    pass_an_hour()
    # The source itself goes on where its clock was.
    assert stored(stores, api.now) == 1
    assert read(stores)[0] == BEGIN
    assert len(read(stores)) == 3


def test_samples_of_any_time_are_stored(database: Database, stores: SqlStores) -> None:
    ready(stores, BEGIN)
    instants = [BEGIN + days * DAY for days in (-40, -1, 0, 0.3, 2, 400)]
    assert stored(stores, *instants) == 6
    assert database.asked("SELECT count(*) FROM throughput_rows_rest") == [(2,)]
    assert stored(stores, *instants) == 0, "they are known again"


def test_disk_space_is_given_back(database: Database, stores: SqlStores) -> None:
    ready(stores, BEGIN)
    then = BEGIN + 8 * HOUR
    assert stored(stores, *(then + timedelta(seconds=n) for n in range(5000))) == 5000
    full = database.bytes()
    assert retired(stores, then + 2 * DAY) == 5000
    assert database.bytes() < full - 500_000
    ready(stores, then + 2 * DAY)
    assert stored(stores, then + 2 * DAY) == 1


def test_a_turn_reads_no_partition_of_earlier_hours(database: Database, stores: SqlStores) -> None:
    ready(stores, BEGIN)
    asked: list[tuple[str, Any]] = []
    with stores.transaction() as tx, database.reader() as plain:
        engine = tx.telemetry._connection.engine

        def note(_: object, __: object, statement: str, given: Any, *___: object) -> None:
            asked.append((statement, given))

        sa.event.listen(engine, "before_cursor_execute", note)
        tx.telemetry.read_ahead({JOB: BEGIN + 12 * HOUR}, window=HOUR)
        for statement, given in asked:
            if "host_rows" in statement and "first_slot" in given:
                plan = [row[0] for row in plain.exec_driver_sql(f"EXPLAIN {statement}", given)]
                break
    text = "\n".join(plan)
    assert "host_rows_rest" in text
    assert "host_rows_before" not in text


def test_a_partition_in_use_is_emptied_and_dropped_later(
    database: Database, stores: SqlStores
) -> None:
    ready(stores, BEGIN)
    then = BEGIN + 8 * HOUR
    stored(stores, then)
    before = database.partitions()
    with database.reader():
        assert retired(stores, then + 2 * DAY) == 1
        assert database.partitions() == before
        assert stored(stores, then + 2 * DAY) == 1
    assert retired(stores, then + 2 * DAY) == 0
    assert database.partitions() < before
    assert read(stores) == [then + 2 * DAY]


def test_a_partition_begins_after_the_rows_that_came_before_it(
    database: Database, stores: SqlStores
) -> None:
    late = BEGIN + 2 * DAY
    assert stored(stores, late) == 1
    ready(stores, late)
    slot = microseconds_of(late) // SLOT
    if (slot + 1) % PERIOD:
        assert f"throughput_rows_{slot + 1}" in database.partitions()
    assert stored(stores, late + HOUR) == 1
    assert database.asked("SELECT count(*) FROM throughput_rows_rest") == [(1,)]
    assert retired(stores, late + 2 * DAY) == 2


def test_samples_of_the_release_before_stay_where_they_are(postgresql: Server) -> None:
    samples: list[Sample] = [
        *(throughput(0, measured_at=BEGIN + days * DAY) for days in (-0.5, 0, 9)),
        replace(host(1), measured_at=BEGIN),
        replace(save(1), measured_at=BEGIN),
        replace(loss(2), measured_at=BEGIN),
    ]
    with postgresql.database() as name:
        url = postgresql.url(name)
        engine = open_engine(url)
        with engine.begin() as connection:
            command.upgrade(config(connection), "0015")
        # The statements of this release are those of the release before.
        with closing(SqlStores(url)) as stores:
            with stores.transaction() as tx:
                assert tx.telemetry.add(samples, received_at=BEGIN).stored == 6
            found = read(stores)
            prepare(url)
            assert read(stores) == found
            with stores.transaction() as tx:
                assert tx.telemetry.add(samples, received_at=BEGIN).duplicates == 6
            assert Database(postgresql, name).asked(
                "SELECT count(*) FROM throughput_rows_rest"
            ) == [(1,)]
            with engine.begin() as connection:
                command.downgrade(config(connection), "0015")
            assert read(stores) == found
        engine.dispose()


def test_partitions_cover_now_and_the_hours_after_it_without_overlap() -> None:
    found = [Partition("a", None, 40), Partition("b", 90, 100)]
    assert list(missing(found, 41, 36)) == [
        *((40, 72), (72, 90), (100, 108), (108, 144), (144, 180), (180, 216))
    ]
    assert next(missing([], 0, 36)) == (0, 36)


def test_rows_are_retired_up_to_the_first_partition_that_stays() -> None:
    found = [Partition("a", None, 36), Partition("b", 36, 72), Partition("c", 72, 108)]

    def at(slot: int) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + slot * timedelta(microseconds=SLOT)

    assert (old(found, at(20)), boundary(found, at(20))) == ([], at(20))
    assert (old(found, at(37)), boundary(found, at(37))) == (found[:1], at(36))
    assert (old(found, at(72)), boundary(found, at(72))) == (found[:1], at(36))
    assert (old(found, at(73)), boundary(found, at(73))) == (found[:2], at(72))
