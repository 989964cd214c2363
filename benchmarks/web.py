"""``make bench-web``: measures the cost of the dashboard for its reader and its service, in a real
Chromium.

    first load    bytes, as sent, of the page, scripts and style sheets that the list of jobs or one
                  job needs
    scroll        the list of 2,000 jobs, compared with a bare list that also draws only the rows
                  in sight
    event         changes of rows in that list, compared with the same changes of text in the bare
                  list
    panning       the charts of a job with 10,000 measurements of four lines, dragged through six
                  of their fourteen hours, compared with bare uPlot charts of the same points
    tabs          processor time of the service with ten tabs of 500 active jobs, compared with one
                  tab

The time of the main thread is the processor time of the renderer's tasks in a trace. The dashboard
and the bare pages are traced in one browser, in turn, with the same scrolls, drags and changes.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page

from benchmarks.report import Row, publish
from brain.db import SqlStores, prepare
from brain.ports import Transaction
from brain.types.job import JobId, JobState
from tests.web import seed
from tests.web.browser import launched, visit
from tests.web.measured import WINDOW, machine_of, steps_of
from tests.web.served import Served

ENDED, ACTIVE, CHANGED = 1_500, 500, 50
SCROLLS, CHANGES, MOVES, TAB_SECONDS, RUNS = 60, 6, 60, 15, 3
FIRST_LOAD_BYTES = 80 * 1024
#: Pages whose first load is measured: address, the sign that they show, and the part of the script
#: that only follows them.
PAGES = (("jobs", ".jobs tbody tr", "/job-"), ("jobs/long-run", ".overlay text.rd", "/fleet-"))
POINTS, PANNED = 10_000, JobId("0197f000-0000-7000-8000-0000000000aa")
UPLOT = Path(__file__).parents[1] / "web" / "node_modules" / "uplot" / "dist"

#: A list that keeps 60 rows of 13 cells in the page, and moves them as it scrolls.
BARE = """<!doctype html><style>
body { margin: 0; font: 13px sans-serif } #box { height: 100vh; overflow: auto; position: relative }
#all { height: 64000px } .row { position: absolute; height: 32px; display: flex; gap: 10px }
.row span { width: 80px }</style><div id="box"><div id="all"></div></div><script>
const box = document.getElementById("box"), all = document.getElementById("all");
const values = Array.from({ length: 2000 }, (_, at) => Array.from({ length: 13 }, (_, c) => `${at}.${c}`));
const pool = Array.from({ length: 60 }, () => {
  const row = document.createElement("div");
  row.className = "row";
  row.append(...Array.from({ length: 13 }, () => document.createElement("span")));
  return all.appendChild(row);
});
function draw(force) {
  const first = Math.max(0, Math.floor(box.scrollTop / 32) - 15);
  for (let at = first; at < Math.min(2000, first + 60); at += 1) {
    const row = pool[at % 60];
    if (row.at === at && !force) continue;
    row.at = at;
    row.style.transform = `translateY(${at * 32}px)`;
    values[at].forEach((value, cell) => (row.children[cell].textContent = value));
  }
}
box.addEventListener("scroll", () => draw(false), { passive: true });
window.change = (turn) => {
  for (let at = 0; at < 50; at += 1) values[at] = values[at].map((_, c) => `${turn}.${at}.${c}`);
  draw(true);
};
draw(true);
</script>"""  # noqa: E501

#: Three charts as large as ours, of one, two and one line, whose scale follows the pointer.
BARE_CHARTS = """<!doctype html><body style="margin:0"><div id="charts"></div></body>"""
CHARTS = """() => {
  const x = Array.from({ length: 10000 }, (_, at) => 5 * at);
  const line = (seed) => x.map((at) => 900 + 60 * Math.sin(at / 97 + seed) + 40 * Math.sin(at * 1.7));
  const charts = [1, 2, 1].map((lines, at) => new uPlot(
    { width: 900, height: at ? 96 : 188, legend: { show: false }, cursor: { show: false },
      scales: { x: { time: true, range: () => [window.since, window.since + 21600] }, y: { range: [0, 1100] } },
      series: [{}, ...Array.from({ length: lines }, () => ({ stroke: "#222", width: 1.25, points: { show: false } }))] },
    [x, ...Array.from({ length: lines }, (_, seed) => line(seed))], document.getElementById("charts")));
  let held = null;
  addEventListener("pointerdown", (event) => (held = event.clientX));
  addEventListener("pointerup", () => (held = null));
  addEventListener("pointermove", (event) => {
    if (held === null) return;
    window.since += (held - event.clientX) * 21600 / 850;
    held = event.clientX;
    for (const one of charts) one.setScale("x", { min: window.since, max: window.since + 21600 });
  });
}"""  # noqa: E501


class Traced(NamedTuple):
    """Milliseconds of the main thread: the sum of all its tasks, and the longest task."""

    total: float
    longest: float


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    with served(ENDED, ACTIVE) as long, served(0, ACTIVE) as busy, launched() as browser:
        loaded = [first_load(browser, long, *page) for page in PAGES]
        ours = [measured(browser, long) for _ in range(RUNS)]
        bare = [bare_measured(browser) for _ in range(RUNS)]
        one, ten = tabs(browser, busy, 1), tabs(browser, busy, 10)
    publish("web", "The dashboard", list(rows(loaded, ours, bare, one, ten)))


def rows(
    loaded: list[int],
    ours: list[tuple[Traced, ...]],
    bare: list[tuple[Traced, ...]],
    one: float,
    ten: float,
) -> Iterator[Row]:
    """Return the rows of the table, with their bars."""
    for name, size in zip(("list of jobs", "job with its charts"), loaded, strict=True):
        yield Row(
            metric=f"first load, {name}: page, scripts, style sheets as served, without the font",
            value=size / 1024,
            unit="KiB",
            bar=FIRST_LOAD_BYTES / 1024,
        )
    names = (
        ("scroll of a list of 2,000 jobs", SCROLLS, "bare list"),
        ("50 changed rows", CHANGES, "bare list"),
        (f"move of panning {POINTS:,} × 4 points", MOVES, "bare uPlot"),
    )
    for at, (name, times, peer) in enumerate(names):
        yield Row(
            metric=f"main thread, {name}, median of {RUNS}",
            value=statistics.median(run[at].total for run in ours) / times,
            unit="ms",
            peer=peer,
            peer_value=statistics.median(run[at].total for run in bare) / times,
            ratio_bar=1 / 1.5,
        )
    yield Row(
        metric="longest task of all of these",
        value=max(one.longest for run in ours for one in run),
        unit="ms",
        peer="bare pages",
        peer_value=max(one.longest for run in bare for one in run),
        ratio_bar=1 / 4,
    )
    yield Row(
        metric=f"processor of the service, ten tabs of {ACTIVE} active jobs, {TAB_SECONDS} s",
        value=ten,
        unit="s",
        peer="one tab",
        peer_value=one,
        ratio_bar=1 / 2,
        note=f"{CHANGED} jobs change each second; the tabs are those of one browser",
    )


@contextmanager
def served(ended: int, active: int) -> Iterator[Served]:
    """Start a service with the given number of jobs."""
    with tempfile.TemporaryDirectory(prefix="bench-web-") as folder:
        home, now = Path(folder), datetime.now(UTC)
        url = f"sqlite:///{home / 'brain.db'}"
        prepare(url)
        past = {"updated_at": now - timedelta(days=3), "finished_at": now - timedelta(days=3)}
        with closing(SqlStores(url)) as stores, stores.transaction() as tx:
            tx.leases.acquire(seed.LOCAL, "elsewhere", until=now + timedelta(hours=6), now=now)
            for number in range(ended):
                tx.jobs.add(seed.job(_id(number), f"old-{number}", now, JobState.SUCCEEDED, **past))
            for number in range(ended, ended + active):
                tx.jobs.add(seed.job(_id(number), f"job-{number}", now, JobState.RUNNING))
            if ended:
                _panned(tx, now)
        running = Served(home, cold=True)
        running.start()
        try:
            yield running
        finally:
            running.stop()


def _panned(tx: Transaction, now: datetime) -> None:
    """Store a job with a number of measurements of throughput, wait, processor and memory."""
    begun = now - timedelta(seconds=WINDOW * POINTS)
    tx.jobs.add(seed.job(PANNED, "long-run", now, JobState.RUNNING, created_at=begun))
    tx.worlds.put(seed.other_world(PANNED, 1, begun))
    steps_of(tx, PANNED, 1, 1, begun, now, now)
    machine_of(tx, PANNED, begun, now, (1,), [now - begun])


def _id(number: int) -> JobId:
    return JobId(f"0197e000-0000-7000-8000-{number:012x}")


def first_load(browser: Browser, service: Served, address: str, sign: str, other: str) -> int:
    """Return the bytes that a page loads, without the font, the answers of the API, and later
    requests.
    """
    with visit(browser, service) as seen:
        signed_in = seen.page.context.storage_state()
    with closing(browser.new_context(storage_state=signed_in)) as profile:
        page, came = profile.new_page(), []
        page.on("requestfinished", lambda request: came.append(request))
        page.goto(f"{service.url}/#/{address}")
        page.locator(sign).first.wait_for()
        needed = [
            one for one in came if not any(part in one.url for part in ("/api/", ".woff2", other))
        ]
        return sum(one.sizes()["responseBodySize"] for one in needed)


def measured(browser: Browser, service: Served) -> tuple[Traced, ...]:
    """Trace the list of all jobs while it is scrolled and then changes, and the charts of a job
    while they are dragged.
    """
    with visit(browser, service) as seen:
        seen.page.goto(f"{service.url}/#/jobs")
        seen.page.get_by_role("row", name=f"job-{ENDED + ACTIVE - 1}").wait_for()
        scrolled = traced(browser, seen.page, lambda: scroll(seen.page))
        assert seen.page.evaluate("document.querySelector('.page').scrollTop") == 256 * SCROLLS
        seen.page.evaluate("document.querySelector('.page').scrollTo(0, 0)")
        changed = traced(browser, seen.page, lambda: changes(service, seen.page))
        seen.page.goto(f"{service.url}/#/jobs/long-run?range=6+h")
        seen.page.locator(".overlay text.rd").first.wait_for()
        before = seen.page.locator(".charts .h .sub").first.inner_text()
        panned = traced(browser, seen.page, lambda: drag(seen.page))
        assert seen.page.locator(".charts .h .sub").first.inner_text() != before
        return scrolled, changed, panned


def bare_measured(browser: Browser) -> tuple[Traced, ...]:
    """Trace the bare list and the bare charts with the same scrolls, changes and drags."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_content(BARE)

    def change() -> None:
        for turn in range(CHANGES):
            page.evaluate("turn => change(turn)", turn)
            page.wait_for_timeout(1000)

    scrolled = traced(browser, page, lambda: scroll(page))
    assert page.evaluate("document.getElementById('box').scrollTop") == 256 * SCROLLS
    changed = traced(browser, page, change)
    page.set_content(BARE_CHARTS)
    page.add_style_tag(path=UPLOT / "uPlot.min.css")
    page.add_script_tag(path=UPLOT / "uPlot.iife.min.js")
    page.evaluate("window.since = 28400")
    page.evaluate(CHARTS)
    panned = traced(browser, page, lambda: drag(page))
    assert page.evaluate("window.since") < 28400
    page.close()
    return scrolled, changed, panned


def drag(page: Page) -> None:
    """Drag the charts to the right in steps of eight pixels, and a little back."""
    page.mouse.move(300, 350)
    page.mouse.down()
    for move in range(MOVES):
        page.mouse.move(308 + 8 * move, 350)
        page.wait_for_timeout(40)
    page.mouse.up()


def scroll(page: Page) -> None:
    """Scroll the list by eight rows per turn of the wheel."""
    page.mouse.move(700, 500)
    for _ in range(SCROLLS):
        page.mouse.wheel(0, 256)
        page.wait_for_timeout(40)


def changes(service: Served, page: Page) -> None:
    """Change jobs as another Brain process would, so that the stream reports the changes."""
    with service.stores() as stores:
        for turn in range(CHANGES):
            touch(stores, turn, ENDED + ACTIVE - CHANGED)  # the newest stand first, in sight
            page.wait_for_timeout(1000)


def touch(stores: Any, turn: int, first: int) -> None:
    """Give jobs another reason, each with an event."""
    now = datetime.now(UTC)
    with stores.transaction() as tx:
        for number in range(first, first + CHANGED):
            job = tx.jobs.get(_id(number))
            tx.jobs.put(replace(job, reason=f"turn {turn}", updated_at=now))
            told = seed.Event(at=now, kind="job.Running", job=job.id, message=f"turn {turn}")
            tx.events.add(told)


def traced(browser: Browser, page: Page, act: Callable[[], None]) -> Traced:
    """Yield a record of the main thread's tasks in the block."""
    browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
    act()
    found = json.loads(browser.stop_tracing())["traceEvents"]
    main = {
        (one["pid"], one["tid"])
        for one in found
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    tasks: dict[tuple[int, int], list[float]] = {thread: [] for thread in main}
    for one in found:
        thread = (one["pid"], one["tid"])
        if thread in tasks and one["name"].endswith("RunTask") and "tdur" in one:
            tasks[thread].append(one["tdur"] / 1000)
    busiest = max(tasks.values(), key=sum)
    return Traced(sum(busiest), max(busiest))


def tabs(browser: Browser, service: Served, count: int) -> float:
    """Return the processor seconds of the service while the given number of tabs of one browser
    show its jobs.
    """
    with visit(browser, service) as seen:
        for page in (seen.page, *(seen.page.context.new_page() for _ in range(count - 1))):
            page.goto(f"{service.url}/#/jobs")
            page.get_by_role("row", name=f"job-{ACTIVE - 1}").wait_for()
        seen.page.wait_for_timeout(5_000)
        before = service.processor_seconds()
        with service.stores() as stores:
            until = time.monotonic() + TAB_SECONDS
            for turn in range(TAB_SECONDS):
                touch(stores, turn, 0)
                left = until - TAB_SECONDS + turn + 1 - time.monotonic()
                seen.page.wait_for_timeout(max(0.0, 1000 * left))
        return service.processor_seconds() - before


if __name__ == "__main__":
    main()
