"""Approving, rejecting, freezing: with a confirmation, by keyboard, as seen."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime

from playwright.sync_api import Browser, Page, expect

from brain import calls
from brain.types.plan import PlanState, ScalePlan
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served


def test_approving_by_keyboard_alone_changes_the_plan(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        _open_job(seen.page, served)
        seen.page.keyboard.press("a")
        expect(seen.page.get_by_role("dialog")).to_contain_text("Approve 2 → 3 replicas of digits?")
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_text(f"Approved: generation {proposal}")).to_be_visible()
        expect(seen.page.locator(".rec .hd")).not_to_contain_text("Proposed")
    approval = _plan(served, proposal).approval
    assert approval is not None
    assert approval.by == "admin"


def test_rejecting_keeps_the_reason(browser: Browser, served: Served, proposal: int) -> None:
    with visit(browser, served) as seen:
        _open_job(seen.page, served)
        seen.page.keyboard.press("r")
        seen.page.keyboard.type("the laptop is needed")
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_text(f"Rejected: generation {proposal}")).to_be_visible()
    assert _plan(served, proposal).state is PlanState.REJECTED
    with served.client() as client:
        said = [entry.why for entry in client.send(calls.audit(page_size=3)).items]
    assert any("the laptop is needed" in why for why in said)


def test_a_plan_that_changed_meanwhile_is_not_approved_but_shown(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        _open_job(seen.page, served)
        seen.page.keyboard.press("a")
        with served.stores() as stores:
            seed.supersede(stores, datetime.now(UTC), generation=proposal)
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("dialog")).to_contain_text("Proposed → Superseded")
        expect(seen.page.get_by_role("dialog").locator(".pri")).to_have_count(0)
        seen.forgive("409", "412")


def test_the_inbox_is_worked_through_by_keyboard(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        while not seen.page.url.endswith("/inbox"):  # keys a second apart are none together
            for key in ("g", "i"):
                seen.page.keyboard.press(key)
            seen.page.wait_for_timeout(200)
        expect(seen.page.get_by_role("heading", name="Waiting for you")).to_be_visible()
        seen.page.keyboard.press("a")
        expect(seen.page.get_by_role("dialog")).to_contain_text("Approve 2 → 3")
        seen.page.keyboard.press("Escape")
        expect(seen.page.get_by_role("dialog")).to_have_count(0)
        while seen.page.url.endswith("/inbox"):  # a key that comes as the dialog closes is its own
            seen.page.keyboard.press("Enter")
            seen.page.wait_for_timeout(200)
        # By its id until the list of jobs has come, which says whether the name is enough.
        expect(seen.page).to_have_url(re.compile(f"#/jobs/(digits|{seed.DIGITS})$"))
        expect(seen.page.get_by_role("heading", name="digits", level=1)).to_be_visible()
    assert _plan(served, proposal).state is PlanState.PROPOSED


def test_everything_is_frozen_and_thawed_from_the_top_bar(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.get_by_role("button", name="Freeze", exact=True).click()
        seen.page.get_by_role("dialog").wait_for()
        seen.page.keyboard.type("maintenance")
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_text("no plan is applied.").first).to_be_visible()
        with served.client() as client:
            (freeze,) = client.send(calls.freezes()).items
        assert freeze.why == "maintenance"
        seen.page.get_by_role("button", name="Frozen").click()
        seen.page.get_by_role("dialog").wait_for()
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("button", name="Freeze", exact=True)).to_be_visible()
    with served.client() as client:
        assert client.send(calls.freezes()).items == ()


def test_advise_only_is_lifted_from_the_page_of_its_job(browser: Browser, served: Served) -> None:
    with served.stores() as stores:
        seed.advise_only(stores, "2 rollbacks within 24 h; a person must approve from now on")
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/volume-seg")
        expect(seen.page.locator(".rec .advise")).to_contain_text("Advise only: 2 rollbacks")
        seen.page.get_by_role("button", name="Let Brain act").click()
        expect(seen.page.get_by_role("dialog")).to_contain_text("Let Brain act on volume-seg?")
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_text("volume-seg is no longer advise-only.")).to_be_visible()
        expect(seen.page.locator(".rec .advise")).to_have_count(0)
    with served.client() as client:
        assert client.send(calls.job("volume-seg")).job.advise_only is None


def test_advise_only_is_lifted_by_the_command(served: Served) -> None:
    with served.stores() as stores:
        seed.advise_only(stores, "2 rollbacks within 24 h; a person must approve from now on")
    said = subprocess.run(
        [sys.executable, "-m", "brain.cli", "lift-advise-only", "volume-seg"],
        env=os.environ | {"BRAIN_HOME": str(served.home), "BRAIN_URL": served.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    with served.client() as client:
        assert client.send(calls.job("volume-seg")).job.advise_only is None
        lifted = [e for e in client.send(calls.audit()).items if "lift" in e.action]
    assert lifted[0].action == "job.lift-advise-only"


def test_another_size_is_asked_for_from_the_curve(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        _open_job(seen.page, served)
        seen.page.get_by_label("What-if").focus()
        seen.page.keyboard.press("ArrowLeft")
        expect(seen.page.locator(".whatif")).to_contain_text("1 replica")
        seen.page.get_by_role("button", name="Ask for 1").click()
        seen.page.keyboard.press("Enter")
        expect(seen.page.locator(".notice")).to_contain_text("2 → 1")
    assert _plan(served, proposal).state is PlanState.SUPERSEDED


def test_the_palette_finds_a_job(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.get_by_role("link", name="ranker").first.wait_for()
        seen.page.keyboard.press("Control+k")
        seen.page.keyboard.type("volume")
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("heading", name="volume-seg", level=1)).to_be_visible()


def test_the_palette_finds_a_plan_by_its_generation(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.get_by_role("link", name="ranker").first.wait_for()
        seen.page.keyboard.press("Control+k")
        seen.page.keyboard.type(f"digits g{proposal}")
        expect(seen.page.get_by_role("option")).to_have_text(re.compile(f"^digits g{proposal}: "))


def _open_job(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/#/jobs/digits")
    page.get_by_role("button", name="Approve 2 → 3").wait_for()


def _plan(served: Served, generation: int) -> ScalePlan:
    with served.client() as client:
        views = client.send(calls.plans_of(seed.DIGITS)).items
    return next(view.plan for view in views if view.plan.generation == generation)
