"""The list of jobs is fetched once, kept by what the service tells, and long lists stay quick."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from brain.db import SqlStores, prepare
from brain.types.job import JobId, JobState
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served

MANY = 1_990


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The fleet of ``seed`` beside 1,990 jobs that ended."""
    home = tmp_path_factory.mktemp("long")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, now)
        ended = {"updated_at": now - timedelta(days=3), "finished_at": now - timedelta(days=3)}
        with stores.transaction() as tx:
            for number in range(MANY):
                id = JobId(f"0197e000-0000-7000-8000-{number:012x}")
                tx.jobs.add(seed.job(id, f"run-{number}", now, JobState.SUCCEEDED, **ended))
    running = Served(home)
    running.start()
    yield running
    running.stop()


def test_the_list_is_fetched_once_and_follows_what_is_told(browser: Browser, long: Served) -> None:
    with visit(browser, long) as seen:
        asked: list[str] = []
        seen.page.on("request", lambda request: asked.append(request.url.split("?")[0]))
        seen.page.goto(f"{long.url}/#/jobs")
        row = seen.page.get_by_role("row", name="volume-seg")
        row.wait_for()
        asked.clear()
        seen.page.reload()
        expect(row).to_contain_text("Running")
        with long.stores() as stores, stores.transaction() as tx:
            found = tx.jobs.get(seed.VOLUME)
            tx.jobs.put(found.moved(JobState.SUSPENDED, "by ada", datetime.now(UTC)))
        expect(row).to_contain_text("Suspended")
        seen.page.wait_for_timeout(7_000)  # longer than it was ever between two questions
        lists = [url for url in asked if url.endswith("/api/v1/jobs")]
        assert len(lists) == 4  # 1,998 jobs in pages of 500
        assert sum(url.endswith("/api/v1/plans") for url in asked) <= 2


def test_a_job_that_is_submitted_elsewhere_is_a_row(browser: Browser, long: Served) -> None:
    with visit(browser, long) as seen:
        seen.page.goto(f"{long.url}/#/jobs")
        expect(seen.page.get_by_role("row", name="volume-seg")).to_be_visible()
        with long.stores() as stores, stores.transaction() as tx:
            fresh = JobId("0197f000-0000-7000-8000-0000000000ff")
            now = datetime.now(UTC)
            tx.jobs.add(replace(seed.job(fresh, "late-net", now, JobState.QUEUED), created_at=now))
        expect(seen.page.get_by_role("row", name="late-net")).to_be_visible()


def test_of_two_thousand_rows_only_those_in_sight_are_in_the_page(
    browser: Browser, long: Served
) -> None:
    with visit(browser, long) as seen:
        seen.page.goto(f"{long.url}/#/jobs")
        seen.page.get_by_role("button", name="state: ended").click()
        expect(seen.page.locator("main .sp")).to_contain_text("1992 ended")
        assert _rows(seen.page) < 100
        seen.page.evaluate("document.querySelector('.page').scrollTo(0, 1e6)")
        expect(seen.page.get_by_role("row", name="run-0", exact=False).last).to_be_visible()
        assert _rows(seen.page) < 100
        for _ in range(3):
            seen.page.keyboard.press("j")
        expect(seen.page.locator("tr.sel")).to_be_in_viewport()


def test_tab_goes_from_row_to_row_after_a_scroll(browser: Browser, long: Served) -> None:
    with visit(browser, long) as seen:
        seen.page.goto(f"{long.url}/#/jobs")
        seen.page.get_by_role("button", name="state: ended").click()
        expect(seen.page.locator("main .sp")).to_contain_text("1992 ended")
        seen.page.mouse.move(700, 500)
        for _ in range(5):
            seen.page.mouse.wheel(0, 512)  # six blocks of rows and a part
            seen.page.wait_for_timeout(30)
        seen.page.wait_for_timeout(600)  # blocks are put in order
        seen.page.locator(".jobs tr[aria-rowindex='90'] a").focus()
        for row in range(91, 141):
            seen.page.wait_for_timeout(600 if row % 6 == 0 else 0)
            seen.page.keyboard.press("Tab")
            assert _focused(seen.page) == str(row)


def test_rows_keep_their_places_under_the_pointer(browser: Browser, long: Served) -> None:
    with visit(browser, long) as seen:
        seen.page.goto(f"{long.url}/#/jobs")
        seen.page.get_by_role("row", name="volume-seg").hover()
        names = seen.page.locator(".jobs tbody a")
        before = names.all_inner_texts()
        _let_volume_be(long, JobState.DEGRADED)
        expect(seen.page.get_by_role("row", name="volume-seg")).to_contain_text("Degraded")
        assert names.all_inner_texts() == before
        seen.page.mouse.move(700, 20)
        expect(names).not_to_have_text(before)
        assert names.all_inner_texts().index("volume-seg") < before.index("volume-seg")
        _let_volume_be(long, JobState.RUNNING)


def test_jobs_without_a_proposal_ask_for_no_plans(browser: Browser, long: Served) -> None:
    with visit(browser, long) as seen:
        asked: list[str] = []
        seen.page.goto(f"{long.url}/#/jobs")
        row = seen.page.get_by_role("row", name="volume-seg")
        row.wait_for()
        seen.page.wait_for_timeout(1_500)  # what was told as the stream began
        seen.page.on("request", lambda request: asked.append(request.url.split("?")[0]))
        for state in (JobState.QUEUED, JobState.STARTING, JobState.CHANGING, JobState.RUNNING):
            with long.stores() as stores, stores.transaction() as tx:
                now = datetime.now(UTC)
                tx.jobs.put(replace(tx.jobs.get(seed.VOLUME), state=state, updated_at=now))
                tx.events.add(seed.Event(at=now, kind=f"job.{state}", job=seed.VOLUME, message=""))
            expect(row).to_contain_text(state)
            seen.page.wait_for_timeout(1_500)
        # A stream tells each row whole once, its plan included: this one's, then the others'.
        assert sum(url.endswith("/api/v1/plans") for url in asked) <= 2


def test_the_list_follows_what_is_typed(browser: Browser, long: Served) -> None:
    with visit(browser, long) as seen:
        seen.page.goto(f"{long.url}/#/jobs")
        seen.page.keyboard.press("/")
        seen.page.keyboard.type("state:run vol")
        expect(seen.page.get_by_role("row", name="ranker")).to_have_count(0)
        seen.page.locator("#filter").fill("owner:grace ")
        expect(seen.page.get_by_role("row", name="wave-net")).to_be_visible()
        expect(seen.page.get_by_role("row", name="ranker")).to_have_count(0)
        assert "filter=owner" in seen.page.url
        seen.page.locator("#filter").fill("colour:blue")
        expect(seen.page.get_by_text("the key 'colour' does not exist; choose one of")).to_be_visible()


def _let_volume_be(served: Served, state: JobState) -> None:
    with served.stores() as stores, stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get(seed.VOLUME), state=state, updated_at=datetime.now(UTC)))


def _focused(page: Page) -> str:
    found = "document.activeElement.closest('tr')?.getAttribute('aria-rowindex')"
    return str(page.evaluate(found))


def _rows(page: Page) -> int:
    return page.locator(".jobs tbody tr").count()
