"""Jobs whose steps take longer than the times for which fast jobs are measured."""

from dataclasses import replace

import pytest

from brain.api import views
from brain.models.fitting import Point
from brain.types.allocation import Bounds
from brain.types.plan import PlanState
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


def test_a_fast_job_is_stale_as_soon_as_ever() -> None:
    here = Laptop(scaling_by(0.9), settings=USUAL, replicas=Bounds(min=1, max=2)).start()
    here.live(100)
    assert seen(here).stale_after_seconds == USUAL.stale_seconds


def seen(here: Laptop) -> JobView:
    """The job as a page shows it now."""
    with here.transaction() as (tx, job):
        return views.job(tx, job, here.settings, here.now)
