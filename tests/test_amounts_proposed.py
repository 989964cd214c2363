"""Brain's own advice on amounts: proposed as a plan under the job's mode, verified, rolled back."""

from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import Conflict
from brain.estimates.proposal import explanation, wanted, worthwhile
from brain.estimates.usage import used_of
from brain.models.fitting import Point
from brain.types.advice import AmountAdvice, ResourceAdvice
from brain.types.allocation import Allocation, Bounds
from brain.types.job import ApprovalPolicy, JobId, JobState, PolicyMode, ResourceLimits
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from tests import builders
from tests.virtual import Laptop, scaling_by

GIB = 2**30
#: Of which a replica uses all but a little.
RESERVED = Resources(cpu_millis=1000, memory_bytes=int(1.05 * GIB))
#: Of which it needs a part.
AMPLE = Resources(cpu_millis=1000, memory_bytes=4 * GIB)


def training(mode: PolicyMode, reserved: Resources = RESERVED, **document: Any) -> Laptop:
    """A job of one size, whose scaler says what its replica reserves."""
    fixed = {"replicas": Bounds(min=1, max=1), "policy": ApprovalPolicy(mode=mode), **document}
    here = Laptop(scaling_by(0.9), resources=reserved, **fixed).start()
    here.observe(builders.replica(resources=reserved))
    return here


def read(here: Laptop, seconds: int, **use: Any) -> None:
    """Train; every five seconds the machine is read, the scaler does its work and Brain turns."""
    for _ in range(seconds // 5):
        here.train(5)
        here.observe(builders.replica(resources=here.wish().resources or here.document.resources))
        reading = builders.host(int(here.now.timestamp()), job=here.id, measured_at=here.now, **use)
        with here.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=here.now)
        here.turn()


def of_amounts(here: Laptop) -> list[ScalePlan]:
    return [plan for plan in here.plans if plan.changes_resources]


def test_memory_that_is_nearly_full_is_raised_and_verified():
    here = training(PolicyMode.AUTO)
    read(here, 900, job_cpu_millis=300, job_memory_bytes=GIB)

    (plan,) = of_amounts(here)
    assert (plan.kind, plan.state) == (PlanKind.RESIZE, PlanState.VERIFIED)
    assert plan.outcome.verdict is Verdict.KEPT
    assert 1.1 * GIB < here.job.resources.memory_bytes < 1.3 * GIB
    assert here.job.resources.cpu_millis == 1000, "nobody named it"
    labels = [fact.label for fact in plan.explanation.evidence]
    assert "memory: low, target, high" in labels
    facts = {fact.label: fact.value for fact in plan.explanation.evidence}
    assert facts["memory in recent days"].startswith("no reading exceeded the reservation, and ")
    assert "the advised amount would suffice, with " in facts["memory in recent days"]
    assert "rests on" in labels


def test_where_a_person_approves_it_waits_and_nothing_changes():
    here = training(PolicyMode.APPROVE)
    read(here, 900, job_cpu_millis=300, job_memory_bytes=GIB)

    (plan,) = of_amounts(here)
    assert plan.state is PlanState.PROPOSED
    assert here.job.resources == RESERVED

    with here.transaction() as (tx, _):
        lifecycle.reject(tx, plan, by="ada", version=None, why="", now=here.now)
    read(here, 120, job_cpu_millis=300, job_memory_bytes=GIB)
    assert len(of_amounts(here)) == 1, "nobody is asked again and again"


def lowered(mode: PolicyMode) -> tuple[Laptop, ScalePlan]:
    """Brain advises 2 of 4 GiB: the advice itself would take hours of measurements."""
    here = training(mode, AMPLE)
    read(here, 60, job_cpu_millis=300, job_memory_bytes=GIB)
    rate = here.sight.now
    with here.transaction() as (tx, job):
        _, current = lifecycle.standing(tx.plans.of(job.id), job)
        less = replace(current, resources=replace(AMPLE, memory_bytes=2 * GIB))
        why = explanation(advice(1000, (2 * GIB, 2 * GIB)))
        plan = lifecycle.propose_amounts(
            tx, job, less, why, rate, settings=here.settings, now=here.now
        )
    return here, plan


def test_memory_that_was_raised_too_little_is_raised_again_and_not_lowered():
    here = training(PolicyMode.AUTO)
    for _ in range(240):
        read(here, 5, job_cpu_millis=300, job_memory_bytes=GIB)
        if of_amounts(here):
            break
    raised = of_amounts(here)[0].target.resources.memory_bytes
    read(here, 900, job_cpu_millis=300, job_memory_bytes=raised)

    *others, missed = of_amounts(here)
    assert (missed.state, missed.outcome.verdict) == (PlanState.VERIFIED, Verdict.FELL_SHORT)
    assert {plan.kind for plan in others} == {PlanKind.RESIZE}
    assert here.job.resources.memory_bytes > raised


def test_amounts_that_fell_short_are_rolled_back_and_not_proposed_again_that_day():
    here, plan = lowered(PolicyMode.AUTO)
    read(here, 900, job_cpu_millis=300, job_memory_bytes=plan.target.resources.memory_bytes)

    back, missed = of_amounts(here)
    assert (missed.state, missed.outcome.verdict) == (PlanState.ROLLED_BACK, Verdict.FELL_SHORT)
    assert back.kind is PlanKind.ROLLBACK
    assert here.job.resources == AMPLE


@pytest.mark.parametrize(("speed", "verdict"), [(0.96, Verdict.KEPT), (0.93, Verdict.FELL_SHORT)])
def test_a_drop_of_throughput_that_may_be_noise_breaks_no_promise(speed: float, verdict: Verdict):
    here, plan = lowered(PolicyMode.AUTO)
    here.step_seconds = scaling_by(0.9, first=0.2 / speed)
    read(here, 300, job_cpu_millis=300, job_memory_bytes=GIB)
    with here.transaction() as (tx, job):
        assert tx.plans.get(job.id, plan.generation).outcome.verdict is verdict


def test_after_amounts_fell_short_the_next_ones_are_larger_by_a_fifth():
    here, plan = lowered(PolicyMode.AUTO)
    here.step_seconds = scaling_by(0.9, first=0.25)
    read(here, 300, job_cpu_millis=300, job_memory_bytes=GIB)
    assert here.job.resources == AMPLE
    here.step_seconds = scaling_by(0.9)
    read(here, 1620, job_cpu_millis=300, job_memory_bytes=GIB)
    assert here.job.resources.memory_bytes == round(1.2 * plan.target.resources.memory_bytes)


def test_a_plan_only_frees_what_is_worth_the_look_of_a_person():
    large, small = Resources(memory_bytes=8 * GIB), Resources(memory_bytes=GIB)
    had = Allocation(replicas=9, resources=large, roles=(("chief", RoleSize(resources=small)),))
    half = replace(small, memory_bytes=GIB // 2)
    assert not worthwhile(had, had.reserving("chief", half))
    assert worthwhile(had.reserving("chief", half), had), "a raise never waits"
    assert worthwhile(had, had.reserving("worker", replace(large, memory_bytes=7 * GIB)))


def test_amounts_that_a_person_approved_stay_with_the_verdict_beside_them():
    here, plan = lowered(PolicyMode.APPROVE)
    given = {"by": "ada", "version": None, "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, _):
        lifecycle.approve(tx, plan, **given)
    read(here, 900, job_cpu_millis=300, job_memory_bytes=plan.target.resources.memory_bytes)

    more, missed = of_amounts(here)
    assert (missed.state, missed.outcome.verdict) == (PlanState.VERIFIED, Verdict.FELL_SHORT)
    assert here.job.resources == plan.target.resources
    assert more.state is PlanState.PROPOSED, "less was too little: a person is asked for more"
    assert more.only_raises


def test_a_proposal_below_what_is_used_by_now_is_not_approved():
    here, plan = lowered(PolicyMode.APPROVE)
    used = 0.97 * plan.target.resources.memory_bytes
    read(here, 60, job_cpu_millis=300, job_memory_bytes=int(used))
    given = {"by": "ada", "version": None, "settings": here.settings, "now": here.now}
    with (
        here.transaction() as (tx, _),
        pytest.raises(Conflict, match="a replica uses now; reject the plan"),
    ):
        lifecycle.approve(tx, plan, **given)


def test_nothing_is_proposed_where_the_scaler_does_not_say_what_replicas_have():
    here = training(PolicyMode.AUTO)
    here.observe(builders.replica(resources=None))
    for _ in range(180):
        here.train(5)
        reading = builders.host(int(here.now.timestamp()), job=here.id, measured_at=here.now)
        with here.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=here.now)
        here.turn()
    assert of_amounts(here) == []


def test_advice_that_no_scaler_carries_out_is_given_up_and_the_job_goes_on():
    here = training(PolicyMode.AUTO)
    reading = {"job": here.id, "job_cpu_millis": 300, "job_memory_bytes": GIB}
    for _ in range(300):
        here.train(5)
        here.observe(builders.replica(resources=RESERVED))
        second = int(here.now.timestamp())
        with here.stores.transaction() as tx:
            sample = builders.host(second, measured_at=here.now, **reading)
            tx.telemetry.add([sample], received_at=here.now)
        here.turn()
    (advice,) = [plan for plan in of_amounts(here) if plan.kind is PlanKind.RESIZE]
    assert advice.state is PlanState.FAILED
    assert "not every replica" in advice.outcome.detail
    assert here.job.state is JobState.RUNNING


def test_memory_that_is_nearly_full_is_raised_no_further_than_the_jobs_limits():
    most = int(1.1 * GIB)
    here = training(PolicyMode.AUTO, resource_limits=ResourceLimits(memory_bytes=most))
    read(here, 900, job_cpu_millis=300, job_memory_bytes=GIB)
    assert {plan.target.resources.memory_bytes for plan in of_amounts(here)} == {most}


def test_memory_that_frees_too_little_for_a_plan_joins_a_plan_that_raises_cpu():
    reserved = Resources(cpu_millis=400, memory_bytes=int(1.3 * GIB))
    here = training(PolicyMode.AUTO, reserved)
    for _ in range(210):
        here.train(1).wait(114)
        read(here, 5, job_cpu_millis=340, job_memory_bytes=GIB)
    assert not of_amounts(here)
    read(here, 600, job_cpu_millis=395, job_memory_bytes=GIB, throttled_share=0.6)
    plan = of_amounts(here)[-1]
    assert plan.target.resources.cpu_millis > 400
    assert 1.15 * GIB < plan.target.resources.memory_bytes < 1.27 * GIB


def throttled(here: Laptop, minutes: int, *, waits: bool) -> None:
    """Train for some minutes a rank whose bursts take 0.2 CPU seconds, five in two seconds.

    Its quota stops each burst that needs more than it gives; ``waits``: the step waits for it.
    """
    for _ in range(minutes):
        quota = min(1.0, here.job.resources.cpu_millis / 1000)
        seconds = 0.2 + 0.2 / quota if waits else 0.4
        here.step_seconds = lambda _, seconds=seconds: seconds
        read(
            here,
            60,
            job_cpu_millis=round(1000 * 0.2 / seconds) if waits else 250,
            throttled_share=0.6 if quota < 1 or not waits else 0.0,
        )


def test_readings_beside_a_proposal_that_nobody_approved_are_those_of_one_quota():
    here = training(PolicyMode.APPROVE, Resources(cpu_millis=300))
    shares = list[float]()
    while len(shares) < 150:
        read(here, 5, job_cpu_millis=295, throttled_share=0.6)
        proposed = [plan for plan in of_amounts(here) if plan.active]
        with here.transaction() as (tx, job):
            use = used_of(tx, job).role("worker")
            for plan in proposed:
                lifecycle.reject(tx, plan, by="ada", version=None, why="", now=here.now)
        shares += [use.throttled] if use else []
    assert [plan.state for plan in of_amounts(here)] == [PlanState.REJECTED]
    assert min(shares) == pytest.approx(0.6)


def test_a_rank_that_its_quota_stops_in_bursts_is_mended_and_stays_so():
    here = training(PolicyMode.AUTO, Resources(cpu_millis=300))
    throttled(here, 12, waits=True)
    has = here.job.resources.cpu_millis
    assert 1000 <= has <= 1300, "from 300, where it trained at half its speed"
    assert {plan.outcome.verdict for plan in of_amounts(here)} == {Verdict.KEPT}

    made = len(of_amounts(here))
    throttled(here, 30, waits=True)
    assert here.job.resources.cpu_millis == has, "half of which it uses on average"
    assert len(of_amounts(here)) == made


def test_bursts_for_which_nothing_waits_get_a_higher_quota_once():
    here = training(PolicyMode.AUTO, Resources(cpu_millis=300))
    throttled(here, 20, waits=False)
    (plan,) = of_amounts(here)
    assert plan.target.resources.cpu_millis == 390


def test_memory_that_leaks_is_not_raised_because_that_only_puts_its_end_off():
    here = training(PolicyMode.AUTO, replace(RESERVED, memory_bytes=int(1.5 * GIB)))
    for minute in range(40):
        read(here, 60, job_cpu_millis=300, job_memory_bytes=int((1 + minute / 100) * GIB))
    assert of_amounts(here) == []


def test_a_raise_of_memory_does_not_wait_for_processors_that_others_have():
    here = training(PolicyMode.AUTO, replace(RESERVED, cpu_millis=1500))
    other = builders.document(
        name="other",
        replicas=Bounds(min=1, max=1),
        resources=Resources(cpu_millis=400, memory_bytes=GIB),
    )
    where = {
        "job_id": JobId("0197f000-0000-7000-8000-000000000002"),
        "owner": "ada",
        "pool": here.job.pool,
    }
    with here.transaction() as (tx, _):
        lifecycle.submit(tx, other, settings=here.settings, now=here.now, **where)
    read(here, 900, job_cpu_millis=1490, job_memory_bytes=GIB)
    plan = of_amounts(here)[-1]
    assert plan.target.resources.cpu_millis == 1500
    assert plan.target.resources.memory_bytes > RESERVED.memory_bytes


def test_as_much_of_a_raise_of_processors_as_fits_is_proposed():
    here = training(PolicyMode.AUTO, replace(AMPLE, cpu_millis=1100))
    other = builders.document(
        name="other", replicas=Bounds(min=1, max=1), resources=Resources(cpu_millis=500)
    )
    where = {
        "job_id": JobId("0197f000-0000-7000-8000-000000000002"),
        "owner": "ada",
        "pool": here.job.pool,
    }
    with here.transaction() as (tx, _):
        lifecycle.submit(tx, other, settings=here.settings, now=here.now, **where)
    read(here, 120, job_cpu_millis=1400, job_memory_bytes=GIB)
    given = of_amounts(here)[-1].target.resources.cpu_millis
    assert 1200 < given <= 1500, "1.6 CPUs are advised, and 1.5 are there"


def test_amounts_are_lowered_no_further_than_the_least():
    found = advice(500, (GIB, GIB))
    has = Resources(cpu_millis=2000, memory_bytes=8 * GIB)
    least = Resources(cpu_millis=1500, memory_bytes=4 * GIB)
    assert wanted(has, found, least) == least
    assert wanted(has, found, replace(least, cpu_millis=1900)).cpu_millis == 2000, "hardly less"
    assert wanted(Resources(cpu_millis=400, memory_bytes=GIB // 2), found, least) == Resources(
        cpu_millis=500, memory_bytes=GIB
    ), "a raise goes to the target"


def test_nothing_is_proposed_while_too_little_of_the_job_is_measured():
    here = training(PolicyMode.AUTO)
    read(here, 20, job_cpu_millis=300, job_memory_bytes=GIB)
    before = len(of_amounts(here))
    for _ in range(180):
        here.wait(5)
        reading = builders.host(
            int(here.now.timestamp()),
            job=here.id,
            measured_at=here.now,
            job_cpu_millis=300,
            job_memory_bytes=GIB,
        )
        with here.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=here.now)
        here.turn()
    assert len(of_amounts(here)) == before


def advice(cpu: float, memory: tuple[float, float]) -> ResourceAdvice:
    rest = {"used": 0.0, "above": 0.0, "reserved_above": 0.0, "unused": 0.0, "reserved_unused": 0.0}
    made = {"uncapped": 0.0, "reserved": 0.0, "reason": "", **rest}
    target, high = memory
    return ResourceAdvice(
        role="worker",
        cpu=AmountAdvice(low=cpu, target=cpu, high=cpu, **made),
        memory=AmountAdvice(low=target, target=target, high=high, **made),
        basis="an hour of this run",
        reason="it uses less",
    )


@pytest.mark.parametrize(
    ("reserved", "cpu", "memory", "expected"),
    [
        ((2000, 8 * GIB), 500, (GIB, 2 * GIB), (500, 2 * GIB)),
        ((2000, 2 * GIB), 3000, (3 * GIB, 4 * GIB), (3000, 3 * GIB)),
        ((1000, 0), 500, (GIB, 2 * GIB), (1000, 0)),
        ((2000, 2 * GIB), 1900, (GIB, int(1.9 * GIB)), (2000, 2 * GIB)),
    ],
)
def test_what_is_too_little_is_raised_and_memory_lowered_to_what_is_ample(
    reserved: tuple[int, int], cpu: float, memory: tuple[float, float], expected: tuple[int, int]
):
    has = Resources(cpu_millis=reserved[0], memory_bytes=reserved[1])
    asked = replace(has, cpu_millis=expected[0], memory_bytes=expected[1])
    assert wanted(has, advice(cpu, memory)) == asked


def test_a_slow_job_is_judged_by_the_steps_of_a_quarter_of_an_hour():
    here = training(PolicyMode.AUTO)
    here.step_seconds = scaling_by(0.9, first=3.0)
    here.train(1200)
    present = here.sight.present
    assert isinstance(present, Point)
    assert present.steps > 200


def test_a_job_that_became_fifteen_times_slower_is_shown_so_within_minutes():
    here = training(PolicyMode.AUTO)
    read(here, 300, job_cpu_millis=300)
    here.step_seconds = scaling_by(0.9, first=3.0)
    here.train(153)
    assert here.sight.now is not None
    assert here.sight.now.examples_per_second == pytest.approx(64 / 3, rel=0.05)
