"""One browser and two services for all browser tests: an empty one and one with a past."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from brain.db import SqlStores, prepare
from brain.ports import Stores
from tests.web import browser as chromium
from tests.web import seed
from tests.web.served import Served

expect.set_options(timeout=chromium.PATIENCE)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; fails with the command that installs one."""
    with chromium.launched() as running:
        yield running


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service to which nothing was ever submitted."""
    yield from _served(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with the fleet of ``seed``."""
    yield from _seeded(tmp_path_factory.mktemp("seeded"))


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Served]:
    """The same for a test that changes what others look at."""
    yield from _seeded(tmp_path)


@pytest.fixture
def proposal(served: Served) -> int:
    """Generation of a fresh proposal for the job digits; what stood before is superseded."""
    now = datetime.now(UTC)
    with served.stores() as stores:
        generation = _supersede(stores, now) + 1
        seed.propose(stores, now, generation=generation)
    return generation


def _supersede(stores: Stores, now: datetime) -> int:
    with stores.transaction() as tx:
        plans = tx.plans.of(seed.DIGITS)
    if plans[0].active:
        seed.supersede(stores, now, generation=plans[0].generation)
    seed.settle(stores, now)
    return plans[0].generation


def _seeded(home: Path) -> Iterator[Served]:
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, datetime.now(UTC))
    yield from _served(home)


def _served(home: Path) -> Iterator[Served]:
    running = Served(home)
    running.start()
    yield running
    running.stop()
