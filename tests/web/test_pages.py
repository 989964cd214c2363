"""Every page shows real data in both themes, says what is missing, and complains of nothing."""

import re
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from tests.web import seed
from tests.web.browser import afresh, visit
from tests.web.served import Served

#: Address, and words that only appear with data.
PAGES = {
    "overview": "has a straggler",
    "jobs": "tiny-lm",
    "jobs/digits": "A third replica adds 42 %",
    "jobs/digits/timeline": "2 replicas again",
    "jobs/digits/logs": "No output yet",
    "jobs/digits/spec": "examples/digits.py",
    "inbox": "Waiting for you",
    "nodes": "workbench",
    "pool": "ranker gains more from them",
    "audit": "plan g1 of digits",
    "health": "No reports from workbench",
}

#: Words of the cells that are wider than their column.
CUT = "cells => cells.filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.textContent)"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_shows_its_data_and_is_accessible(
    browser: Browser, served: Served, proposal: int, theme: Literal["light", "dark"]
) -> None:
    with visit(browser, served, theme=theme) as seen:
        for address, words in PAGES.items():
            afresh(seen.page, f"{served.url}/#/{address}")
            expect(seen.page.get_by_role("main").get_by_text(words).first).to_be_visible()
            assert _violations(seen.page) == [], address


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_comes_before_and_over_the_pages_is_accessible(
    browser: Browser, served: Served, proposal: int, theme: Literal["light", "dark"]
) -> None:
    with visit(browser, served, theme=theme, signed_in=False) as seen:
        seen.page.goto(served.url)
        expect(seen.page.get_by_role("heading", name="Sign in to Brain")).to_be_visible()
        assert _violations(seen.page) == []
        seen.forgive("401")
    with visit(browser, served, theme=theme) as seen:
        seen.page.goto(f"{served.url}/#/jobs/{seed.BROKEN}")
        expect(seen.page.get_by_role("region", name="What failed")).to_be_visible()
        assert _violations(seen.page) == []
        seen.page.goto(f"{served.url}/#/jobs/digits")
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal}")
        for key, title in (("a", "Approve 2 → 3 replicas of digits?"), ("?", "Keyboard")):
            seen.page.keyboard.press(key)
            dialog = seen.page.get_by_role("dialog")
            expect(dialog).to_contain_text(title)
            assert _violations(seen.page) == []
            seen.page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)


def test_the_charts_draw_what_was_measured(browser: Browser, served: Served, proposal: int) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        expect(seen.page.locator(".plot canvas")).to_have_count(3)
        seen.page.get_by_text("View as table").click()
        row = seen.page.locator(".astable tbody tr").first
        assert 900 < _number(row.locator("td").nth(1).inner_text()) < 1050


def test_the_overview_counts_hours_at_work_idle_and_saved(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/overview")
        strip = seen.page.get_by_role("img", name="core-h of 24 hours: at work")
        expect(strip).to_be_visible()
        expect(seen.page.get_by_role("main")).to_contain_text("against requested sizes")
        expect(seen.page.get_by_role("main")).to_contain_text("at the requested sizes")
        expect(strip).to_contain_text("no job ran")
        rows = seen.page.locator(".astable tbody tr")
        seen.page.get_by_text("View as table").click()
        expect(rows).to_have_count(24)


def test_the_overview_shows_what_a_shared_pool_costs_and_how_well_it_is_divided(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/overview")
        main = seen.page.get_by_role("main")
        expect(main).to_contain_text("Price of")
        expect(main).to_contain_text("A better division adds")


def test_the_model_stands_beside_its_promises(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        model = seen.page.get_by_role("region", name="Model")
        expect(model).to_contain_text("1 of 2 promises held their band")
        expect(model).to_contain_text("steps measured at 2 replicas")
        expect(model.get_by_role("img")).to_have_accessible_name(
            "measured against promised; generation 2: −22\u00a0%, outside; "
            "generation 1: +1\u00a0%, inside"
        )


def test_a_long_reason_stays_within_its_card(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        fact = seen.page.locator(".ev li", has_text="by 3 earlier runs (mon, tue, wed)").first
        expect(fact).to_be_visible()
        value, row = fact.locator("b").bounding_box(), fact.bounding_box()
        assert value is not None
        assert row is not None
        assert value["x"] >= row["x"]
        assert value["x"] + value["width"] <= row["x"] + row["width"] + 1
        assert not fact.locator("span").evaluate_all(CUT)


def test_text_of_programs_stands_in_a_box(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        for address in ("logs", "spec"):
            seen.page.goto(f"{served.url}/#/jobs/digits/{address}")
            box = seen.page.locator("main pre")
            expect(box).to_have_css("padding-left", "12px")
            expect(box).to_have_css("overflow", "auto")


def test_the_crosshair_moves_by_the_arrow_keys(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        seen.page.get_by_label("Measured charts").focus()
        seen.page.keyboard.press("ArrowLeft")
        expect(seen.page.locator(".reading").first).to_contain_text("measured")
        before = seen.page.locator(".pillt").text_content()
        assert before
        seen.page.keyboard.press("Shift+ArrowLeft")
        expect(seen.page.locator(".pillt")).not_to_have_text(before)


def test_an_empty_service_says_what_to_do(browser: Browser, empty: Served) -> None:
    with visit(browser, empty) as seen:
        expect(seen.page.get_by_text("No jobs yet, because nothing was submitted")).to_be_visible()
        expect(
            seen.page.get_by_role("button", name="Copy: brain submit -f job.yaml")
        ).to_be_visible()
        assert _violations(seen.page) == []
        seen.page.goto(f"{empty.url}/#/nodes")
        expect(seen.page.get_by_text("because no scaler has registered one")).to_be_visible()


def test_a_command_is_selected_where_the_browser_has_no_clipboard(
    browser: Browser, empty: Served
) -> None:
    with visit(browser, empty) as seen:
        # As over HTTP from another machine.
        seen.page.add_init_script("delete Navigator.prototype.clipboard")
        afresh(seen.page, f"{empty.url}/#/jobs")
        command = seen.page.locator(".cmd").first
        command.get_by_role("button").click()
        said = command.locator("code").inner_text()
        assert seen.page.evaluate("getSelection().toString()") == said
        expect(command.get_by_role("button")).to_have_text("Copy")


def test_a_pool_says_its_prices_its_gap_and_what_a_project_lacks(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/pool")
        main = seen.page.get_by_role("main")
        expect(main.get_by_text("0.039")).to_be_visible()
        expect(main.get_by_text("0.1\u00a0%")).to_be_visible()
        lacking = main.get_by_role("row", name="vision")
        expect(lacking.locator("td").nth(4)).to_have_text("2")
        rows = main.get_by_role("table", name="Shares of the pool").locator("tbody tr")
        expect(rows.first).to_contain_text("wave-net")


def test_a_pool_that_nobody_shares_says_how_to(browser: Browser, empty: Served) -> None:
    with visit(browser, empty) as seen:
        seen.page.goto(f"{empty.url}/#/pool")
        expect(seen.page.get_by_text("no pool named local has nodes")).to_be_visible()
        seen.forgive("404")


def test_a_silent_job_is_shown_as_stale(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/ranker")
        expect(seen.page.get_by_text("Rank 2 is 30 % slower")).to_be_visible()
        seen.page.goto(f"{served.url}/#/nodes")
        expect(seen.page.get_by_text("silent").first).to_be_visible()


def test_a_node_that_was_left_as_sick_says_by_whom_and_why(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/nodes")
        expect(seen.page.get_by_text("avoids this node until")).to_contain_text("fell off the bus")
        seen.page.goto(f"{served.url}/#/jobs/ranker")
        told = seen.page.get_by_role("list", name="Conditions")
        expect(told).to_contain_text("Left node: the job avoids workbench until")


def test_a_job_shows_what_its_cluster_says_of_its_object(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/wave-net/spec")
        rows = seen.page.get_by_role("table", name="Conditions of the object").locator("tbody tr")
        expect(rows).to_have_text([re.compile("Acceptedyes"), re.compile("Feasibleno.*9 GPUs")])


def test_an_unknown_job_is_said_to_be_none(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/nonesuch")
        expect(seen.page.get_by_text("There is no such job.")).to_be_visible()
        seen.forgive("404")


def test_the_filter_stands_in_the_address(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs?filter=owner:grace")
        expect(seen.page.get_by_role("link", name="wave-net")).to_be_visible()
        expect(seen.page.get_by_role("link", name="ranker")).to_have_count(0)
        seen.page.get_by_role("button", name="state: ended").click()
        expect(seen.page.get_by_role("link", name="pose-net")).to_be_visible()
        assert "filter=state" in seen.page.url


def test_an_unknown_filter_key_is_answered_with_the_known_ones(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs?filter=colour:blue")
        expect(
            seen.page.get_by_text("the key 'colour' does not exist; choose one of")
        ).to_be_visible()
        seen.forgive("400", "422")


def test_a_phone_shows_all_without_scrolling_sideways(
    browser: Browser, served: Served, proposal: int
) -> None:
    words = dict.fromkeys(("overview", "jobs/digits", "inbox", "pool"), "digits")
    # Its first page is of the newest entries, which are sign-ins of other tests by then.
    words["audit"] = "sign in"
    with visit(browser, served, width=390, height=844) as seen:
        for address, word in words.items():
            afresh(seen.page, f"{served.url}/#/{address}")
            expect(seen.page.get_by_role("main").get_by_text(word).first).to_be_visible()
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_on_a_phone_no_word_of_the_audit_log_or_of_times_is_cut(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served, width=390, height=844) as seen:
        for address in ("audit", "jobs/digits/timeline"):
            seen.page.goto(f"{served.url}/#/{address}")
            cells = seen.page.locator("main tbody:last-of-type td")
            expect(cells.first).to_be_visible()
            assert cells.evaluate_all(CUT) == []


def test_on_a_phone_the_actions_stick_to_the_bottom_edge(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served, width=390, height=844) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        box = seen.page.get_by_role("button", name="Approve").bounding_box()
        assert box is not None
        assert box["height"] == 40
        assert 844 - 64 < box["y"] + box["height"] < 844


def test_the_theme_can_be_chosen_and_is_kept(browser: Browser, empty: Served) -> None:
    with visit(browser, empty) as seen:
        for theme in ("light", "dark"):
            seen.page.locator(".where button").click()
            expect(seen.page.locator("html")).to_have_attribute("data-theme", theme)
        seen.page.reload()
        expect(seen.page.locator("html")).to_have_attribute("data-theme", "dark")


def _violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {rule['help']} at {rule['nodes'][0]['target']} {rule['nodes'][0]['html']}"
        for rule in found
    ]


def _number(text: str) -> float:
    return float(text.replace("\u202f", "").replace("\u2212", "-"))
