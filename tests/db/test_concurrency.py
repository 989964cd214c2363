"""Several transactions at once, on databases where that can happen."""

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import TypeVar

import pytest

from brain.db import SqlStores
from brain.db.engine import open_engine
from brain.db.jobs import SqlPlans
from brain.errors import Conflict, Unavailable
from brain.inmemory import MemoryStores
from brain.ports import Stores, Transaction
from brain.types.record import Event
from tests.builders import JOB, NOW, event, plan, throughput

T = TypeVar("T")
_SECONDS = 30


@pytest.fixture
def stores(database_url: str) -> Iterator[SqlStores]:
    """Empty stores, on each database in turn."""
    made = SqlStores(database_url)
    yield made
    made.close()


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], T]], "Future[T]"]]:
    """Begin something in another thread."""
    with ThreadPoolExecutor(max_workers=2) as threads:
        yield threads.submit


class TestReaders:
    def test_do_not_wait_for_a_writer(
        self, stores: SqlStores, beside: Callable[..., "Future[int]"]
    ) -> None:
        def read() -> int:
            with stores.transaction(read_only=True) as t:
                return t.events.last_id()

        with stores.transaction() as t:
            t.events.add(event())
            assert beside(read).result(timeout=_SECONDS) == 0

    def test_see_one_state_throughout(
        self, stores: SqlStores, beside: Callable[..., "Future[None]"]
    ) -> None:
        def write() -> None:
            with stores.transaction() as t:
                t.events.add(event())

        with stores.transaction(read_only=True) as t:
            assert t.events.last_id() == 0
            beside(write).result(timeout=_SECONDS)
            assert t.events.last_id() == 0


class TestRetentions:
    def test_fold_no_row_twice(self, postgresql_url: str) -> None:
        with closing(SqlStores(postgresql_url)) as one, closing(SqlStores(postgresql_url)) as other:
            with one.transaction() as t:
                t.telemetry.add([throughput(0)], received_at=NOW)
            with one.transaction() as t, other.transaction() as beside:
                assert _retire(t) > 0
                assert _retire(beside) == 0
            with one.transaction() as t:
                (bucket,) = t.telemetry.series(
                    JOB, "replicas", since=NOW, until=NOW + timedelta(minutes=1), points=1
                )
                assert bucket.mean == throughput(0).replicas


def _retire(t: Transaction) -> int:
    later = NOW + timedelta(minutes=1)
    return t.telemetry.retire(raw_before=later, means_before=later, hours_before=NOW)


class TestWriters:
    def test_may_read_before_they_write_beside_another_brain(
        self, stores: SqlStores, database_url: str, beside: Callable[..., "Future[Event]"]
    ) -> None:
        another = SqlStores(database_url)
        begun = threading.Event()

        def write() -> Event:
            begun.set()
            with another.transaction() as t:
                return t.events.add(event("second"))

        with stores.transaction() as t:
            assert t.events.last_id() == 0
            waiting = beside(write)
            assert begun.wait(_SECONDS)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            first = t.events.add(event("first"))
        assert waiting.result(timeout=_SECONDS).id > first.id
        another.close()


class TestEventIds:
    def test_rise_in_the_order_of_commits(
        self, stores: SqlStores, beside: Callable[..., "Future[Event]"]
    ) -> None:
        begun = threading.Event()

        def write() -> Event:
            begun.set()
            with stores.transaction() as t:
                return t.events.add(event("second"))

        with stores.transaction() as t:
            first = t.events.add(event("first"))
            waiting = beside(write)
            assert begun.wait(_SECONDS)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
        assert waiting.result(timeout=_SECONDS).id > first.id


def _nest(stores: Stores) -> None:
    with stores.transaction() as outer:
        outer.events.add(event())
        with stores.transaction() as inner:
            inner.events.add(event())


class TestNestedTransactions:
    def test_are_refused_instead_of_waiting_for_ever(self, database_url: str) -> None:
        stores = SqlStores(database_url, patience_seconds=0.2)
        with pytest.raises(Unavailable):
            _nest(stores)
        stores.close()

    def test_are_refused_in_memory(self) -> None:
        with pytest.raises(Unavailable, match="nested"):
            _nest(MemoryStores(patience_seconds=0.2))


class TestIngest:
    def test_does_not_wait_for_decisions_on_postgresql(
        self, postgresql_url: str, beside: Callable[..., "Future[int]"]
    ) -> None:
        stores = SqlStores(postgresql_url)

        def ingest() -> int:
            with stores.transaction() as t:
                return t.telemetry.add([throughput()], received_at=NOW).stored

        with stores.transaction() as t:
            t.events.add(event())
            assert beside(ingest).result(timeout=_SECONDS) == 1
        stores.close()

    def test_stores_once_what_two_senders_bring_at_once(
        self, stores: SqlStores, beside: Callable[..., "Future[int]"]
    ) -> None:
        together = threading.Barrier(2, timeout=_SECONDS)

        def ingest(order: int) -> int:
            samples = [throughput(n) for n in range(200)][::order]
            together.wait()
            with stores.transaction() as t:
                return t.telemetry.add(samples, received_at=NOW).stored

        senders = [beside(ingest, order) for order in (1, -1)]
        assert sum(sender.result(timeout=_SECONDS) for sender in senders) == 200
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB).gaps == 0


class TestPlansWithoutTurns:
    def test_the_constraint_alone_fences_a_late_writer(
        self, postgresql_url: str, beside: Callable[..., "Future[None]"]
    ) -> None:
        engine = open_engine(postgresql_url)

        def late() -> None:
            with engine.begin() as connection:
                SqlPlans(connection).add(plan(1))

        with engine.begin() as connection:
            SqlPlans(connection).add(plan(1))
            waiting = beside(late)
        with pytest.raises(Conflict):  # stale, or beside one that is active: as the turns fall
            waiting.result(timeout=_SECONDS)
        engine.dispose()


def test_a_connection_in_use_at_the_end_is_closed_once_it_comes_back(postgresql_url: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        stores = SqlStores(postgresql_url)
        with stores.transaction() as tx:
            stores.close()
            tx.events.add(event())
        del stores, tx
        gc.collect()
    assert not told
