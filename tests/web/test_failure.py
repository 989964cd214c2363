"""What failed or hangs is found from the overview; its page says which rank was first, of what."""

from playwright.sync_api import Browser, expect

from tests.web.browser import visit
from tests.web.served import Served


def test_a_job_that_failed_says_why(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/pose-net")
        found = seen.page.get_by_role("region", name="What failed")
        expect(found).to_contain_text("rank 1 exited with code 137 (SIGKILL); it failed first")
        expect(found).to_contain_text("out-of-memory kills in its control group since the worker started: 1")
        found.get_by_text("stacks of rank 1").click()
        expect(found.get_by_text("line 7 in step")).to_be_visible()


def test_a_job_that_hangs_is_found_from_the_overview(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.get_by_role("link", name="asr-net hangs").click()
        expect(seen.page.get_by_role("heading", name="asr-net", level=1)).to_be_visible()
        expect(seen.page.locator(".jobhead .badge")).to_have_text("Hung")
        expect(seen.page.get_by_text("Hung: no step for")).to_be_visible()
        found = seen.page.get_by_role("region", name="What failed")
        expect(found).to_contain_text("rank 1 is the one that the others wait for")


def test_the_timeline_says_what_each_change_cost(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits/timeline")
        rows = seen.page.get_by_role("table", name="Worlds, newest first").locator("tbody tr")
        expect(rows).to_have_count(4)
        expect(rows.first.locator("td").nth(4)).to_have_text("0.09\u00a0s")
        expect(rows.last.locator("td").nth(4)).to_have_text("—")
