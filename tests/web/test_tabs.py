"""All tabs of a browser share one stream, because a browser has six connections to a service."""

import time
from dataclasses import replace
from datetime import UTC, datetime

import httpx2
from playwright.sync_api import Browser, expect

from brain import calls
from brain.types.job import JobState
from tests.patience import Patience
from tests.web import seed
from tests.web.browser import code, visit
from tests.web.served import Served

TABS = 8


def test_eight_tabs_are_live_on_one_stream_and_outlive_the_first(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        pages = [seen.page, *(seen.page.context.new_page() for _ in range(TABS - 1))]
        rows = []
        for page in pages:
            page.goto(f"{served.url}/#/jobs")
            rows.append(page.get_by_role("row", name="volume-seg"))
            expect(rows[-1]).to_contain_text("Running")
            expect(page.locator(".live")).to_contain_text("live ·")
        assert _streams(served) == 1
        _let_volume_be(served, JobState.SUSPENDED)
        for row in rows:
            expect(row).to_contain_text("Suspended")
        for page in pages[:3]:
            page.close()
        _let_volume_be(served, JobState.QUEUED)
        for row in rows[3:]:
            expect(row).to_contain_text("Queued")
        _let_volume_be(served, JobState.RUNNING)


def test_a_pasted_token_keeps_a_stream_of_its_own(browser: Browser, served: Served) -> None:
    with visit(browser, served, signed_in=False) as seen:
        seen.page.goto(served.url)
        seen.page.get_by_label("Or paste a token").fill(served.admin)
        seen.page.keyboard.press("Enter")
        expect(seen.page.locator(".live")).to_contain_text("live ·")
        seen.forgive("401")


def test_tabs_have_another_worker_after_theirs_has_died(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        seen.page.clock.install()
        seen.page.goto(f"{served.url}/#/jobs")
        seen.page.reload()
        row = seen.page.get_by_role("row", name="volume-seg")
        expect(seen.page.locator(".live")).to_contain_text("live ·")
        devtools = browser.new_browser_cdp_session()
        for target in devtools.send("Target.getTargets")["targetInfos"]:
            if target["type"] == "shared_worker":
                devtools.send("Target.closeTarget", {"targetId": target["targetId"]})
        # A minute and a half in which nothing was told.
        seen.page.clock.fast_forward(120_000)
        expect(seen.page.locator(".live")).to_contain_text("live ·")
        _let_volume_be(served, JobState.SUSPENDED)
        expect(row).to_contain_text("Suspended")
        _let_volume_be(served, JobState.RUNNING)
        devtools.detach()


def test_a_stream_is_of_the_user_who_signed_in_last(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen, served.client() as client:
        before = {token.id for token in client.send(calls.tokens()).items}
        page = seen.page.context.new_page()
        page.goto(f"{served.url}/#signin={code(served)}")
        expect(page.locator(".live")).to_contain_text("live ·")
        seen.page.close()
        (mine,) = {token.id for token in client.send(calls.tokens()).items} - before
        client.send(calls.revoke_token(mine))
        expect(page.get_by_text("The session has ended")).to_be_visible()
        patience = Patience(10)
        while _streams(served) and not patience.over:
            time.sleep(0.1)
        assert _streams(served) == 0


def _let_volume_be(served: Served, state: JobState) -> None:
    with served.stores() as stores, stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get(seed.VOLUME), state=state, updated_at=datetime.now(UTC)))


def _streams(served: Served) -> int:
    told = httpx2.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {served.admin}"})
    lines = [line for line in told.text.splitlines() if "streams" in line and line[0] != "#"]
    return int(float(lines[0].split()[-1]))
