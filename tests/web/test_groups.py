"""The page of a job whose replicas differ."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, expect

from brain import lifecycle
from brain.db import SqlStores, prepare
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.job import JobId, JobState
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from tests import builders
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served

MIXED = JobId("0197f000-0000-7000-8000-0000000000aa")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A job of two replicas of four processes and one of eight, for which ada wants another."""
    home = tmp_path_factory.mktemp("mixed")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    large = RoleSize(processes_per_replica=8, resources=Resources(cpu_millis=8000))
    document = {
        "replicas": Bounds(min=3, max=5),
        "processes_per_replica": 4,
        "resources": Resources(cpu_millis=4000),
        "groups": {"large": large},
    }
    with closing(SqlStores(url)) as stores, stores.transaction() as tx:
        tx.nodes.put(builders.node(cpus=64, seen_at=now))
        tx.jobs.add(seed.job(MIXED, "mixed", now, JobState.RUNNING, document=document))
        unchanged = {"cpu_millis": None, "memory_bytes": None}
        asked = {"role": "large", "replicas": 2, "by": "ada", "why": ""}
        lifecycle.edit(
            tx, tx.jobs.get(MIXED), **unchanged, **asked, settings=Settings(), now=now
        )
    running = Served(home)
    running.start()
    yield running
    running.stop()


def test_the_page_of_a_job_counts_each_group_by_itself(browser: Browser, mixed: Served) -> None:
    with visit(browser, mixed) as seen:
        seen.page.goto(f"{mixed.url}/#/jobs/mixed")
        head = seen.page.locator(".jobhead")
        expect(head).to_contain_text("worker 2 × 4 cores, 4 processes")
        expect(head).to_contain_text("large 2 × 8 cores, 8 processes")
        card = seen.page.locator(".rec")
        expect(card).to_contain_text("worker 2, large 1 → 2")
        expect(card).to_contain_text("16 → 24 processes")
