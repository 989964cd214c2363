"""``make bench-web``: what the dashboard costs its reader and its service, in a real Chromium.

    first load    bytes of page, script and style sheet, as the service sends them
    scroll        the list of 2,000 jobs beside a bare list that also draws only what is in sight
    event         rows of that list that change, beside the same texts replaced in the bare list
    tabs          processor time of the service with ten tabs of 500 active jobs, beside one tab

The main thread's time is that of the renderer's tasks in a trace, on its own processor clock. Both
lists are traced in one browser, in turn, with the same scrolls and changes a second.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page

from benchmarks.report import Row, publish
from brain.db import SqlStores, prepare
from brain.types.job import JobId, JobState
from tests.web import seed
from tests.web.browser import launched, visit
from tests.web.served import Served

ENDED, ACTIVE, CHANGED = 1_500, 500, 50
SCROLLS, CHANGES, TAB_SECONDS, RUNS = 60, 6, 15, 3
FIRST_LOAD_BYTES = 80 * 1024

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


class Traced(NamedTuple):
    """Milliseconds of the main thread: of all its tasks, and of the longest."""

    total: float
    longest: float


def main() -> None:
    """Measure, print, and fail where a bar is not met."""
    with served(ENDED, ACTIVE) as long, served(0, ACTIVE) as busy, launched() as browser:
        loaded = first_load(browser, long)
        ours = [measured(browser, long) for _ in range(RUNS)]
        bare = [bare_measured(browser) for _ in range(RUNS)]
        one, ten = tabs(browser, busy, 1), tabs(browser, busy, 10)
    publish("web", "The dashboard", list(rows(loaded, ours, bare, one, ten)))


def rows(
    loaded: int,
    ours: list[tuple[Traced, Traced]],
    bare: list[tuple[Traced, Traced]],
    one: float,
    ten: float,
) -> Iterator[Row]:
    """The table, bars included."""
    yield Row(
        metric="first load: page, script, style sheet as served, without the font",
        value=loaded / 1024,
        unit="KiB",
        bar=FIRST_LOAD_BYTES / 1024,
    )
    names = ((0, "scroll of a list of 2,000 jobs", SCROLLS), (1, "50 changed rows", CHANGES))
    for at, name, times in names:
        yield Row(
            metric=f"main thread, {name}, median of {RUNS}",
            value=statistics.median(run[at].total for run in ours) / times,
            unit="ms",
            peer="bare list",
            peer_value=statistics.median(run[at].total for run in bare) / times,
            ratio_bar=1 / 1.5,
        )
    yield Row(
        metric="longest task of all of these",
        value=max(one.longest for run in ours for one in run),
        unit="ms",
        peer="bare list",
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
        note=f"{CHANGED} jobs change each second, each tab in a profile of its own",
    )
    yield Row(
        metric="main thread, frame of panning 10,000 × 4 points",
        value=None,
        unit="ms",
        peer="bare uPlot",
        ratio_bar=1 / 1.5,
        note="not measured: the charts have no panning, and get 600 points from the service",
    )


@contextmanager
def served(ended: int, active: int) -> Iterator[Served]:
    """A service with so many jobs."""
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
        running = Served(home)
        running.start()
        try:
            yield running
        finally:
            running.stop()


def _id(number: int) -> JobId:
    return JobId(f"0197e000-0000-7000-8000-{number:012x}")


def first_load(browser: Browser, service: Served) -> int:
    """Bytes that came over the wire for the first page, without the font and the answers."""
    with visit(browser, service, signed_in=False) as seen:
        sizes = []
        seen.page.on(
            "requestfinished",
            lambda request: sizes.append((request.url, request.sizes()["responseBodySize"])),
        )
        seen.page.goto(service.url)
        seen.page.get_by_role("heading", name="Sign in to Brain").wait_for()
        seen.complaints.clear()
        return sum(size for url, size in sizes if "/api/" not in url and ".woff2" not in url)


def measured(browser: Browser, service: Served) -> tuple[Traced, Traced]:
    """The list of all jobs, scrolled and then changed."""
    with visit(browser, service) as seen:
        seen.page.goto(f"{service.url}/#/jobs")
        seen.page.get_by_role("row", name=f"job-{ENDED + ACTIVE - 1}").wait_for()
        scrolled = traced(browser, seen.page, lambda: scroll(seen.page))
        seen.page.evaluate("document.querySelector('.page').scrollTo(0, 0)")
        return scrolled, traced(browser, seen.page, lambda: changes(service, seen.page))


def bare_measured(browser: Browser) -> tuple[Traced, Traced]:
    """The bare list, scrolled and changed alike."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_content(BARE)

    def change() -> None:
        for turn in range(CHANGES):
            page.evaluate("turn => change(turn)", turn)
            page.wait_for_timeout(1000)

    found = traced(browser, page, lambda: scroll(page)), traced(browser, page, change)
    page.close()
    return found


def scroll(page: Page) -> None:
    """Turn the wheel by eight rows at a time."""
    page.mouse.move(700, 500)
    for _ in range(SCROLLS):
        page.mouse.wheel(0, 256)
        page.wait_for_timeout(40)


def changes(service: Served, page: Page) -> None:
    """Let jobs change as another process of ours would, and the stream tell of it."""
    with service.stores() as stores:
        for turn in range(CHANGES):
            touch(stores, turn, ENDED + ACTIVE - CHANGED)  # the newest stand first, in sight
            page.wait_for_timeout(1000)


def touch(stores: Any, turn: int, first: int) -> None:
    """Give jobs another reason, and an event each that tells of it."""
    now = datetime.now(UTC)
    with stores.transaction() as tx:
        for number in range(first, first + CHANGED):
            job = tx.jobs.get(_id(number))
            tx.jobs.put(replace(job, reason=f"turn {turn}", updated_at=now))
            told = seed.Event(at=now, kind="job.Running", job=job.id, message=f"turn {turn}")
            tx.events.add(told)


def traced(browser: Browser, page: Page, act: Callable[[], None]) -> Traced:
    """What the page's main thread did meanwhile."""
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
    """Processor seconds of the service while so many tabs look at its jobs."""
    with ExitStack() as open_tabs:
        for _ in range(count):
            # A profile each: over HTTP/1.1 a browser has six connections to a service.
            seen = open_tabs.enter_context(visit(browser, service))
            seen.page.goto(f"{service.url}/#/jobs")
            seen.page.get_by_role("row", name=f"job-{ACTIVE - 1}").wait_for()
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
