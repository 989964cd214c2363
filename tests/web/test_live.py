"""What happens elsewhere appears by itself, and a service that comes back is found again."""

from datetime import UTC, datetime, timedelta

from playwright.sync_api import Browser, Page, expect

from brain import calls
from brain.types.telemetry import Phase, SampleSource, SourceId, ThroughputSample
from tests.web import seed
from tests.web.browser import code, visit
from tests.web.served import Served

#: What a browser says of a connection that broke.
BROKEN = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "net::ERR", "503")


def test_a_plan_that_another_process_stored_appears_without_reload(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal}")
        _mark(seen.page)
        with served.stores() as stores:
            now = datetime.now(UTC)
            seed.supersede(stores, now, generation=proposal)
            seed.propose(stores, now, generation=proposal + 1, replicas=4)
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal + 1}")
        assert _marked(seen.page)


def test_a_sample_that_comes_in_ends_the_staleness_of_its_job_until_samples_stop_again(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/tiny-lm")
        expect(seen.page.get_by_text("min old: Brain changes nothing.")).to_be_visible()
        _mark(seen.page)
        now = datetime.now(UTC)
        with served.client() as client:  # of three quarters of a minute ago; the limit is a minute
            client.send(calls.telemetry([_sample(now - timedelta(seconds=45))], sent_at=now))
        expect(seen.page.get_by_text("old: Brain changes nothing.")).to_have_count(0)
        expect(seen.page.get_by_text("s old: Brain changes nothing.")).to_be_visible()
        expect(seen.page.locator(".jobhead .badge")).to_have_text("Holding")
        assert _marked(seen.page)


def test_the_page_says_that_the_service_is_away_and_finds_it_again(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal}")
        _mark(seen.page)
        served.stop()
        try:
            expect(seen.page.locator(".live")).to_contain_text("reconnecting")
            expect(seen.page.get_by_text("old: the service does not answer")).to_be_visible()
        finally:
            served.start()
        expect(seen.page.locator(".live")).to_contain_text("live ·")
        with served.stores() as stores:
            now = datetime.now(UTC)
            seed.supersede(stores, now, generation=proposal)
            seed.propose(stores, now, generation=proposal + 1)
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal + 1}")
        assert _marked(seen.page)
        seen.forgive(*BROKEN)


def test_a_browser_that_loses_its_network_says_so_and_goes_on(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal}")
        _mark(seen.page)
        seen.page.context.set_offline(True)
        expect(seen.page.locator(".live")).to_contain_text("reconnecting")
        seen.page.context.set_offline(False)
        expect(seen.page.locator(".live")).to_contain_text("live ·")
        assert _marked(seen.page)
        seen.forgive(*BROKEN)


def test_a_page_that_does_not_come_says_what_to_do(
    browser: Browser, served: Served, proposal: int
) -> None:
    with visit(browser, served, signed_in=False) as seen:
        seen.page.route("**/assets/job-*.js", lambda route: route.abort())
        seen.page.goto(f"{served.url}/#signin={code(served)}")
        expect(seen.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        seen.page.get_by_role("link", name="digits").first.click()
        expect(seen.page.get_by_text("Reload the page.")).to_be_visible()
        seen.page.unroute("**/assets/job-*.js")
        seen.page.reload()
        expect(seen.page.locator(".rec .hd")).to_contain_text(f"generation {proposal}")
        seen.forgive("net::ERR")


def _mark(page: Page) -> None:
    page.evaluate("window.marked = true")


def _marked(page: Page) -> bool:
    return bool(page.evaluate("window.marked === true"))


def _sample(at: datetime) -> ThroughputSample:
    place = SampleSource(
        job=seed.TINY, source=SourceId("late"), replica=0, local_rank=0, rank=0, epoch=1,
        generation=0,
    )  # fmt: skip
    return ThroughputSample(
        place=place,
        measured_at=at,
        sequence=0,
        phase=Phase.TRAINING,
        nodes=1,
        replicas=1,
        processes=1,
        accelerator="cpu",
        local_batch=256,
        accumulation=1,
        steps=2,
        step=5000,
        step_seconds=0.5,
        step_seconds_mean=0.5,
        data_wait_seconds=0.02,
        examples_per_second=512.0,
    )
