"""Every action of the dashboard is carried through as each role, or names the role it needs."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from brain import calls
from brain.db import SqlStores, prepare
from brain.types.job import JobId, JobState
from brain.types.plan import PlanState
from brain.types.record import Role
from brain.types.resources import Node, NodeName, Resources
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served

PEOPLE = {"eve": Role.VIEWER, "ada": Role.SUBMITTER, "olga": Role.OPERATOR, "root": Role.ADMIN}
#: What the audit log says of those who may steer jobs, and of those who may decide about plans.
STEERING = {"job.suspend", "job.resume", "job.cancel"}
DECIDING = {"plan.Rejected", "freeze", "thaw"}
MAY = {"eve": set(), "ada": STEERING, "olga": STEERING | DECIDING, "root": STEERING | DECIDING}


@pytest.fixture(scope="module")
def acted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A fleet with four jobs for each person: to steer, to say yes, to say no, to roll back."""
    home = tmp_path_factory.mktemp("acted")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, datetime.now(UTC))
        with stores.transaction() as tx:
            room = Resources(cpu_millis=64_000, memory_bytes=256 << 30)
            far = datetime.now(UTC) + timedelta(hours=6)
            tx.nodes.put(Node(name=NodeName("large"), pool=seed.LOCAL, capacity=room, seen_at=far))
        for number, person in enumerate(PEOPLE):
            _four_jobs(stores, person, 16 * (number + 1))
    running = Served(home)
    running.start()
    yield running
    running.stop()


@pytest.mark.parametrize("person", PEOPLE)
def test_each_action_is_carried_through_or_names_the_role(
    browser: Browser, acted: Served, person: str
) -> None:
    with acted.client() as client:
        token = client.send(calls.mint_token(person, PEOPLE[person])).secret
    with visit(browser, acted, signed_in=False) as seen:
        page = seen.page
        page.goto(acted.url)
        page.get_by_label("Or paste a token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Overview", level=1).wait_for()
        steer, decide = bool(MAY[person]), MAY[person] >= DECIDING
        _go(page, acted, f"steer-{person}")
        page.get_by_label("What-if").focus()
        page.keyboard.press("ArrowRight")
        _act(page, "Ask for 2", "1 → 2", steer)
        _act(page, "Suspend", "will be suspended", steer)
        if steer:
            _act(page, "Resume", "will resume", steer)
        _act(page, "Cancel", "will be cancelled", steer)
        _go(page, acted, f"yes-{person}")
        _act(page, "Approve 2 → 3", "Approved: generation 1", decide)
        _go(page, acted, f"no-{person}")
        _act(page, "Reject…", "Rejected: generation 1", decide, why="another week")
        _go(page, acted, f"back-{person}")
        _act(page, "Roll back 2 → 1…", "Rolling back: generation 1", decide, why="it is enough")
        _act(page, "Freeze", "Frozen: no plan is applied", decide, why="the disk is changed")
        if decide:
            _act(page, "Frozen", "Thawed", decide)
        seen.forgive("401")
    with acted.client() as client:
        done = {
            entry.action
            for entry in client.send(calls.audit(page_size=100)).items
            if entry.actor == person
        }
    assert done >= MAY[person]
    assert (done & DECIDING) == (MAY[person] & DECIDING)
    assert decide or steer or not done


def test_an_action_that_is_refused_says_why_where_it_was_asked_for(
    browser: Browser, acted: Served
) -> None:
    id = JobId("0197f000-0000-7000-8000-0000000001f0")
    with acted.stores() as stores, stores.transaction() as tx:
        now = datetime.now(UTC)
        tx.jobs.add(seed.job(id, "handed-on", now, JobState.RUNNING, reason="stepping"))
        tx.worlds.put(seed.other_world(id, 1, now))
    with acted.client() as client:
        token = client.send(calls.mint_token("ada", Role.SUBMITTER)).secret
    with visit(browser, acted, signed_in=False) as seen:
        page = seen.page
        page.goto(acted.url)
        page.get_by_label("Or paste a token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Overview", level=1).wait_for()
        _go(page, acted, "handed-on")
        page.get_by_role("button", name="Suspend").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Suspend handed-on?")
        with acted.stores() as stores, stores.transaction() as tx:
            tx.jobs.put(replace(tx.jobs.get(id), owner="grace"))
        page.keyboard.press("Enter")
        refused = dialog.get_by_role("status")
        expect(refused).to_contain_text(
            "job handed-on belongs to grace; ask the owner or an operator to change it"
        )
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        button = page.get_by_role("button", name="Suspend")
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(button).to_have_attribute("title", "belongs to grace; needs role operator")
        seen.forgive("401", "403")
    with acted.client() as client:
        assert client.send(calls.job("handed-on")).job.state == JobState.RUNNING


def _go(page: Page, served: Served, job: str) -> None:
    page.goto(f"{served.url}/#/jobs/{job}")
    expect(page.get_by_role("heading", name=job, level=1)).to_be_visible()


def _act(page: Page, button: str, done: str, may: bool, why: str = "") -> None:
    control = page.get_by_role("button", name=button).first
    if not may:
        _names_the_role(control)
        return
    control.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type(why)
    page.keyboard.press("Enter")
    expect(page.locator(".notice")).to_contain_text(done)
    expect(page.get_by_role("dialog")).to_have_count(0)


def _names_the_role(control: Locator) -> None:
    expect(control).to_have_attribute("aria-disabled", "true")
    expect(control).to_have_attribute("title", re.compile(r"needs role \w+; you are \w+"))
    control.click(force=True)
    expect(control.page.get_by_role("dialog")).to_have_count(0)


def _four_jobs(stores: SqlStores, person: str, number: int) -> None:
    now = datetime.now(UTC)
    with stores.transaction() as tx:
        proposed, verified = tx.plans.get(seed.DIGITS, 4), tx.plans.get(seed.DIGITS, 1)
        assert (proposed.state, verified.state) == (PlanState.PROPOSED, PlanState.VERIFIED)
        for at, (kind, size, plan) in enumerate(
            (("steer", 1, None), ("yes", 2, proposed), ("no", 2, proposed), ("back", 2, verified))
        ):
            id = JobId(f"0197f000-0000-7000-8000-0000000001{number + at:02x}")
            tx.jobs.add(seed.job(id, f"{kind}-{person}", now, JobState.RUNNING, reason="stepping"))
            tx.worlds.put(seed.other_world(id, size, now))
            if plan is not None:
                tx.plans.add(replace(plan, job=id, generation=1))
