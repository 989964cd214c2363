"""A tab to which nothing happens asks for nothing; what changes is told, and only then asked for."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from brain import calls
from brain.types.resources import Node, NodeName, PoolName, Resources
from tests.web import busy, seed
from tests.web.browser import visit
from tests.web.served import Served

#: Seconds of virtual time, in which no tab takes its worker for dead. Before them a page may load
#: once more, because its stream came late.
MINUTE, BEGINNING = 60, 5


@pytest.fixture(scope="module")
def quiet() -> Iterator[Served]:
    """Sixty jobs of which another Brain decides, so that nothing happens here."""
    with busy.served() as running:
        yield running


@pytest.mark.parametrize(
    ("page", "most"),
    # While pages polled, in the same minute: 9, 4, 10, 6 and 4.
    [("overview", 0), ("nodes", 0), ("pool", 0), ("audit", 0), ("health", 2)],
)
def test_a_tab_to_which_nothing_happens_asks_for_nothing(
    browser: Browser, quiet: Served, page: str, most: int
) -> None:
    with visit(browser, quiet) as seen:
        seen.page.clock.install()
        seen.page.goto(f"{quiet.url}/#/{page}")
        seen.page.reload()
        expect(seen.page.locator(".live")).to_contain_text("live ·")
        expect(seen.page.locator("main .skeleton")).to_have_count(0)
        asked = _asked_in_a_minute(seen.page)
        print(f"{page}: {len(asked)} requests in a minute: {sorted(asked)}")
        assert len(asked) <= most, asked


def test_savings_are_asked_for_every_five_minutes_and_say_how_old_they_are(
    browser: Browser, quiet: Served
) -> None:
    with visit(browser, quiet) as seen:
        seen.page.clock.install()
        seen.page.goto(quiet.url)
        seen.page.reload()
        answer = seen.page.locator(".answers > div").nth(2)
        expect(answer).to_contain_text("core-h saved")
        expect(answer).not_to_contain_text("ago")
        assert _asked_in_a_minute(seen.page) == []
        seen.page.clock.run_for(5_000)
        expect(answer).to_contain_text(" s ago")
        with seen.page.expect_request("**/api/v1/savings"):
            seen.page.clock.fast_forward(300_000)


def test_a_node_that_turns_silent_is_told_though_no_tab_asks(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen, served.stores() as stores:
        seen.page.goto(f"{served.url}/#/nodes")
        badge = seen.page.locator(".machine", has_text="laptop").first.locator(".badge")
        expect(badge).to_have_text("Ready")
        with stores.transaction() as tx:
            before = tx.nodes.get(NodeName("laptop"))
            tx.nodes.put(replace(before, seen_at=datetime.now(UTC) - timedelta(minutes=5)))
        expect(badge).to_have_text("Silent")
        with stores.transaction() as tx:
            tx.nodes.put(before)
        expect(badge).to_have_text("Ready")


def test_a_round_an_action_and_a_pool_are_told_as_they_come(
    browser: Browser, apart: Served
) -> None:
    with visit(browser, apart) as seen, apart.stores() as stores, apart.client() as admin:
        seen.page.goto(f"{apart.url}/#/audit")
        expect(seen.page.get_by_role("heading", name="Audit").first).to_be_visible()
        token = admin.send(calls.mint_token("for-the-night", "viewer")).id
        expect(seen.page.get_by_role("main")).to_contain_text(token)
        seen.page.goto(f"{apart.url}/#/pool/attic")
        expect(seen.page.get_by_text("There is no pool attic")).to_be_visible()
        now, attic = datetime.now(UTC), PoolName("attic")
        with stores.transaction() as tx:
            size = Resources(cpu_millis=4000, memory_bytes=8 << 30)
            tx.nodes.put(Node(name=NodeName("old-one"), pool=attic, capacity=size, seen_at=now))
        expect(seen.page.get_by_text("No jobs share this pool")).to_be_visible()
        with stores.transaction() as tx:
            last = tx.pools.round(seed.LOCAL)
            assert last is not None
            tx.pools.put_round(replace(last, pool=attic, decided_at=now))
        expect(seen.page.get_by_role("table", name="Shares of the pool")).to_be_visible()


def _asked_in_a_minute(page: Page) -> list[str]:
    """What a page asks for in a minute of its clock; each question is answered in its second."""
    asked: list[str] = []
    under_way: set[Request] = set()

    def begin(request: Request) -> None:
        if "/api/v1/" in request.url and not request.url.endswith("/events"):
            asked.append(request.url.rpartition("/api/v1")[2])
            under_way.add(request)

    def end(request: Request) -> None:
        under_way.discard(request)

    page.on("request", begin)
    page.on("requestfinished", end)
    page.on("requestfailed", end)
    for second in range(BEGINNING + MINUTE):
        if second == BEGINNING:
            asked.clear()
        page.clock.run_for(1_000)
        while under_way:
            page.wait_for_timeout(10)
    return asked
