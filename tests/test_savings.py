"""What plans saved, counted from what was measured."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from brain.estimates.usage import KIND as USED
from brain.estimates.usage import Used
from brain.inmemory import MemoryStores
from brain.lifecycle.observed import KIND, Point
from brain.lifecycle.work import stretches
from brain.models.estimate import WorldUse
from brain.ports import StoredFit
from brain.savings import savings
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.job import JobState
from brain.types.plan import Outcome, PlanKind, PlanState, ScalePlan, Verdict
from brain.types.recommendation import Prediction
from brain.types.resources import Resources
from brain.types.savings import SavingsOf
from brain.types.world import Cause, World
from brain.wire import encode
from tests import builders
from tests.builders import NOW

HOUR = timedelta(hours=1)
#: A day that ends twelve hours after the first world formed.
SINCE, UNTIL = NOW - 12 * HOUR, NOW + 12 * HOUR


def rate(value: float, *, band: float = 0.0) -> Prediction:
    return Prediction(examples_per_second=value, low=value * (1 - band), high=value * (1 + band))


def plan(generation: int = 1, *, before: int = 4, after: int = 2, **fields: Any) -> ScalePlan:
    """Four replicas that made 100 become two that make 90, after four hours."""
    made: dict[str, Any] = {
        "current": Allocation(replicas=before),
        "target": Allocation(replicas=after),
        "state": PlanState.VERIFIED,
        "measured": rate(100),
        "promised": rate(92),
        "outcome": Outcome(
            epoch=2, downtime_seconds=36.0, steps_redone=0, measured=rate(90), verdict=Verdict.KEPT
        ),
        "created_at": NOW + 4 * HOUR,
    }
    return builders.plan(generation, **(made | fields))


def world(epoch: int, replicas: int, hour: float, **fields: Any) -> World:
    at = NOW + hour * HOUR
    return builders.world(epoch, replicas=replicas, formed_at=at, stepping_at=at, **fields)


WORLDS = (world(1, 4, 0), world(2, 2, 4, cause=Cause.PLAN))


def saved(
    *plans: ScalePlan,
    worlds: tuple[World, ...] = WORLDS,
    until: datetime = UNTIL,
    settings: Settings | None = None,
    gpus: int = 1,
    wait_share: float = 0.0,
) -> SavingsOf:
    stores = MemoryStores()
    job = builders.job(state=JobState.RUNNING)
    job = replace(job, document=replace(job.document, resources=Resources(gpus=gpus)))
    if not gpus:
        job = replace(job, document=replace(job.document, resources=Resources(cpu_millis=2000)))
    point = Point(
        epoch=2,
        replicas=2,
        processes=2,
        accelerator="A100",
        examples_per_step=64.0,
        step_seconds=10.0,
        relative_error=0.01,
        steps=100,
        last_step=100,
        until=NOW,
    )
    with stores.transaction() as tx:
        tx.jobs.add(job)
        tx.nodes.put(builders.node(capacity=Resources(cpu_millis=8000, gpus=8 if gpus else 0)))
        for one in worlds:
            tx.worlds.put(one)
        for one in sorted(plans, key=lambda one: one.generation):
            tx.plans.add(one)
        tx.fits.put(
            StoredFit(job=job.id, kind=KIND, parameters=encode([point]).decode(), fitted_at=NOW)
        )
        use = WorldUse(epoch=1, nodes=1, replicas=4)
        use = replace(use, stepped_seconds=100, waited_seconds=100 * wait_share)
        kept = encode(Used(uses=(use,))).decode()
        tx.fits.put(StoredFit(job=job.id, kind=USED, parameters=kept, fitted_at=NOW))
    with stores.transaction(read_only=True) as tx:
        (found,) = savings(tx, SINCE, until, settings or Settings(), UNTIL).of
    return found


def test_a_shrink_saves_what_the_old_size_would_have_taken_for_the_same_work():
    # Eight hours at 2 in place of 8 h × 90/100 at 4; 36 s of change are taken off.
    assert saved(plan()).saved_hours.value == pytest.approx(8 * (4 * 0.9 - 2) - 2 * 0.01)


def test_a_shrink_that_costs_speed_is_done_later_and_says_so():
    assert saved(plan()).sooner_hours.value == pytest.approx(8 * (0.9 - 1) - 0.01)


def test_a_growth_spends_accelerator_hours_to_be_done_sooner():
    grown = plan(
        before=1, after=2, outcome=Outcome(epoch=2, measured=rate(170), verdict=Verdict.KEPT)
    )
    found = saved(grown, worlds=(world(1, 1, 0), world(2, 2, 4)))
    assert found.saved_hours.value == pytest.approx(8 * (1.7 - 2))
    assert found.sooner_hours.value == pytest.approx(8 * 0.7)


def test_steps_made_again_are_a_cost():
    again = replace(plan(), outcome=replace(plan().outcome, steps_redone=36))
    assert saved(plan()).saved_hours.value - saved(again).saved_hours.value == pytest.approx(
        36 * 10 * 2 / 3600
    )


def test_a_plan_that_fell_short_and_its_rollback_count_against():
    short = plan(
        before=2,
        after=4,
        state=PlanState.ROLLED_BACK,
        outcome=Outcome(
            epoch=2, downtime_seconds=36, measured=rate(100), verdict=Verdict.FELL_SHORT
        ),
    )
    back = plan(
        2,
        before=4,
        after=2,
        kind=PlanKind.ROLLBACK,
        outcome=Outcome(epoch=3, downtime_seconds=36, measured=rate(100), verdict=Verdict.KEPT),
    )
    found = saved(short, back, worlds=(world(1, 2, 0), world(2, 4, 4), world(3, 2, 5)))
    assert found.saved_hours.value == pytest.approx(1 * (2 - 4) - 0.01 * 4 - 0.01 * 2)


def test_a_plan_without_a_verdict_counts_its_cost_alone():
    unsure = replace(plan(), outcome=replace(plan().outcome, verdict=Verdict.INCONCLUSIVE))
    assert saved(unsure).saved_hours.value == pytest.approx(-0.01 * 2)


def test_what_a_person_asked_for_is_not_booked_by_brain():
    asked = plan(kind=PlanKind.REQUEST, proposed_by="ada")
    assert saved(asked).saved_hours.value == 0
    assert saved(asked).plans == ()


def test_a_plan_counts_until_the_world_has_another_size():
    more = (*WORLDS, world(3, 1, 6))
    assert saved(plan(), worlds=more).saved_hours.value == pytest.approx(2 * 1.6 - 0.02)


def test_a_world_that_healed_at_the_same_size_goes_on_counting():
    healed = (*WORLDS, world(3, 2, 6, cause=Cause.FAILURE))
    assert saved(plan(), worlds=healed).saved_hours.value == pytest.approx(8 * 1.6 - 0.02)


def test_only_the_time_asked_about_counts():
    early = saved(plan(), until=NOW + 5 * HOUR)
    assert early.saved_hours.value == pytest.approx(1 * 1.6 - 0.02)
    assert early.allocated_hours == pytest.approx(4 * 4 + 1 * 2)


def test_the_band_comes_from_both_measurements():
    sure = saved(plan()).saved_hours
    vague = saved(
        plan(
            measured=rate(100, band=0.1),
            outcome=replace(plan().outcome, measured=rate(90, band=0.1)),
        )
    ).saved_hours
    assert sure.low == sure.value
    assert vague.low < vague.value - 2
    assert vague.value == pytest.approx(sure.value)


def test_money_is_at_the_kinds_price_and_unsaid_without_one():
    priced = saved(plan(), settings=Settings(accelerator_prices="A100=2"))
    assert priced.saved_money == pytest.approx(2 * priced.saved_hours.value)
    assert saved(plan()).saved_money is None


def test_advice_that_nobody_took_is_reckoned_apart():
    ignored = plan(state=PlanState.EXPIRED, outcome=Outcome())
    found = saved(ignored, worlds=(world(1, 4, 0),))
    assert found.saved_hours.value == 0
    assert found.proposed_hours == pytest.approx(8 * (4 * 0.92 - 2))


def test_advice_made_again_counts_once_at_a_time():
    first = plan(state=PlanState.EXPIRED, outcome=Outcome())
    again = plan(2, state=PlanState.PROPOSED, outcome=Outcome(), created_at=NOW + 6 * HOUR)
    found = saved(first, again, worlds=(world(1, 4, 0),))
    assert found.proposed_hours == pytest.approx(8 * (4 * 0.92 - 2))


def test_advice_that_was_withdrawn_counts_until_then():
    withdrawn = plan(state=PlanState.SUPERSEDED, outcome=Outcome(), updated_at=NOW + 6 * HOUR)
    found = saved(withdrawn, worlds=(world(1, 4, 0),))
    assert found.proposed_hours == pytest.approx(2 * (4 * 0.92 - 2))


def test_scores_of_advice_are_counted():
    scored = plan(state=PlanState.EXPIRED, outcome=Outcome(verdict=Verdict.KEPT, measured=rate(91)))
    assert saved(scored, worlds=(world(1, 4, 0),)).advice_kept == 1


def test_quarter_hours_add_up_to_the_whole():
    found = saved(plan())
    assert len(found.buckets) == 96
    assert sum(b.working + b.idle for b in found.buckets) / 4 == pytest.approx(4 * 4 + 8 * 2)
    assert sum(b.saved for b in found.buckets) / 4 == pytest.approx(8 * 1.6)


def test_time_before_the_first_step_is_idle():
    late = replace(WORLDS[0], stepping_at=NOW + HOUR)
    found = saved(worlds=(late,))
    assert found.allocated_hours - found.working_hours == pytest.approx(4)


def test_jobs_without_accelerators_count_their_processors():
    found = saved(plan(), gpus=0)
    assert found.unit == "core-h"
    assert found.saved_hours.value == pytest.approx(2 * (8 * 1.6 - 0.02))


def test_a_world_ends_with_its_job():
    job = replace(builders.job(), finished_at=NOW + HOUR)
    (one,) = stretches([world(1, 1, 0)], job, UNTIL)
    assert one.end == NOW + HOUR


def test_where_nothing_ran_nothing_is_told():
    with MemoryStores().transaction(read_only=True) as tx:
        assert savings(tx, SINCE, UNTIL, Settings(), UNTIL).of == ()


def test_a_second_plan_is_held_against_the_size_that_was_asked_for():
    more = plan(
        2,
        before=2,
        after=1,
        measured=rate(90),
        outcome=Outcome(epoch=3, measured=rate(50), verdict=Verdict.KEPT),
    )
    found = saved(plan(), more, worlds=(*WORLDS, world(3, 1, 6)))
    assert found.saved_hours.value == pytest.approx(2 * 1.6 - 0.02 + 6 * (4 * 0.5 - 1))


def test_a_size_that_a_person_asked_for_is_the_new_measure():
    asked = plan(2, before=2, after=3, kind=PlanKind.REQUEST, proposed_by="ada")
    asked = replace(asked, outcome=Outcome(epoch=3, measured=rate(98), verdict=Verdict.KEPT))
    more = plan(
        3,
        before=3,
        after=2,
        measured=rate(98),
        outcome=Outcome(epoch=4, measured=rate(49), verdict=Verdict.KEPT),
    )
    found = saved(plan(), asked, more, worlds=(*WORLDS, world(3, 3, 6), world(4, 2, 8)))
    assert found.saved_hours.value == pytest.approx(2 * 1.6 - 0.02 + 4 * (3 * 0.5 - 2))


def test_waiting_for_data_is_idle():
    found = saved(wait_share=0.25, worlds=(WORLDS[0],))
    assert found.working_hours == pytest.approx(0.75 * 4 * 12)


def test_an_edit_of_amounts_neither_saves_nor_ends_what_a_plan_saves():
    amounts = Allocation(replicas=2, resources=Resources(cpu_millis=500))
    edit = plan(
        2,
        before=2,
        kind=PlanKind.REQUEST,
        target=amounts,
        proposed_by="ada",
        outcome=Outcome(epoch=2, downtime_seconds=0.0, verdict=Verdict.KEPT),
        created_at=NOW + 5 * HOUR,
    )
    assert saved(plan(), edit) == saved(plan())
