"""A proposal of a Brain that decides, whose throughput moves while a person looks at it."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from brain import calls
from brain.db import SqlStores, prepare
from brain.types.job import JobState
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Node, Resources
from tests.patience import Patience
from tests.web import seed
from tests.web.browser import visit
from tests.web.measured import steps_of
from tests.web.served import Served

BEGUN = timedelta(minutes=10)


@pytest.fixture
def deciding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Brain that decides about one job, which trains with one replica."""
    home = tmp_path_factory.mktemp("deciding")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores, stores.transaction() as tx:
        room = Resources(cpu_millis=8000, memory_bytes=32 << 30)
        far = now + timedelta(hours=6)
        tx.nodes.put(Node(name=seed.NODE, pool=seed.LOCAL, capacity=room, seen_at=far))
        begun = {"created_at": now - BEGUN, "reason": "stepping"}
        tx.jobs.add(seed.job(seed.TINY, "tiny-lm", now, JobState.RUNNING, **begun))
        tx.worlds.put(seed.other_world(seed.TINY, 1, now - BEGUN))
        steps_of(tx, seed.TINY, 1, 1, now - BEGUN, now, now)
    running = Served(home)
    running.start()
    yield running
    running.stop()


def test_a_proposal_follows_the_measurement_and_is_approved_only_as_seen(
    browser: Browser, deciding: Served
) -> None:
    with visit(browser, deciding) as seen:
        seen.page.goto(f"{deciding.url}/#/jobs/tiny-lm")
        card = seen.page.locator(".rec")
        expect(card.get_by_role("button", name="Approve 1 → 2")).to_be_visible()
        before = _proposal(deciding)
        expect(card).to_contain_text(_numbers(before))
        seen.page.keyboard.press("a")
        dialog = seen.page.get_by_role("dialog")
        expect(dialog).to_contain_text(_numbers(before))
        _quicken(deciding)
        patience = Patience(60)
        while (after := _proposal(deciding)).version == before.version and not patience.over:
            seen.page.wait_for_timeout(200)
        assert (after.generation, after.state) == (before.generation, PlanState.PROPOSED)
        assert _numbers(after) != _numbers(before)
        expect(card).to_contain_text(_numbers(after))
        seen.page.keyboard.press("Enter")
        expect(dialog).to_contain_text("Since you saw it: promise")
        expect(dialog).to_contain_text(_numbers(after))
        assert _proposal(deciding).state is PlanState.PROPOSED
        seen.page.keyboard.press("Enter")
        expect(seen.page.locator(".notice")).to_contain_text("Approved: generation 1")
        seen.forgive("409", "412")
    approval = _proposal(deciding).approval
    assert approval is not None
    assert approval.by == "admin"


def test_a_proposal_that_the_measurement_overtakes_is_withdrawn_and_acts_on_nothing(
    browser: Browser, deciding: Served
) -> None:
    with visit(browser, deciding) as seen:
        seen.page.goto(f"{deciding.url}/#/jobs/tiny-lm")
        card = seen.page.locator(".rec")
        expect(card.get_by_role("button", name="Approve 1 → 2")).to_be_visible()
        seen.page.keyboard.press("a")
        dialog = seen.page.get_by_role("dialog")
        expect(dialog).to_contain_text("Approve 1 → 2 replicas of tiny-lm?")
        _starve(deciding)
        patience = Patience(90)
        while (after := _proposal(deciding)).state is PlanState.PROPOSED and not patience.over:
            seen.page.wait_for_timeout(200)
        assert after.state is PlanState.SUPERSEDED
        seen.page.keyboard.press("Enter")
        expect(dialog).to_contain_text("Since you saw it: Proposed → Superseded")
        expect(dialog).to_contain_text("withdrawn: ")
        expect(dialog.get_by_role("button")).to_have_text(["Close"])
        seen.page.keyboard.press("Enter")
        seen.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(card).to_contain_text("Hold")
        expect(seen.page.get_by_role("button", name="Approve")).to_have_count(0)
        seen.forgive("409", "412")
    left = _proposal(deciding)
    assert (left.state, left.approval) == (PlanState.SUPERSEDED, None)


def _proposal(served: Served) -> ScalePlan:
    with served.client() as client:
        return client.send(calls.plans_of("tiny-lm")).items[0].plan


def _numbers(plan: ScalePlan) -> str:
    """What is measured and promised, as the page writes it."""
    assert plan.measured is not None
    assert plan.promised is not None
    rates = (plan.measured.examples_per_second, plan.promised.examples_per_second)
    return " → ".join(f"{rate:,.0f}".replace(",", "\u202f") for rate in rates)


def _quicken(served: Served) -> None:
    """Let the job train half as fast again from now on."""
    _train(served, slow={0: 2 / 3})


def _starve(served: Served) -> None:
    """Let the job wait for its storage for most of each step from now on."""
    _train(served, slow={0: 4.0}, waits=0.8)


def _train(served: Served, **way: Any) -> None:
    now = datetime.now(UTC)
    with served.stores() as stores, stores.transaction() as tx:
        world = tx.worlds.latest(seed.TINY)
        assert world is not None
        # What was stored before is not stored again.
        end = now + timedelta(minutes=5)
        steps_of(tx, seed.TINY, 1, 1, world.formed_at, end, now, **way)
