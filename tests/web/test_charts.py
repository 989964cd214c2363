"""Charts say where nothing was measured, and no word of theirs lies on another."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from brain.db import SqlStores, prepare
from brain.types.allocation import Bounds
from tests.web import seed
from tests.web.browser import afresh, visit
from tests.web.served import Served

#: Pairs of words that overlap by more than a pixel; boxes of text are taller than their letters.
COVERED = """(selector) => {
  const found = [...document.querySelectorAll(selector)].map((one) => [one, one.getBoundingClientRect()]);
  const shown = found.filter(([one, box]) => box.width > 0 && one.textContent.trim());
  const over = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom - 1 && b.top + 3 < a.bottom - 1;
  return shown.flatMap(([one, box], at) =>
    shown.slice(at + 1).filter(([other, its]) => !one.contains(other) && !other.contains(one) && over(box, its))
      .map(([other]) => `${one.textContent} | ${other.textContent}`));
}"""  # noqa: E501

#: Most pixels of ink in a column of the canvas that lies under the hairline of a plan.
INK = """() => {
  const canvas = document.querySelector(".plot canvas");
  const box = canvas.getBoundingClientRect();
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const [red, blue] = [(at) => data[at], (at) => data[at + 2]];
  const dark = (at) =>
    data[at + 3] > 60 && red(at) + data[at + 1] + blue(at) < 500 && blue(at) - red(at) < 40;
  return [...document.querySelectorAll(".overlay line.plan:not(.now)")].map((line) => {
    const { left } = line.getBoundingClientRect();
    const middle = Math.round((left - box.left) * (width / box.width));
    const column = (x) => Array.from({ length: height }, (_, y) => 4 * (y * width + x));
    const stroke = (x) => column(x).filter(dark).length;
    return Math.max(...[-2, -1, 0, 1, 2].map((by) => stroke(middle + by)));
  });
}"""

#: Between the hairlines of plans: how many columns of the canvas have the blue of a promise.
PROMISED = """() => {
  const canvas = document.querySelector(".plot canvas");
  const box = canvas.getBoundingClientRect();
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const blue = (x) => Array.from({ length: height }, (_, y) => 4 * (y * width + x)).some((at) => data[at + 3] > 60 && data[at + 2] - data[at] > 25);
  const place = (at) => Math.round((at - box.left) * (width / box.width));
  const lines = [...document.querySelectorAll(".overlay line.plan:not(.now)")].map((line) => line.getBoundingClientRect().left);
  const edges = [place(box.left + 50), ...lines.map(place).sort((one, other) => one - other), width];
  return edges.slice(1).map((to, at) => {
    const columns = Array.from({ length: to - edges[at] - 12 }, (_, x) => edges[at] + 6 + x);
    return columns.filter(blue).length / columns.length;
  });
}"""  # noqa: E501


#: How far below the top of its chart the throughput of now stands, of the height of the chart.
DEPTH = """() => {
  const box = document.querySelector(".plot").getBoundingClientRect();
  const dot = document.querySelector(".overlay circle.dot").getBoundingClientRect();
  return (dot.top - box.top) / box.height;
}"""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The fleet of ``seed``: digits may have 32 replicas and is to give one of its two back."""
    yield from _served(tmp_path_factory.mktemp("crowded"))


def _served(home: Path) -> Iterator[Served]:
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, now)
        seed.judge(stores, now)
        seed.supersede(stores, now, generation=4)
        with stores.transaction() as tx:
            wide = tx.jobs.get(seed.DIGITS)
            document = replace(wide.document, replicas=Bounds(min=1, max=32))
            tx.jobs.put(replace(wide, document=document))
        fewer = seed.promise(718, 40)
        seed.propose(stores, now, generation=5, replicas=1, promised=fewer)
        _spread(stores)
    running = Served(home)
    running.start()
    yield running
    running.stop()


def _spread(stores: Any) -> None:
    """Four more plans of ranker, two and two a little beside the mark of others on the strip."""
    with stores.transaction() as tx:
        last = tx.plans.get(seed.RANKS, 3)
        for generation, minutes in enumerate((104, 103, 52, 51), start=4):
            at = last.updated_at - timedelta(minutes=minutes)
            tx.plans.add(replace(last, generation=generation, created_at=at, updated_at=at))


@pytest.mark.parametrize("width", [1440, 390])
def test_no_word_of_a_chart_covers_another(browser: Browser, crowded: Served, width: int) -> None:
    stack = ".stack text, .stack figcaption b, .stack figcaption > span"
    with visit(browser, crowded, width=width) as seen:
        for job in ("digits", "ranker", "tiny-lm"):
            afresh(seen.page, f"{crowded.url}/#/jobs/{job}")
            _drawn(seen.page)
            assert seen.page.evaluate(COVERED, stack) == [], job
            assert seen.page.evaluate(COVERED, ".scaling text") == [], job
            seen.page.get_by_label("Measured charts").focus()
            for _ in range(6):
                seen.page.keyboard.press("Shift+ArrowLeft")
            expect(seen.page.locator(".pillt")).to_be_visible()
            assert seen.page.evaluate(COVERED, stack) == [], job


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_mark_of_the_hours_covers_the_count_of_another(
    browser: Browser, crowded: Served, width: int
) -> None:
    with visit(browser, crowded, width=width) as seen:
        strip = seen.page.get_by_role("img", name="core-h of 24 hours")
        expect(strip).to_be_visible()
        strip.evaluate("strip => strip.classList.add('measured')")
        assert seen.page.evaluate(COVERED, ".measured text, .measured .ic") == []


def test_no_line_is_drawn_over_the_gap_of_a_change(browser: Browser, crowded: Served) -> None:
    with visit(browser, crowded) as seen:
        seen.page.goto(f"{crowded.url}/#/jobs/digits")
        _drawn(seen.page)
        # Of the point of a line that ends there at most, of no stroke from one size to the other.
        strokes = seen.page.evaluate(INK)
        assert len(strokes) == 3
        assert max(strokes) <= 6


def test_a_promise_is_drawn_where_it_stood_and_nowhere_else(
    browser: Browser, crowded: Served
) -> None:
    with visit(browser, crowded) as seen:
        seen.page.goto(f"{crowded.url}/#/jobs/digits")
        _drawn(seen.page)
        # One replica as submitted, two and four as promised, two again without a promise.
        before, two, four, again = seen.page.evaluate(PROMISED)
        assert (before, again) == (0, 0)
        assert min(two, four) > 0.9


def test_a_promise_out_of_sight_takes_no_room(browser: Browser, crowded: Served) -> None:
    with visit(browser, crowded) as seen:
        seen.page.goto(f"{crowded.url}/#/jobs/digits?range=15 min")
        _drawn(seen.page)
        # 968 of an axis to 1 000; generation 2 promised 1 810 and ended 20 minutes ago.
        assert 0 < seen.page.evaluate(DEPTH) < 0.2


def _drawn(page: Page) -> None:
    expect(page.locator(".overlay text.rd").first).to_be_visible()
    expect(page.locator(".scaling text").first).to_be_visible()
