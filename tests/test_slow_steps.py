"""Jobs whose steps take longer than the times for which fast jobs are measured."""

from dataclasses import replace

import pytest

from brain.api import views
from brain.models.fitting import Point
from brain.types.allocation import Bounds
from brain.types.plan import PlanState
from brain.typeset import duration
from brain.views import JobView
from tests.virtual import QUICK, Laptop, scaling_by

#: As a service has it by default.
USUAL = replace(QUICK, verify_seconds=600.0)
HOUR = 3600.0


@pytest.mark.parametrize("seconds", [35.0, 70.0, 200.0])
def test_a_job_with_slow_steps_is_measured_resized_and_judged(seconds: float) -> None:
    here = Laptop(
        scaling_by(0.9, first=seconds), settings=USUAL, replicas=Bounds(min=1, max=2), noise=0.02
    ).start()
    for _ in range(150):
        here.live(seconds, every=10)
        if here.plans and here.plans[0].state is PlanState.VERIFIED:
            break
    assert here.plans, here.decision.explanation.reason
    assert here.plans[0].state is PlanState.VERIFIED, here.plans[0].outcome
    assert here.plans[0].target.replicas == 2
    assert isinstance(here.sight.present, Point)


@pytest.mark.parametrize("seconds", [2.0, 35.0, 200.0])
def test_a_job_that_saves_after_each_step_is_measured_with_its_saves(seconds: float) -> None:
    save = seconds / 4
    here = Laptop(
        scaling_by(0.9, first=seconds - save),
        settings=USUAL,
        replicas=Bounds(min=1, max=2),
        noise=0.02,
        save_every=1,
        save_seconds=save,
    ).start()
    while not here.plans:
        here.live(max(seconds, 10), every=10)
        assert here.sight.world is not None
        assert (here.now - here.sight.world.formed_at).total_seconds() < 100 * max(seconds, 10), (
            here.decision.explanation.reason
        )
    plan = here.plans[0]
    assert plan.measured is not None
    assert plan.measured.examples_per_second == pytest.approx(64 / seconds, rel=0.05)
    said = {fact.label: fact.value for fact in plan.explanation.evidence}
    assert (
        said["saving"]
        == f"{duration(save)} of each step, because the script saves after most steps"
    )
    for _ in range(150):
        here.live(max(seconds, 10), every=10)
        if (plan := here.plans[0]).state is PlanState.VERIFIED:
            break
    assert plan.state is PlanState.VERIFIED, plan.outcome
    assert plan.outcome.measured is not None
    truth = seconds - save
    assert plan.outcome.measured.examples_per_second == pytest.approx(
        64 / (truth / 2**0.9 + save), rel=0.05
    )


def test_saves_after_every_second_step_are_no_part_of_a_step() -> None:
    here = Laptop(
        scaling_by(0.0, first=20.0),
        settings=USUAL,
        replicas=Bounds(min=1, max=1),
        save_every=2,
        save_seconds=10.0,
    ).start()
    here.live(HOUR, every=10)
    assert isinstance(here.sight.present, Point)
    assert here.sight.present.step_seconds == pytest.approx(20)
    assert "saving" not in {fact.label for fact in here.decision.explanation.evidence}


def test_a_slow_step_is_not_stale_and_has_a_throughput_until_three_of_them_are_missing() -> None:
    here = Laptop(
        scaling_by(0.0, first=70.0), settings=USUAL, replicas=Bounds(min=1, max=2)
    ).start()
    here.live(HOUR, every=10)
    while ((shown := seen(here)).telemetry_age_seconds or 0) <= USUAL.stale_seconds:
        here.train(1)
    assert shown.stale_after_seconds == pytest.approx(210)
    assert "StaleTelemetry" not in [one.kind for one in shown.conditions]
    assert shown.throughput is not None
    here.turn()
    assert here.decision.explanation.code not in {"stale-telemetry", "no-steps"}
    here.wait(200)
    assert "StaleTelemetry" in [one.kind for one in seen(here).conditions]


def test_the_workers_of_a_slow_job_are_shown_over_three_of_its_steps() -> None:
    here = Laptop(
        scaling_by(0.0, first=70.0), settings=USUAL, replicas=Bounds(min=1, max=1)
    ).start()
    here.live(10 * 70)
    here.wait(130)
    with here.transaction() as (tx, job):
        assert [one.step_seconds for one in views.workers(tx, job, USUAL, here.now)] == [70]
    here.wait(100)
    with here.transaction() as (tx, job):
        assert views.workers(tx, job, USUAL, here.now) == ()


def test_a_fast_job_is_stale_as_soon_as_ever() -> None:
    here = Laptop(scaling_by(0.9), settings=USUAL, replicas=Bounds(min=1, max=2)).start()
    here.live(100)
    assert seen(here).stale_after_seconds == USUAL.stale_seconds


def seen(here: Laptop) -> JobView:
    """The job as a page shows it now."""
    with here.transaction() as (tx, job):
        return views.job(tx, job, here.settings, here.now)
