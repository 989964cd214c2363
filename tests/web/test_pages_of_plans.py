"""The page of a job with more plans than a page of the API has."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, expect

from brain.api.pages import LARGEST
from brain.db import SqlStores, prepare
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served


@pytest.fixture
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose job digits has one page of expired plans above its four others."""
    home = tmp_path_factory.mktemp("crowded")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, datetime.now(UTC))
        seed.expired(stores, above=4, count=LARGEST)
    running = Served(home)
    running.start()
    yield running
    running.stop()


def test_the_page_of_a_job_shows_all_its_plans(browser: Browser, crowded: Served) -> None:
    with visit(browser, crowded) as seen:
        seen.page.goto(f"{crowded.url}/#/jobs/digits")
        rows = seen.page.locator(".plans tbody tr")
        expect(rows).to_have_count(4 + LARGEST)
        expect(rows.last).to_contain_text("g1")
