"""The page of a job that failed says which rank was first, of what, and shows its stacks."""

from playwright.sync_api import Browser, expect

from tests.web.browser import visit
from tests.web.served import Served


def test_a_job_that_failed_says_why(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/pose-net")
        found = seen.page.get_by_role("region", name="What failed")
        expect(found).to_contain_text("rank 1 ended with 137 (SIGKILL); it failed first")
        expect(found).to_contain_text("1 ended for want of memory")
        found.get_by_text("stacks of rank 1").click()
        expect(found.get_by_text("line 7 in step")).to_be_visible()
