"""Defects that people saw on pages, each by what they saw."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Locator, expect

from brain.db import SqlStores, prepare
from brain.types.job import JobId, JobState
from brain.types.plan import PlanState, Verdict
from tests.web import seed
from tests.web.browser import afresh, visit
from tests.web.measured import steps_of
from tests.web.served import Served

#: Words of the cells that are wider than their column, or their part of it.
CUT = """cells => cells.flatMap(cell => [cell, ...cell.querySelectorAll(".clip")])
  .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"""


#: Numbers that touch their unit: the space between them is narrower than a fifth of the letters.
TOUCHING = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const { index } of node.data.matchAll(/(?<=\\d)\\s(?=(%|s|min|h|d|GiB|core-h)\\b|%)/g)) {
      const space = new Range();
      space.setStart(node, index);
      space.setEnd(node, index + 1);
      const wide = space.getBoundingClientRect().width;
      const letters = parseFloat(getComputedStyle(node.parentElement).fontSize);
      found.push([node.data, wide === 0 || wide > letters / 5]);
    }
  return found;
}"""


def test_the_head_of_a_renewed_proposal_stays_within_its_card(
    browser: Browser, served: Served, proposal: int
) -> None:
    with served.stores() as stores, stores.transaction() as tx:
        plan = tx.plans.get(seed.DIGITS, proposal)
        tx.plans.put(replace(plan, updated_at=plan.created_at + timedelta(minutes=2)))
    for width in (1440, 1100, 390):
        with visit(browser, served, width=width) as seen:
            afresh(seen.page, f"{served.url}/#/jobs/{seed.DIGITS}")
            head = seen.page.locator(".rec .hd")
            expect(head).to_contain_text("renewed")
            assert head.evaluate("one => one.scrollWidth <= one.clientWidth"), width


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The fleet of ``seed``: tiny-lm changes its world, wave-net has a verdict of days ago."""
    home = tmp_path_factory.mktemp("odd")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, now)
        with stores.transaction() as tx:
            changing = replace(tx.jobs.get(seed.TINY), state=JobState.CHANGING)
            tx.jobs.put(changing)
            past = tx.plans.get(seed.DIGITS, 2)
            assert past.state is PlanState.ROLLED_BACK
            at = now - timedelta(days=3)
            outcome = replace(past.outcome, verdict=Verdict.INCONCLUSIVE)
            tx.plans.add(
                replace(
                    past,
                    job=seed.WAVES,
                    state=PlanState.VERIFIED,
                    outcome=outcome,
                    created_at=at,
                    updated_at=at,
                )
            )
            for number in range(45):
                id = JobId(f"0197f000-0000-7000-8000-{number:011x}a")
                why = f"rank {number} exited with code 137 at step {7 * number}"
                failed = {"reason": why, "finished_at": now, "created_at": now}
                tx.jobs.add(seed.job(id, f"sweep-{number}", now, JobState.FAILED, **failed))
    running = Served(home)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with one job, of which nothing was heard for half a minute."""
    home = tmp_path_factory.mktemp("quiet")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores, stores.transaction() as tx:
        tx.leases.acquire(seed.LOCAL, "elsewhere", until=now + timedelta(hours=6), now=now)
        tx.jobs.add(seed.job(seed.TINY, "tiny-lm", now, JobState.RUNNING))
        tx.worlds.put(seed.other_world(seed.TINY, 1, now - timedelta(minutes=9)))
        end = now - timedelta(seconds=25)
        steps_of(tx, seed.TINY, 1, 1, now - timedelta(minutes=9), end, now)
    running = Served(home)
    running.start()
    yield running
    running.stop()


def test_the_name_of_a_job_is_whole_at_1024(browser: Browser, odd: Served) -> None:
    with visit(browser, odd, width=1024) as seen:
        seen.page.goto(f"{odd.url}/#/jobs/volume-seg")
        name = seen.page.locator(".crumb b")
        expect(name).to_have_text("volume-seg")
        assert name.evaluate("one => one.scrollWidth <= one.clientWidth")
        box = name.bounding_box()
        assert box is not None
        assert box["width"] > 50


@pytest.mark.parametrize("width", [1440, 1280, 1024])
def test_no_column_of_jobs_is_cut(browser: Browser, odd: Served, width: int) -> None:
    with visit(browser, odd, width=width) as seen:
        for page in ("jobs", "overview"):
            afresh(seen.page, f"{odd.url}/#/{page}")
            row = seen.page.get_by_role("row", name="wave-net").last
            expect(row).to_contain_text("Inconclusive")
            assert seen.page.locator(".jobs td").evaluate_all(CUT) == [], page
            scroll = seen.page.locator(".scroll").last
            assert scroll.evaluate("one => one.scrollWidth <= one.clientWidth"), page


@pytest.mark.parametrize("width", [1440, 1024])
@pytest.mark.parametrize("page", ["inbox", "pool", "jobs/digits/timeline"])
def test_no_column_of_other_tables_is_cut(
    browser: Browser, odd: Served, page: str, width: int
) -> None:
    with visit(browser, odd, width=width) as seen:
        seen.page.goto(f"{odd.url}/#/{page}")
        expect(seen.page.locator("main tbody tr").first).to_be_visible()
        assert seen.page.locator("main .tbl th").evaluate_all(CUT) == []
        inner = seen.page.locator(".scroll").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel)"
        )
        assert inner == []
        for why in seen.page.locator("main tbody .why").all():
            box = why.bounding_box()
            assert box is not None
            assert box["width"] > 150


def test_an_answer_is_whole_on_a_phone(browser: Browser, odd: Served) -> None:
    with visit(browser, odd, width=390, height=844) as seen:
        notes = seen.page.locator(".answers .n")
        expect(notes).to_have_count(3)
        assert (
            notes.evaluate_all(
                "all => all.filter(one => one.scrollHeight > one.clientHeight + 1).map(one => one.textContent)"  # noqa: E501
            )
            == []
        )


@pytest.mark.parametrize("page", ["overview", "jobs/digits", "nodes"])
def test_a_space_is_seen_before_each_unit(browser: Browser, odd: Served, page: str) -> None:
    with visit(browser, odd) as seen:
        seen.page.goto(f"{odd.url}/#/{page}")
        expect(seen.page.get_by_text("%").first).to_be_visible()
        units = seen.page.evaluate(TOUCHING)
        assert units
        assert [text for text, seen_space in units if not seen_space] == []


def test_a_job_of_another_project_is_led_to(browser: Browser, odd: Served) -> None:
    with visit(browser, odd) as seen:
        seen.page.goto(f"{odd.url}/#/jobs/asr-net")
        expect(seen.page.get_by_text("Project default has no such job.")).to_be_visible()
        seen.page.get_by_role("link", name="asr-net of project speech").click()
        expect(seen.page.get_by_role("heading", name="asr-net", level=1)).to_be_visible()
        seen.forgive("404")


def test_a_job_of_which_nothing_was_measured_leaves_no_hole(browser: Browser, odd: Served) -> None:
    with visit(browser, odd) as seen:
        seen.page.goto(f"{odd.url}/#/jobs/{seed.BROKEN}")
        expect(seen.page.get_by_text("Nothing was measured before this job ended")).to_be_visible()
        box = seen.page.locator(".stack").bounding_box()
        assert box is not None
        assert box["height"] < 60


def test_a_pool_is_shared_by_as_many_in_its_heading_as_in_its_figures(
    browser: Browser, odd: Served
) -> None:
    with visit(browser, odd) as seen:
        section = seen.page.locator("section", has_text="Pool local")
        said = section.locator(".sub").inner_text()
        figure = section.locator(".kv div", has_text="Jobs that share").locator("dd").inner_text()
        number = re.match(r"\d+", figure)
        assert number is not None
        assert (re.findall(r"\d+", said) or ["0"])[0] == number[0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_largest_words_of_a_failed_job_say_why_once(
    browser: Browser, odd: Served, theme: str
) -> None:
    with visit(browser, odd, theme=theme) as seen:  # type: ignore[arg-type]
        seen.page.goto(f"{odd.url}/#/jobs/{seed.BROKEN}")
        expect(seen.page.get_by_role("region", name="What failed")).to_be_visible()
        largest = seen.page.locator("main .because")
        expect(largest).to_have_count(1)
        expect(largest).to_contain_text("rank 1 exited with code 137 (SIGKILL)")
        assert seen.page.locator("main").inner_text().count("out of memory") == 1


def test_the_badge_is_not_green_without_data(browser: Browser, quiet: Served) -> None:
    with visit(browser, quiet) as seen:
        expect(seen.page.locator(".live")).to_contain_text(
            re.compile("samples .* old"), timeout=12_000
        )
        expect(seen.page.locator(".live")).to_have_class("live stale")


def test_an_unknown_pool_is_said_to_be_none_without_being_asked_for(
    browser: Browser, odd: Served
) -> None:
    with visit(browser, odd) as seen:
        seen.page.goto(f"{odd.url}/#/pool/at")
        expect(seen.page.get_by_text("There is no pool at")).to_be_visible()
        expect(seen.page).to_have_title("Pool at – Brain")
        seen.page.get_by_role("link", name="local", exact=True).click()
        expect(seen.page.get_by_text("Jobs that share")).to_be_visible()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_answer_to_what_if_is_in_sight(
    browser: Browser, served: Served, proposal: int, width: int, height: int
) -> None:
    with visit(browser, served, width=width, height=height) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        seen.page.get_by_role("button", name="Approve").wait_for()
        expect(seen.page.locator(".scaling svg")).to_be_attached()
        seen.page.get_by_role("button", name="What-if").click()
        seen.page.keyboard.press("ArrowLeft")
        answer = seen.page.locator(".whatif")
        expect(answer).to_contain_text("1 replica")
        expect(answer).to_be_in_viewport(ratio=1)
        assert _free(answer)


@pytest.mark.parametrize("link", ["#signin=%E0%A4%A", "#signin=", "#signin"])
def test_a_link_that_is_not_whole_says_so(browser: Browser, empty: Served, link: str) -> None:
    with visit(browser, empty, signed_in=False) as seen:
        seen.page.goto(f"{empty.url}/{link}")
        expect(seen.page.get_by_text("The link is incomplete")).to_be_visible()
        expect(seen.page.get_by_role("heading", name="Sign in to Brain")).to_be_visible()
        seen.forgive("401")


def test_a_bad_link_tells_who_is_signed_in_too(browser: Browser, empty: Served) -> None:
    with visit(browser, empty) as seen:
        seen.page.goto(f"{empty.url}/#/jobs/%E0%A4%A")
        seen.page.goto(f"{empty.url}/?again#signin=spent")
        expect(seen.page.get_by_role("status").get_by_text("session is still valid")).to_be_visible()
        seen.forgive("401", "404")


def test_buttons_show_no_keys_on_touch(browser: Browser, served: Served, proposal: int) -> None:
    with visit(browser, served, width=820, height=1180, has_touch=True, is_mobile=True) as seen:
        seen.page.goto(f"{served.url}/#/jobs/digits")
        approve = seen.page.get_by_role("button", name="Approve")
        expect(approve).to_be_visible()
        expect(seen.page.locator(".btn kbd").first).to_be_hidden()


def test_what_was_saved_is_said_in_words(browser: Browser, odd: Served) -> None:
    with visit(browser, odd) as seen:
        answer = seen.page.locator(".answers .a").last
        expect(answer).to_contain_text(re.compile("core-h (saved|more used)"))
        expect(answer).not_to_contain_text("\u2212")


def test_a_job_that_changes_is_not_amber_for_want_of_samples(browser: Browser, odd: Served) -> None:
    with visit(browser, odd) as seen:
        seen.page.goto(f"{odd.url}/#/jobs")
        row = seen.page.get_by_role("row", name="tiny-lm")
        expect(row).to_contain_text("Changing")
        expect(row.locator(".warn, .ring")).to_have_count(0)
        seen.page.goto(f"{odd.url}/#/overview")
        expect(seen.page.get_by_role("heading", name="Needs attention")).to_be_visible()
        expect(seen.page.get_by_text("tiny-lm sends no samples")).to_have_count(0)
        seen.page.goto(f"{odd.url}/#/jobs/tiny-lm")
        expect(seen.page.locator(".overlay text.rd").first).to_be_visible()
        expect(seen.page.locator(".note.warn, .overlay .wt")).to_have_count(0)


def test_equal_failures_are_one_concern(browser: Browser, odd: Served) -> None:
    with visit(browser, odd) as seen:
        expect(seen.page.get_by_role("link", name="45 jobs failed for the same reason")).to_be_visible()
        expect(seen.page.locator(".att")).not_to_contain_text("sweep-7 failed")


def _free(answer: Locator) -> bool:
    """True if nothing lies over the middle of it."""
    return bool(
        answer.evaluate("""one => {
          const box = one.getBoundingClientRect();
          return one.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2));
        }""")  # noqa: E501
    )
