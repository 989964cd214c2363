"""A proposal that waits for a person follows the measurement, or is withdrawn."""

from dataclasses import replace

import pytest

from brain import lifecycle
from brain.errors import VersionMismatch
from brain.scaling import expected_scaling
from brain.types.job import ApprovalPolicy, PolicyMode
from brain.types.plan import PlanKind, PlanState
from brain.types.recommendation import Prediction
from tests.builders import plan, recommendation
from tests.lifecycle.test_batches import NOISE, exchanging
from tests.virtual import QUICK, Laptop, scaling_by

APPROVE = {"policy": ApprovalPolicy(mode=PolicyMode.APPROVE)}


def proposed(cpus: int = 2) -> Laptop:
    """A job that scales well, with a proposal that nobody answered yet."""
    here = Laptop(scaling_by(0.9), cpus=cpus, **APPROVE).start()
    here.live(60)
    assert here.plans[0].state is PlanState.PROPOSED
    return here


def test_a_proposal_is_based_on_what_is_measured_once_that_moved():
    here = proposed()
    before = here.plans[0]
    here.step_seconds = scaling_by(0.9, first=0.14)
    here.live(120)

    (after,) = here.plans
    assert (after.generation, after.state) == (before.generation, PlanState.PROPOSED)
    assert before.measured is not None
    assert after.measured is not None
    assert after.promised is not None
    rate = after.measured.examples_per_second
    assert rate == pytest.approx(64 / 0.14, rel=0.02)
    assert rate > 1.3 * before.measured.examples_per_second
    assert after.promised.examples_per_second > rate
    assert "plan.renewed 1" in here.events("plan.")


def test_who_saw_the_numbers_of_before_approves_nothing():
    here = proposed()
    seen = here.plans[0].version
    here.step_seconds = scaling_by(0.9, first=0.14)
    here.live(120)

    now = here.plans[0]
    with here.transaction() as (tx, _), pytest.raises(VersionMismatch):
        lifecycle.approve(tx, now, by="ada", version=seen, settings=QUICK, now=here.now)


def test_a_proposal_whose_size_is_no_longer_advised_is_withdrawn():
    """Somebody wants no more than before a restart could pay off."""
    here = proposed()
    here.step_seconds = scaling_by(0.9, first=0.14)
    here.settings = replace(here.settings, restart_seconds=1e6)
    here.live(120)

    (first,) = here.plans
    assert first.state is PlanState.SUPERSEDED
    assert first.outcome.detail.startswith(
        "withdrawn: the measured throughput is 457 now and was 320"
    )
    assert here.decision.hold


def test_noise_and_small_drifts_leave_a_proposal_as_it_was():
    here = proposed()
    before = here.plans[0]
    here.step_seconds = scaling_by(0.9, first=0.193)
    here.live(120)

    assert here.plans == [before]


def test_what_a_person_asked_for_is_never_renewed():
    now = Prediction(examples_per_second=200, low=199, high=201)
    then = Prediction(examples_per_second=100, low=99, high=101)
    assert lifecycle.outdated(plan(measured=then), now, QUICK)
    assert not lifecycle.outdated(plan(measured=then, kind=PlanKind.REQUEST), now, QUICK)
    assert not lifecycle.outdated(plan(measured=then, state=PlanState.APPROVED), now, QUICK)
    assert not lifecycle.outdated(plan(measured=then), None, QUICK)
    assert not lifecycle.outdated(plan(measured=None), now, QUICK)


def test_the_curve_promises_what_the_proposal_promises():
    here = proposed()
    before = here.plans[0]
    with here.transaction() as (tx, _):
        promised = Prediction(examples_per_second=1000, low=900, high=1100)
        put = tx.plans.put(replace(before, promised=promised))
    with here.transaction() as (tx, job):
        curve = expected_scaling(tx, job, here.settings, here.now)

    (there,) = [one for one in curve.sizes if one.replicas == curve.recommended]
    assert there.prediction == put.promised


def test_a_renewed_proposal_knows_the_batch_that_it_leaves():
    here = exchanging(**APPROVE)
    here.also.update(NOISE)
    here.live(60)
    before = here.plans[0]
    assert before.current.batch is not None
    with here.transaction() as (tx, _):
        advice = recommendation(4, current=replace(before.current, batch=None))
        after = lifecycle.renew(tx, before, advice, here.now)

    assert after.current == before.current
