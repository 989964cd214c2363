"""Signing in: by a link that the command line prints, once, or by a token."""

from playwright.sync_api import Browser, expect

from brain import calls
from brain.types.record import Role
from tests.web.browser import code, visit
from tests.web.served import Served


def test_the_link_signs_in_and_leaves_no_trace_in_the_address(
    browser: Browser, empty: Served
) -> None:
    with visit(browser, empty, signed_in=False) as seen:
        secret = code(empty)
        seen.page.goto(f"{empty.url}/#signin={secret}")
        expect(seen.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        assert secret not in seen.page.url + seen.page.title()


def test_a_used_link_says_why_and_where_the_next_one_is(browser: Browser, empty: Served) -> None:
    secret = code(empty)
    with visit(browser, empty, signed_in=False) as seen:
        seen.page.goto(f"{empty.url}/#signin={secret}")
        seen.page.get_by_role("heading", name="Overview", level=1).wait_for()
    with visit(browser, empty, signed_in=False) as seen:
        seen.page.goto(f"{empty.url}/#signin={secret}")
        expect(seen.page.get_by_text("used or expired")).to_be_visible()
        expect(seen.page.get_by_role("button", name="Copy: brain sign-in")).to_be_visible()
        seen.forgive("401")


def test_a_pasted_token_signs_in(browser: Browser, empty: Served) -> None:
    with visit(browser, empty, signed_in=False) as seen:
        seen.page.goto(empty.url)
        seen.page.get_by_label("Or paste a token").fill(empty.admin)
        expect(seen.page.get_by_text("this request needs a token")).to_have_count(0)
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        seen.forgive("401")


def test_a_viewer_sees_controls_dashed_with_the_missing_role(
    browser: Browser, served: Served, proposal: int
) -> None:
    with served.client() as client:
        token = client.send(calls.mint_token("eve", Role.VIEWER)).secret
    with visit(browser, served, signed_in=False) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        seen.page.get_by_label("Or paste a token").fill(token)
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("button", name="Approve")).to_have_attribute(
            "aria-disabled", "true"
        )
        expect(seen.page.get_by_text("needs role operator; you are viewer")).to_be_visible()
        seen.forgive("401")
