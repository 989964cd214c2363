"""The metrics: readable while the database is lost, and read with few statements."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from brain import calls
from brain.api.bell import Bell
from brain.api.metrics import Metrics, ServiceCondition
from brain.db import SqlStores
from brain.errors import Unavailable
from brain.inmemory import MemoryStores
from brain.ports import Transaction
from brain.service.tick import Ticker
from brain.settings import Settings
from brain.types.record import Role
from tests.api.app import Api
from tests.builders import NOW, job, world
from tests.statements import statements


@dataclass
class _Losable:
    """Stores that can be lost."""

    inner: MemoryStores
    lost: bool = False

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        if self.lost:
            raise Unavailable("the database cannot be used: it is away")
        with self.inner.transaction(read_only=read_only) as tx:
            yield tx

    def size_bytes(self) -> int:
        return self.inner.size_bytes()


@pytest.fixture
def stores() -> _Losable:
    return _Losable(MemoryStores())


@pytest.fixture
def losable(tmp_path: Path, stores: _Losable) -> Api:
    return Api(tmp_path, stores=stores)  # type: ignore[arg-type]


def test_a_scraper_reads_metrics_while_the_database_is_lost(losable: Api, stores: _Losable) -> None:
    with losable.http(losable.token(Role.VIEWER)) as scraper:
        assert 'brain_degraded{what="database"} 1.0' not in scraper.get("/metrics").text
        stores.lost = True
        answer = scraper.get("/metrics")
        assert answer.status_code == 200
        assert 'brain_degraded{what="database"} 1.0' in answer.text


def test_a_token_that_never_read_metrics_reads_none_without_the_database(
    losable: Api, stores: _Losable
) -> None:
    with losable.http(losable.token(Role.VIEWER)) as scraper:
        stores.lost = True
        assert scraper.get("/metrics").status_code == 503


def test_a_revoked_token_reads_no_metrics_without_the_database(
    losable: Api, stores: _Losable
) -> None:
    with losable.client() as admin:
        made = admin.send(calls.mint_token("scraper", "viewer"))
        with losable.http(made.secret) as scraper:
            assert scraper.get("/metrics").status_code == 200
            admin.send(calls.revoke_token(made.id))
            stores.lost = True
            assert scraper.get("/metrics").status_code == 503


def test_metrics_take_as_many_statements_for_many_jobs_as_for_few(
    tmp_path: Path, database_url: str
) -> None:
    with closing(SqlStores(database_url)) as stores, statements() as asked:
        api = Api(tmp_path, stores=stores)
        api.add_node()
        counts = []
        with api.http(api.token(Role.VIEWER)) as scraper:
            scraper.get("/metrics")
            for number in range(2, 13):
                with stores.transaction() as tx:
                    tx.jobs.add(job(f"j{number}", name=f"n{number}"))
                    tx.worlds.put(world(job=f"j{number}"))
                if number in (2, 12):
                    asked.clear()
                    assert scraper.get("/metrics").status_code == 200
                    counts.append(len(asked))
    assert counts[0] == counts[1]


def test_a_brain_that_lost_the_database_tells_that_it_does_not_decide(
    tmp_path: Path, stores: _Losable
) -> None:
    with stores.transaction() as tx:
        tx.jobs.add(job())
    metrics = Metrics()
    ticker = Ticker(
        stores,  # type: ignore[arg-type]
        Settings(),
        lambda: NOW,
        home=tmp_path,
        bell=Bell(),
        metrics=metrics,
        condition=ServiceCondition(metrics),
        turn=lambda *_: None,
    )
    said = []
    for stores.lost in (False, True, False):
        ticker.tick()
        said.append(metrics.lease_held.labels("local")._value.get())
    assert said == [1, 0, 1]
