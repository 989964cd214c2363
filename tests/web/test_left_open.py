"""Pages that stay open while the fleet is busy and the service is restarted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Browser, expect

from brain.types.plan import PlanState, Verdict
from brain.types.record import AuditEntry
from tests.web import seed
from tests.web.browser import visit
from tests.web.served import Served

#: More plans than a page of them has.
MANY = 210


def test_the_inbox_has_a_proposal_that_hundreds_of_newer_plans_followed(
    browser: Browser, apart: Served
) -> None:
    now = datetime.now(UTC)
    with apart.stores() as stores, stores.transaction() as tx:
        newer = seed.measured_plan(
            1,
            1,
            2,
            now,
            PlanState.SUPERSEDED,
            None,
            now,
            measured=900,
            verdict=Verdict.KEPT,
            epoch=1,
            reason="as told",
        )
        for generation in range(10, 10 + MANY):
            tx.plans.add(replace(newer, job=seed.VOLUME, generation=generation, created_at=now))

    with visit(browser, apart) as seen:
        seen.page.goto(f"{apart.url}/#/inbox")
        expect(seen.page.get_by_role("row", name="digits")).to_be_visible()


def test_logs_go_on_after_a_restart_of_the_service(browser: Browser, apart: Served) -> None:
    output = apart.home / "replicas" / seed.DIGITS / "0" / "output.log"
    output.parent.mkdir(parents=True)
    output.write_text("step 1\n")

    with visit(browser, apart) as seen:
        seen.page.goto(f"{apart.url}/#/jobs/digits/logs")
        printed = seen.page.get_by_label("Output of the workers")
        expect(printed).to_have_text("step 1")
        apart.stop()
        with output.open("a") as file:
            file.write("step 2\n")
        apart.start()
        expect(printed).to_have_text("step 1\nstep 2")
        seen.forgive("Failed to load resource")


def test_new_entries_leave_no_hole_before_older_ones_of_the_audit_log(
    browser: Browser, apart: Served
) -> None:
    def act(numbers: range) -> None:
        now = datetime.now(UTC)
        with apart.stores() as stores, stores.transaction() as tx:
            for number in numbers:
                at = now + timedelta(microseconds=number)
                entry = AuditEntry(at=at, actor="ada", action="freeze", target=f"number {number}")
                tx.audit.add(entry)

    act(range(150))
    with visit(browser, apart) as seen:
        seen.page.goto(f"{apart.url}/#/audit")
        rows = seen.page.locator("tbody tr", has_text="number")
        seen.page.get_by_role("button", name="Show older entries").click()
        expect(rows).to_have_count(150)
        act(range(150, 210))
        expect(rows).to_have_count(210)
