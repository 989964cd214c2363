"""The page of a job with more plans than a page of the API has."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from brain.api.pages import LARGEST
from tests.web.browser import visit
from tests.web.served import with_many_plans


def test_the_page_of_a_job_shows_all_its_plans(browser: Browser, tmp_path: Path) -> None:
    with with_many_plans(tmp_path) as crowded, visit(browser, crowded) as seen:
        seen.page.goto(f"{crowded.url}/#/jobs/digits")
        rows = seen.page.locator(".plans tbody tr")
        expect(rows).to_have_count(4 + LARGEST)
        expect(rows.last).to_contain_text("g1")
