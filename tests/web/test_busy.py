"""A busy dashboard answers a reader: what is wrong, what Brain did, what it saved and missed."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.terminal import shown
from tests.web import busy
from tests.web.browser import visit
from tests.web.served import Served
from tests.web.test_charts import COVERED

PAGES = ("overview", "jobs", "jobs/language-12", "jobs/language-12/timeline", "nodes")


@pytest.fixture(scope="module")
def many() -> Iterator[Served]:
    """Sixty jobs: one straggles, one was rolled back, one missed its promise; a node is silent."""
    with busy.served() as running:
        yield running


def test_the_overview_answers_what_a_reader_asks(browser: Browser, many: Served) -> None:
    with visit(browser, many) as seen:
        wrong, did, saved = (seen.page.locator(".answers > div").nth(at) for at in range(3))
        expect(wrong).to_contain_text("1 job and 1 node need a look")
        expect(wrong).to_contain_text("node-6 is silent; language-08 has a straggler")
        expect(did).to_contain_text("8 kept, 1 fell short, 1 rolled back")
        expect(did).to_contain_text("language-20 (stayed at 4), language-12 (back to 2)")
        expect(saved).to_contain_text("core-h saved")
        expect(seen.page.get_by_text("at the requested sizes")).to_be_visible()
        heading = seen.page.locator(".h", has_text="Needs attention")
        expect(heading.locator(".sub")).to_have_text("1 job and 1 node; 2 more wait")


def test_each_concern_and_decision_of_the_overview_says_what_its_words_and_numbers_are(
    browser: Browser, many: Served
) -> None:
    with visit(browser, many) as seen:
        concerns = seen.page.locator(".att li")
        silent = concerns.filter(has_text="node-6 is silent")
        expect(silent).to_contain_text("No job of Brain runs on the node.")
        straggler = concerns.filter(has_text="language-08 has a straggler")
        # Nobody knows since when; the job's own time is that of another change.
        expect(straggler.locator(".when")).to_be_empty()
        decisions = seen.page.get_by_role("table", name="Decisions and their reasons")
        expect(decisions.locator("th")).to_have_text(
            ["Time", "Outcome", "Job", "Replicas", "Why", "Promise", "vs promise"]
        )
        expect(decisions.locator("tr", has_text="language-12")).to_contain_text(
            "times as much as 2. Measured 1\u202f405 of 1\u202f810 examples/s promised"
        )


def test_the_command_line_answers_what_is_wrong_and_which_promise_was_missed(many: Served) -> None:
    service = {"BRAIN_URL": many.url, "BRAIN_TOKEN": many.admin}

    def printed(*words: str) -> str:
        return shown(*words, environment=service, columns=80)

    (straggler,) = [line for line in printed("jobs").splitlines() if " language-08 " in line]
    assert "  Straggler: ra" in straggler
    assert "Rolled back by plan 2: Generation 1 fell short: " in printed("explain", "language-12")
    said = "Plan 1, 3 → 4 replicas, fell short of its promise; the new size stays: measured 1 405 of 1 740 examples/s"
    assert said in printed("explain", "language-20")
    assert "promised" not in printed("explain", "language-08")
    (node,) = [line for line in printed("nodes").splitlines() if " node-4 " in line]
    assert "18 of 20" in node
    assert "36 of 128" in node


def test_a_missed_promise_is_no_hold_and_no_green_mark(browser: Browser, many: Served) -> None:
    said = {"language-12": "rolled back", "language-20": "fell short"}
    with visit(browser, many) as seen:
        seen.page.goto(f"{many.url}/#/jobs")
        for job, verdict in said.items():
            cell = seen.page.get_by_role("row", name=job).locator(".c-brain")
            expect(cell).to_contain_text(verdict.capitalize())
            expect(cell.locator(".ic.bad")).to_have_count(1)
    service = {"BRAIN_URL": many.url, "BRAIN_TOKEN": many.admin}
    lines = shown("jobs", environment=service, columns=120).splitlines()
    for job, verdict in said.items():
        assert verdict in next(line for line in lines if f" {job} " in line)


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_name_lies_on_another_on_a_full_node(browser: Browser, many: Served, width: int) -> None:
    with visit(browser, many, width=width) as seen:
        seen.page.goto(f"{many.url}/#/nodes")
        expect(seen.page.locator(".machine")).to_have_count(9)
        assert seen.page.evaluate(COVERED, ".machine a, .machine .who > *") == []


@pytest.mark.parametrize("width", [1024, 390])
def test_no_page_is_wider_than_the_window(browser: Browser, many: Served, width: int) -> None:
    with visit(browser, many, width=width) as seen:
        for page in PAGES:
            seen.page.goto(f"{many.url}/#/{page}")
            expect(seen.page.locator("main section, main table").first).to_be_visible()
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
