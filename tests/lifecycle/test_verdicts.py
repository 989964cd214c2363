"""What came of a promise: one word for every plan, and the words that say why."""

import pytest

from brain import lifecycle
from brain.lifecycle.verdicts import Worths, compared, kept
from brain.types.allocation import Allocation, Bounds
from brain.types.job import ApprovalPolicy, PolicyMode
from brain.types.plan import Outcome, PlanKind, PlanState, PlanVerdict, ScalePlan, Verdict
from brain.types.pool import Freeze, FreezeScope
from brain.types.recommendation import Prediction
from tests.builders import plan
from tests.virtual import QUICK, Laptop, scaling_by

SHORT = Outcome(epoch=2, verdict=Verdict.FELL_SHORT)


def rate(value: float, half: float = 1.0) -> Prediction:
    return Prediction(examples_per_second=value, low=value - half, high=value + half)


def back(generation: int = 2, state: PlanState = PlanState.APPLIED, **fields: object) -> ScalePlan:
    sizes = {"current": Allocation(replicas=2), "target": Allocation(replicas=1)}
    return plan(generation, kind=PlanKind.ROLLBACK, state=state, **sizes, **fields)


def verdicts(*plans: ScalePlan) -> list[str]:
    found = lifecycle.verdicts(plans)
    return [found[one.generation].value for one in plans]


def failing(until: PlanState) -> Laptop:
    """A job whose growth brings nothing, at the instant at which its plan is in a state."""
    here = Laptop(lambda replicas: 0.2).start()
    for _ in range(300):
        here.train(1).turn()
        if any(one.state is until for one in here.plans):
            return here
        here.coordinate()
    raise AssertionError(f"no plan became {until}")


@pytest.mark.parametrize(("percent", "keeps"), [(99.5, True), (96, True), (90, False)])
def test_a_restart_keeps_its_promise_within_half_of_the_least_gain(percent: float, keeps: bool):
    restart = plan(1, kind=PlanKind.RESTART, current=Allocation(replicas=1))

    assert kept(restart, rate(100, 0.1), rate(percent, 0.1), QUICK) is keeps


def test_a_missed_promise_is_rolled_back_when_the_size_before_it_steps_again():
    here, seen = Laptop(lambda replicas: 0.2).start(), list[PlanVerdict]()
    for _ in range(300):
        here.train(1).turn()
        came = lifecycle.verdicts(here.plans).get(1)
        if came is not None and came not in seen:
            seen.append(came)
            size = here.world.replicas if here.world else 0
            assert (came, size) in [("not yet", 1), ("fell short", 2), ("rolled back", 1)]
        here.coordinate()
    assert seen == ["not yet", "fell short", "rolled back"]


def test_a_frozen_way_back_leaves_a_missed_promise_standing():
    here = failing(PlanState.APPLIED)
    with here.transaction() as (tx, _):
        freeze = Freeze(scope=FreezeScope.ALL, by="bob", why="audit", at=here.now)
        lifecycle.freeze(tx, freeze)
    here.live(200)

    assert here.plans[1].state is PlanState.ROLLED_BACK
    assert lifecycle.verdicts(here.plans)[1] is PlanVerdict.FELL_SHORT


def test_a_missed_promise_stands_if_the_size_before_it_is_no_longer_allowed():
    here = failing(PlanState.APPLIED)
    here.bound(Bounds(min=2, max=4))
    here.live(100)

    (plan,) = here.plans
    assert (plan.state, plan.target.replicas) == (PlanState.VERIFIED, 2)
    assert plan.outcome.detail.endswith(
        "Brain does not roll it back, because the job's bounds are now 2:4 and do not allow "
        "1 replica"
    )


@pytest.mark.parametrize("approved", [False, True])
def test_a_plan_that_waits_ends_if_the_bounds_are_lowered_below_it(approved: bool):
    here = Laptop(scaling_by(0.9), policy=ApprovalPolicy(mode=PolicyMode.APPROVE)).start()
    here.live(40)
    waiting = here.plans[0]
    with here.transaction() as (tx, _):
        freeze = Freeze(scope=FreezeScope.ALL, by="bob", why="audit", at=here.now)
        lifecycle.freeze(tx, freeze)
        if approved:
            lifecycle.approve(
                tx, waiting, by="ada", version=None, settings=here.settings, now=here.now
            )
    here.bound(Bounds(min=1, max=1))
    here.live(4)

    ended = here.plans[-1]
    assert (ended.generation, ended.state) == (waiting.generation, PlanState.EXPIRED)
    assert ended.outcome.detail.startswith("the job's bounds are now 1:1 and do not allow")


def test_the_event_of_the_way_back_says_what_is_rolled_back():
    here = failing(PlanState.ROLLED_BACK)
    here.live(60)

    with here.transaction() as (tx, job):
        said = [e.message for e in tx.events.after(0, job=job.id) if e.kind == "plan.Applied"]
    assert said[-1].endswith("1 replica again: 1 → 2 replicas is rolled back")


def test_a_rollback_promises_nothing_and_is_restored_whatever_it_measures():
    here = failing(PlanState.ROLLED_BACK)
    here.live(200)

    back, missed = here.plans[0], here.plans[1]
    assert (back.kind, back.state, back.promised) == (PlanKind.ROLLBACK, PlanState.VERIFIED, None)
    assert verdicts(back, missed) == ["restored", "rolled back"]
    assert lifecycle.newest_verdict(here.plans) is PlanVerdict.ROLLED_BACK
    with here.transaction() as (tx, job):
        events = tx.events.after(0, job=job.id)
    (told,) = [e for e in events if e.kind == "plan.Verified" and e.subject == back.generation]
    assert told.data is not None
    assert told.data["verdict"] == "restored"
    assert told.message.startswith("restored: measured ")


def test_a_rollback_that_waits_has_no_verdict_yet_and_one_that_failed_was_not_applied():
    waits, failed = back(2, PlanState.APPROVED), back(3, PlanState.FAILED)
    assert verdicts(waits, failed, back(4, PlanState.VERIFIED)) == [
        "not yet",
        "not applied",
        "restored",
    ]


def test_events_carry_the_verdict():
    here = failing(PlanState.ROLLED_BACK)

    with here.transaction() as (tx, job):
        (missed,) = [e for e in tx.events.after(0, job=job.id) if e.kind == "plan.RolledBack"]
    assert missed.data is not None
    assert missed.data["verdict"] == "fell short"


@pytest.mark.parametrize("state", ["Proposed", "Approved", "Applying", "Applied"])
def test_a_plan_that_may_still_be_measured_has_no_verdict_yet(state: str):
    assert verdicts(plan(state=PlanState(state))) == ["not yet"]


@pytest.mark.parametrize("state", ["Rejected", "Superseded", "Expired", "Failed"])
def test_advice_that_was_not_taken_was_not_applied_whatever_its_score(state: str):
    scored = plan(state=PlanState(state), outcome=Outcome(verdict=Verdict.KEPT))
    assert verdicts(scored) == ["not applied"]


def test_an_applied_plan_without_a_stored_verdict_is_inconclusive():
    overtaken = plan(1, state=PlanState.SUPERSEDED, outcome=Outcome(epoch=2))
    old = plan(2, state=PlanState.VERIFIED, outcome=Outcome(epoch=3))
    assert verdicts(overtaken, old) == ["inconclusive", "inconclusive"]


def test_a_missed_promise_stands_where_the_way_back_failed_or_another_size_came():
    missed = plan(1, state=PlanState.ROLLED_BACK, outcome=SHORT)
    restored = plan(3, kind=PlanKind.RESTORE, state=PlanState.APPLIED, outcome=Outcome(epoch=4))
    assert verdicts(missed, back(2, PlanState.FAILED), restored)[0] == "fell short"
    assert verdicts(missed, plan(2, state=PlanState.APPLIED), back(3))[0] == "fell short"


def test_a_person_who_goes_back_rolls_a_missed_promise_back_and_keeps_a_kept_one():
    missed = plan(1, state=PlanState.VERIFIED, outcome=SHORT)
    met = plan(1, state=PlanState.VERIFIED, outcome=Outcome(epoch=2, verdict=Verdict.KEPT))
    assert verdicts(missed, back())[0] == "rolled back"
    assert verdicts(met, back())[0] == "kept"


def test_a_verdict_tells_the_numbers_that_it_compared():
    """Of a script that took a larger batch, whose examples are worth less."""
    grown = plan(measured=rate(40.0), promised=rate(52.1))
    measured, worths = rate(83.2), Worths(now=0.5)

    assert not kept(grown, rate(52.1), measured, QUICK, worths)
    said = compared(
        grown, rate(52.1), measured, unit="examples/s", settings=QUICK, worths=worths
    ).replace("\u202f", " ")
    assert said.startswith(
        "measured 41.6 of 52.1 examples/s promised (83.2 examples/s at another batch size"
    )
    assert "worth 0.50 of one at the promised batch size" in said


def test_a_growth_within_its_band_that_brought_too_little_says_so():
    grown = plan(measured=rate(80.0), promised=rate(52.1, 10.0))

    said = compared(grown, rate(52.1, 10.0), rate(81.0), unit="steps/s", settings=QUICK)
    assert said.replace("\u202f", " ") == (
        "measured 81.0 of 52.1 steps/s promised; throughput was 80.0 before, and a larger size "
        "must add at least 10 %"
    )


def test_what_was_measured_is_kept_in_examples_of_the_promised_batch():
    here = failing(PlanState.APPLIED)
    grown = here.plans[0]
    assert grown.promised is not None
    measured = rate(grown.promised.examples_per_second * 1.5)
    with here.transaction() as (tx, _):
        judged = lifecycle.judge(
            tx,
            grown,
            measured,
            unit="examples/s",
            settings=QUICK,
            now=here.now,
            worths=Worths(now=0.2),
        )

    assert judged.outcome.verdict is Verdict.FELL_SHORT
    assert judged.outcome.measured is not None
    assert judged.outcome.measured.examples_per_second == pytest.approx(
        measured.examples_per_second / 5
    )
    assert here.plans[0].measured == measured
