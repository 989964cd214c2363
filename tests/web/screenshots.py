"""``make screenshots``: the pictures of the documents, taken from a Brain that runs."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from brain import calls
from brain.db import SqlStores, prepare
from brain.types.explanation import Evidence
from brain.typeset import duration
from tests.web import seed
from tests.web.browser import PATIENCE, launched, visit
from tests.web.served import Served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: Every picture that a document shows.
PICTURES = {f"dashboard-job-{theme}.png": theme for theme in THEMES}


@contextmanager
def pictured() -> Iterator[Served]:
    """A service with the fleet of ``seed``, as fresh as its pictures."""
    with tempfile.TemporaryDirectory(prefix="brain-pictures-") as folder:
        url = f"sqlite:///{Path(folder) / 'brain.db'}"
        prepare(url)
        with closing(SqlStores(url)) as stores:
            seed.fleet(stores, datetime.now(UTC))
            seed.supersede(stores, datetime.now(UTC), generation=4)
        running = Served(Path(folder))
        running.start()
        try:
            _propose(running)
            yield running
        finally:
            running.stop()


def _propose(served: Served) -> None:
    """Store a proposal that says of the job's model what the page says beside it."""
    with served.client() as client:
        model = client.send(calls.model("digits"))
        largest = client.send(calls.what_if("digits")).sizes[3].prediction
    with served.stores() as stores:
        seed.propose(stores, datetime.now(UTC), generation=5)
        with stores.transaction() as tx:
            plan = tx.plans.get(seed.DIGITS, 5)
            assert plan.measured is not None
            assert plan.promised is not None
            assert largest is not None
            before, after = plan.measured.examples_per_second, plan.promised.examples_per_second
            more = largest.examples_per_second / before - 1
            keep, larger = plan.explanation.alternatives
            measured, _, waits, _ = plan.explanation.evidence
            restart = Evidence(
                label=f"Cost of a restart, {model.restarts_measured} seen",
                value=duration(model.restart_seconds),
            )
            explanation = replace(
                plan.explanation,
                evidence=(measured, waits, restart),
                alternatives=(keep, replace(larger, gain=more, why_not="one core is free")),
            )
            tx.plans.put(
                replace(
                    plan,
                    restart_seconds=model.restart_seconds,
                    payback_seconds=model.restart_seconds * before / (after - before),
                    explanation=explanation,
                )
            )


def take(browser: Browser, served: Served, folder: Path) -> None:
    """Take every picture; refuses a page that tells two numbers of one thing."""
    for name, theme in PICTURES.items():
        with visit(browser, served, theme=theme) as seen:
            seen.page.goto(f"{served.url}/#/jobs/digits")
            for part in (".overlay text.rd", ".scaling text.rd", ".rec .btn.pri"):
                expect(seen.page.locator(part).first).to_be_visible()
            _is_one_truth(seen.page)
            seen.page.mouse.move(0, 0)
            seen.page.screenshot(path=folder / name)


def _is_one_truth(page: Page) -> None:
    """Throughput, promise and restart are one number each, wherever the page shows them."""
    present = page.locator(".kv div", has_text="Throughput").locator("dd").inner_text().split()[0]
    expect(page.locator(".overlay text.rd").first).to_have_text(present)
    expect(page.locator(".scaling text.rd").first).to_have_text(present)
    promise = page.locator(".overlay .btb").text_content() or ""
    assert promise
    for place in (".scaling .btb", ".rec .facts", ".rec .also", ".plans"):
        expect(page.locator(place).filter(has_text=promise).first).to_be_visible()
    model = page.get_by_role("region", name="Model").locator("dd")
    restart = page.locator(".facts div", has_text="Restart").locator("dd").first.inner_text()
    expect(model.filter(has_text=re.compile(rf"^{restart}, from"))).to_be_visible()


def main() -> None:
    """Take all pictures anew."""
    expect.set_options(timeout=PATIENCE)
    with pictured() as served, launched() as browser:
        take(browser, served, IMAGES)


if __name__ == "__main__":
    main()
