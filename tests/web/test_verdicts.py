"""Kept, fell short, rolled back, inconclusive: four words with four looks, wherever a plan is."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, expect

from brain.db import SqlStores, prepare
from brain.types.job import JobId, JobState
from brain.types.plan import PlanState, Verdict
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served

#: Jobs that ended after a plan, by what came of it.
ENDED = {
    "Kept": "was-kept",
    "Fell short": "was-short",
    "Rolled back": "was-back",
    "Inconclusive": "was-vague",
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The fleet of ``seed``, with a plan of each verdict."""
    home = tmp_path_factory.mktemp("judged")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, datetime.now(UTC))
        seed.judge(stores, datetime.now(UTC))
        _judge_of_old(stores)
    running = Served(home)
    running.start()
    yield running
    running.stop()


def _judge_of_old(stores: SqlStores) -> None:
    """Four jobs that ended days ago, each after a plan of another verdict."""
    end = datetime.now(UTC) - timedelta(days=3)
    ended = {"created_at": end, "updated_at": end, "finished_at": end}
    with stores.transaction() as tx:
        past, back = tx.plans.get(seed.DIGITS, 2), tx.plans.get(seed.DIGITS, 3)
        for number, (verdict, name) in enumerate(ENDED.items()):
            id = JobId(f"0197e000-0000-7000-8000-0000000000e{number}")
            tx.jobs.add(seed.job(id, name, end, JobState.SUCCEEDED, **ended))
            measured = Verdict.FELL_SHORT if verdict == "Rolled back" else Verdict(verdict.lower())
            outcome = replace(past.outcome, verdict=measured)
            state = PlanState.ROLLED_BACK if verdict == "Rolled back" else PlanState.VERIFIED
            of = {"job": id, "created_at": end, "updated_at": end}
            tx.plans.add(replace(past, generation=1, state=state, outcome=outcome, **of))
            if verdict == "Rolled back":
                tx.plans.add(replace(back, generation=2, **of))


@pytest.mark.parametrize("verdict", ["Kept", "Fell short", "Rolled back", "Inconclusive"])
def test_the_card_of_a_job_says_what_came_of_its_last_plan(
    browser: Browser, judged: Served, verdict: str
) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/jobs")
        row = seen.page.get_by_role("row", name=ENDED[verdict])
        expect(row).to_contain_text(verdict)
        row.get_by_role("link").click()
        badge = seen.page.locator(".rec .badge").first
        expect(badge).to_have_text(verdict)
        assert tone(badge) == {"Kept": "good", "Inconclusive": "mut"}.get(verdict, "bad")
        # A rollback promised nothing: the card shows the plan whose promise was missed.
        expect(seen.page.locator(".rec .hd")).to_contain_text("generation 1,")
        track = seen.page.locator(".rec .track")
        expect(track).to_have_accessible_name(re.compile(f"^{verdict.lower()}; station"))


@pytest.mark.parametrize(
    "page", ["overview", "jobs", "jobs/digits", "jobs/ranker/timeline", "inbox", "nodes", "pool"]
)
def test_no_page_says_of_a_plan_that_it_is_verified(
    browser: Browser, judged: Served, page: str
) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/{page}")
        expect(seen.page.locator("main section, main table").first).to_be_visible()
        expect(seen.page.get_by_role("main")).not_to_contain_text("Verified")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_plans_of_a_job_say_what_came_of_each(
    browser: Browser, judged: Served, theme: Literal["light", "dark"]
) -> None:
    with visit(browser, judged, theme=theme) as seen:
        seen.page.goto(f"{judged.url}/#/jobs/ranker")
        badges = seen.page.locator(".plans .badge")
        expect(badges).to_have_text(["Fell short", "Inconclusive", "Kept"])
        assert [tone(badge) for badge in badges.all()] == ["bad", "mut", "good"]
        expect(seen.page.locator(".plans .strip .fell")).to_have_count(1)
        expect(seen.page.get_by_role("main")).not_to_contain_text("Verified")
        seen.page.goto(f"{judged.url}/#/jobs/digits")
        badges = seen.page.locator(".plans .badge")
        expect(badges).to_have_text(["Proposed", "Restored", "Rolled back", "Kept"])
        assert [tone(badge) for badge in badges.all()] == ["brain", "mut", "bad", "good"]
        shapes = {badge.locator("svg").inner_html() for badge in badges.all()}
        assert len(shapes) == 3


def test_the_overview_counts_each_plan_once_by_what_came_of_it(
    browser: Browser, judged: Served
) -> None:
    with visit(browser, judged) as seen:
        answers = seen.page.locator(".answers")
        expect(answers).to_contain_text(
            "2 kept, 1 fell short, 1 rolled back, 1 inconclusive, 1 proposed."
        )
        expect(answers).to_contain_text(
            "Missed promises: ranker (stayed at 4), digits (back to 2)."
        )
        expect(answers).to_contain_text("6 plans")
        ends = seen.page.locator(".feed tr")
        expect(ends.filter(has_text="Fell short")).to_contain_text("stayed at 4")
        expect(ends.filter(has_text="Rolled back")).to_contain_text("back to 2")
        expect(seen.page.locator(".h", has_text="Decisions")).to_contain_text(
            "promisedmeasuredmissed"
        )
        feed = seen.page.locator(".feed .badge")
        expect(feed.filter(has_text="Fell short")).to_have_count(1)
        expect(feed.filter(has_text="Verified")).to_have_count(0)


def test_a_mark_of_several_plans_shows_the_promises_that_were_missed(
    browser: Browser, judged: Served
) -> None:
    with visit(browser, judged) as seen:
        hours = seen.page.get_by_role("img", name="core-h of 24 hours")
        marks = hours.locator("g", has=seen.page.locator("title"))
        expect(marks.first).to_be_visible()
        told = " ".join(marks.all_text_contents())
        # The way back is told with the plan that it undoes, here and in the answer.
        marked = " ".join(marks.locator("title").all_text_contents())
        assert sum(int(count) for count in re.findall(r"(\d+) [a-z]", marked)) == 6, marked
        assert "1 rolled back" in told
        assert "1 fell short" in told
        assert " of " in told
        assert marks.locator("svg.ic.bad").count() >= 1
        seen.page.goto(f"{judged.url}/#/jobs/ranker")
        lane = seen.page.locator(".overlay g", has=seen.page.locator("title", has_text="short"))
        expect(lane.locator("svg.ic")).to_have_class("ic bad")


def test_a_row_of_a_job_and_its_timeline_say_the_verdict(browser: Browser, judged: Served) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/jobs")
        row = seen.page.get_by_role("row", name="ranker")
        expect(row).to_contain_text("Fell short")
        seen.page.goto(f"{judged.url}/#/jobs/ranker/timeline")
        kinds = seen.page.get_by_role("table", name="Events").locator("tbody .badge")
        expect(kinds).to_have_text(["plan fell short", "plan inconclusive", "plan kept"])
        assert [tone(badge) for badge in kinds.all()] == ["bad", "mut", "good"]


def test_the_command_line_says_the_same_words(judged: Served) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "brain.cli", "plans", "-o", "json"],
        env=os.environ | {"BRAIN_HOME": str(judged.home), "BRAIN_URL": judged.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    for verdict in ("kept", "fell short", "rolled back", "inconclusive", "restored", "not yet"):
        assert f'"verdict": "{verdict}"' in said.stdout


def tone(badge: Locator) -> str:
    """How an icon is coloured."""
    return str(badge.locator("svg").get_attribute("class")).removeprefix("ic ")


def test_a_page_has_one_throughput_of_now(browser: Browser, judged: Served) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/jobs/ranker")
        line = seen.page.locator(".overlay text.rd").first
        curve = seen.page.locator(".scaling text.rd").first
        expect(curve).to_be_visible()
        expect(line).to_be_visible()
        for _ in range(100):  # each is drawn as its own answer comes
            head = seen.page.locator(".kv div", has_text="Throughput").locator("dd").inner_text()
            told = {head.split(" ")[0], line.text_content(), curve.text_content()}
            if len(told) == 1:
                break
            seen.page.wait_for_timeout(100)
        assert len(told) == 1
        seen.page.get_by_text("View as table").click()
        drawn = seen.page.locator(".astable tbody tr").first.locator("td").nth(1).inner_text()
        rates = [float(said.replace("\u202f", "").split(" ")[0]) for said in (drawn, head)]
        assert rates[0] == pytest.approx(rates[1], rel=0.03)


def test_what_is_older_than_a_minute_says_its_age_and_a_size_has_one_promise(
    browser: Browser, judged: Served
) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/jobs/ranker")
        expect(seen.page.locator(".rec .also")).to_contain_text("min ago")
        seen.page.goto(f"{judged.url}/#/jobs/digits")
        card = seen.page.locator(".rec")
        expect(card).to_contain_text("968 → 1\u202f370")
        expect(card.locator(".aged")).to_contain_text("min ago")
        expect(seen.page.locator(".scaling .btb").first).to_contain_text("1\u202f370 ±64")
        expect(seen.page.locator(".overlay .btb")).to_contain_text(["1\u202f370"])
        seen.page.keyboard.press("a")
        dialog = seen.page.get_by_role("dialog")
        expect(dialog).to_contain_text("968 → 1\u202f370 ±64")
        expect(dialog).to_contain_text("min ago")


def test_the_times_of_an_ended_job_end_where_it_ended(browser: Browser, judged: Served) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/jobs/{seed.OLD}")
        said = seen.page.locator(".charts .h .sub").first.inner_text()
        begin, end = (int(at[-5:-3]) * 60 + int(at[-2:]) for at in said.split(" – "))
        assert (end - begin) % 1440 == 60


def test_the_chance_of_a_promise_is_called_one(browser: Browser, judged: Served) -> None:
    with visit(browser, judged) as seen:
        seen.page.goto(f"{judged.url}/#/jobs/digits")
        expect(seen.page.locator(".rec")).to_contain_text(
            "the promise is kept with a chance of 91\u00a0%"
        )


def test_the_counts_of_the_overview_agree(browser: Browser, judged: Served) -> None:
    with visit(browser, judged) as seen:
        answer = seen.page.locator(".answers .a").first
        expect(answer).to_have_text("6 jobs and 1 node need a look")
        heading = seen.page.locator(".h", has_text="Needs attention")
        expect(heading.locator(".sub")).to_have_text("6 jobs and 1 node; 2 more wait")
        expect(seen.page.locator(".answers .n").first).to_contain_text("1 of 7 jobs as expected")
