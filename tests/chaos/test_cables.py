"""Cables between programs fail; no acknowledged sample is lost, and none is stored twice.

Between collector and service, and between service and PostgreSQL, each harm once in ``make test``
and twenty times at random moments in ``make chaos``. The collector's spool and delivery run here in
the test's process.
"""

import asyncio
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from brain import calls, wire
from collectors.delivery import Delivery
from collectors.spool import Spool
from tests.api.app import digits
from tests.builders import throughput
from tests.cables import HARMS, Cable, cable
from tests.patience import Patience
from tests.postgresql import Server
from tests.serving import Service, service

SEED = int(os.environ.get("BRAIN_CHAOS_SEED", "1"))
#: The cable, the service, the URL that the collector knows, and the samples that are stored.
Place = tuple[Cable, Service, str, Callable[[], int]]


@contextmanager
def before_the_service(home: Path) -> Iterator[Place]:
    """A cable between the collector and a service on SQLite."""
    with service(home) as running:
        at = urlsplit(running.url)

        def stored() -> int:
            with closing(sqlite3.connect(home / "brain.db")) as database:
                return int(database.execute("SELECT count(*) FROM throughput_rows").fetchone()[0])

        with cable(lambda: asyncio.open_connection(at.hostname, at.port)) as way:
            yield way, running, f"http://127.0.0.1:{way.port}", stored


@contextmanager
def before_postgresql(home: Path, server: Server, url: str) -> Iterator[Place]:
    """A cable between a service and PostgreSQL."""
    name = sa.make_url(url).database
    assert name

    def stored() -> int:
        with server.connected(name) as database:
            found = database.execute("SELECT count(*) FROM throughput_rows").fetchone()
            assert found
            return int(str(found[0]))

    with cable(lambda: asyncio.open_unix_connection(server.directory / ".s.PGSQL.5432")) as way:
        at = f"postgresql://brain@127.0.0.1:{way.port}/{name}"
        with service(home, f"--database-url={at}") as running:
            yield way, running, running.url, stored


async def deliver(place: Place, spool: Spool, harms: list[tuple[str, float]]) -> None:
    """Deliver samples while harms come, each for some seconds, and hold all to the promise."""
    way, running, url, stored = place
    with running.client() as admin:
        job = admin.send(calls.submit(digits())).id
    with running.client("scaler") as scaler:
        token = scaler.send(calls.mint_agent_token(job)).secret
    delivery = Delivery(spool, url=lambda job: url, token=lambda job: token)
    begin, count = datetime.now(UTC) - timedelta(minutes=5), 0

    async def sample_and_send() -> None:
        nonlocal count
        for _ in range(3):
            at = begin + timedelta(milliseconds=count)
            sample = throughput(count, job=job, measured_at=at)
            assert spool.append(job, wire.encode_sample(sample), now=at.timestamp())
            count += 1
        await delivery.turn()
        await asyncio.sleep(0.02)

    for harm, seconds in harms:
        before = delivery.counts.stored + delivery.counts.duplicates
        harming = asyncio.create_task(HARMS[harm](way, seconds))
        while not harming.done():
            await sample_and_send()
        await harming
        patience = Patience(60)
        while spool.jobs() or delivery.counts.stored + delivery.counts.duplicates == before:
            assert not patience.over, f"nothing arrives after {harm}: {delivery.errors()}"
            delivery.hurry()
            await sample_and_send()
    await delivery.close()
    counts = delivery.counts
    assert (counts.rejected, counts.unreadable) == (0, 0)
    assert counts.stored + counts.duplicates == count
    assert stored() == count


HARMED_ONCE = [(harm, 1.5) for harm in HARMS]


def harmed_often(where: str) -> list[tuple[str, float]]:
    """Twenty of each harm in a random order, each for a random time."""
    rng = random.Random(f"{SEED}/{where}")
    print(f"seed {SEED}, cable {where}")
    harms = [*HARMS] * 20
    rng.shuffle(harms)
    return [(harm, rng.uniform(0.05, 2.5)) for harm in harms]


def test_no_sample_is_lost_between_collector_and_service(tmp_path: Path) -> None:
    with before_the_service(tmp_path / "home") as place:
        asyncio.run(deliver(place, Spool(tmp_path / "spool"), HARMED_ONCE))


def test_no_sample_is_lost_between_service_and_postgresql(
    tmp_path: Path, postgresql: Server, postgresql_url: str
) -> None:
    with before_postgresql(tmp_path / "home", postgresql, postgresql_url) as place:
        asyncio.run(deliver(place, Spool(tmp_path / "spool"), HARMED_ONCE))


@pytest.mark.chaos
def test_no_sample_is_lost_before_the_service_eighty_times(tmp_path: Path) -> None:
    with before_the_service(tmp_path / "home") as place:
        asyncio.run(deliver(place, Spool(tmp_path / "spool"), harmed_often("service")))


@pytest.mark.chaos
def test_no_sample_is_lost_before_postgresql_eighty_times(
    tmp_path: Path, postgresql: Server, postgresql_url: str
) -> None:
    with before_postgresql(tmp_path / "home", postgresql, postgresql_url) as place:
        asyncio.run(deliver(place, Spool(tmp_path / "spool"), harmed_often("postgresql")))
