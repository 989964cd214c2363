"""The whole loop in virtual time; guards are named after the incident they prevent."""

from dataclasses import replace

import pytest

from brain import lifecycle
from brain.scaling import expected_scaling
from brain.types.job import ApprovalPolicy, Checkpoint, JobState, PolicyMode
from brain.types.plan import PlanKind, PlanState, Verdict
from brain.types.pool import Freeze, FreezeScope
from brain.types.world import Cause, WorldEvent
from tests import builders
from tests.virtual import POOL, QUICK, Laptop, scaling_by


def mode(value: str) -> ApprovalPolicy:
    return ApprovalPolicy(mode=PolicyMode(value))


def everything_frozen(laptop: Laptop) -> Freeze:
    return Freeze(scope=FreezeScope.ALL, by="ada", why="demo", at=laptop.now)


def test_a_job_that_scales_is_measured_resized_and_verified():
    laptop = Laptop(scaling_by(0.9)).start()

    laptop.live(60)

    plan = laptop.plans[-1]
    assert (plan.kind, plan.state, plan.outcome.verdict) == (
        PlanKind.RESIZE,
        PlanState.VERIFIED,
        Verdict.KEPT,
    )
    assert plan.promised is not None
    assert plan.promised.exploring
    assert plan.outcome.downtime_seconds == 3.0
    assert laptop.size == 2


def test_its_plan_passes_every_station_once():
    laptop = Laptop(scaling_by(0.9)).start()

    laptop.live(60)

    states = ["Proposed", "Approved", "Applying", "Applied", "Verified"]
    assert laptop.events("plan.") == [f"plan.{state} 1" for state in states]


def test_it_decides_within_forty_seconds_of_measuring():
    laptop = Laptop(scaling_by(0.9)).start()

    laptop.live(40)

    assert laptop.plans


def test_a_job_that_gains_nothing_is_rolled_back_and_not_tried_again():
    laptop = Laptop(lambda replicas: 0.2).start()

    laptop.live(300)

    tried, back = laptop.plans[1], laptop.plans[0]
    assert (tried.state, tried.outcome.verdict) == (PlanState.ROLLED_BACK, Verdict.FELL_SHORT)
    assert (back.kind, back.state) == (PlanKind.ROLLBACK, PlanState.VERIFIED)
    assert (len(laptop.plans), laptop.size) == (2, 1)


def test_after_two_rollbacks_in_a_day_brain_only_advises():
    laptop = Laptop(lambda replicas: 0.2).start()
    laptop.live(120)
    laptop.settings = replace(laptop.settings, rollback_limit=2)
    _grow_and_roll_back(laptop)

    assert laptop.job.advise_only is not None
    assert "2" in laptop.job.advise_only


def test_rollbacks_before_advise_only_was_lifted_do_not_count():
    laptop = Laptop(lambda replicas: 0.2).start()
    laptop.settings = replace(laptop.settings, rollback_limit=1)
    laptop.live(300)
    assert laptop.job.advise_only is not None

    laptop.settings = replace(laptop.settings, rollback_limit=2)
    with laptop.transaction() as (tx, job):
        lifecycle.lift_advise_only(tx, job, by="ada", now=laptop.now)
    laptop.live(1)
    _grow_and_roll_back(laptop)
    assert laptop.job.advise_only is None

    _grow_and_roll_back(laptop)
    assert laptop.job.advise_only is not None


def _grow_and_roll_back(laptop: Laptop) -> None:
    with laptop.transaction() as (tx, job):
        plan = lifecycle.request(
            tx, job, 2, by="ada", why="", settings=laptop.settings, now=laptop.now
        )
    laptop.coordinate()
    with laptop.transaction() as (tx, job):
        lifecycle.rollback(
            tx,
            tx.plans.get(job.id, plan.generation),
            by="ada",
            version=None,
            why="slow",
            settings=laptop.settings,
            now=laptop.now,
        )
    laptop.coordinate()


def test_a_proposal_waits_for_a_person_where_the_mode_is_approve():
    laptop = Laptop(scaling_by(0.9), policy=mode("approve")).start()
    laptop.live(60)
    (plan,) = laptop.plans
    assert plan.state is PlanState.PROPOSED

    with laptop.transaction() as (tx, _):
        approved = lifecycle.approve(
            tx, plan, by="ada", version=plan.version, settings=laptop.settings, now=laptop.now
        )

    assert approved.state is PlanState.APPLYING
    assert approved.approval is not None
    assert approved.approval.by == "ada"
    assert laptop.wish().replicas == 2


def test_a_proposal_that_nobody_approves_expires_and_is_made_again():
    settings = replace(QUICK, proposal_seconds=30)
    laptop = Laptop(scaling_by(0.9), policy=mode("shadow"), settings=settings).start()

    laptop.live(100)

    states = [plan.state for plan in laptop.plans]
    assert states[0] is PlanState.PROPOSED
    assert set(states[1:]) == {PlanState.EXPIRED}
    assert laptop.size == 1


def test_mode_off_stores_holds_only():
    laptop = Laptop(scaling_by(0.9), policy=mode("off")).start()

    laptop.live(60)

    assert laptop.plans == []
    assert laptop.decision.explanation.code == "off"


def test_at_most_one_plan_of_a_job_is_active():
    laptop = Laptop(scaling_by(0.9), policy=mode("approve")).start()

    for turn in laptop.live(120):
        assert sum(plan.active for plan in turn.plans) <= 1

    assert len(laptop.plans) == 1
    assert laptop.decision.explanation.code == "plan-active"


def test_two_turns_by_two_brains_store_one_plan():
    laptop = Laptop(scaling_by(0.9)).start().train(30)

    first, second = laptop.turn(), laptop.turn()

    assert [plan.generation for plan in first.plans] == [1]
    assert (second.plans, len(laptop.plans)) == ((), 1)


def test_turning_again_at_once_changes_nothing():
    laptop = Laptop(scaling_by(0.9)).start().train(30)
    laptop.turn(), laptop.turn()
    before = (laptop.job, laptop.plans, laptop.wish(), laptop.decision, laptop.events(""))

    laptop.turn()

    after = (laptop.job, laptop.plans, laptop.wish(), laptop.decision, laptop.events(""))
    assert after == before


def test_stale_telemetry_never_shrinks():
    laptop = Laptop(scaling_by(0.1), cpus=4, policy=mode("auto")).start()
    with laptop.transaction() as (tx, job):
        lifecycle.request(tx, job, 4, by="ada", why="", settings=QUICK, now=laptop.now)
    laptop.coordinate().train(20)
    laptop.wait(QUICK.stale_seconds + 1)

    laptop.turn()

    assert laptop.decision.explanation.code == "stale-telemetry"
    assert laptop.wish().replicas == 4


def test_a_script_that_never_steps_is_held_and_says_so():
    laptop = Laptop(scaling_by(0.9))
    laptop.turn()
    laptop.report(WorldEvent.FORMED, size=1)
    laptop.wait(90)

    laptop.turn()

    assert laptop.decision.explanation.code == "no-steps"
    assert laptop.job.reason == "no step seen yet"


def test_a_job_without_checkpoints_is_not_resized_because_it_would_lose_its_work():
    laptop = Laptop(scaling_by(0.9), checkpoint=Checkpoint()).start()

    laptop.live(240)

    said = laptop.decision.explanation
    assert said.code == "no-checkpoint"
    assert said.reason.startswith("a resize would lose 4 min")
    assert laptop.plans == []


def test_a_job_that_changes_in_process_needs_no_checkpoint():
    laptop = Laptop(scaling_by(0.9), checkpoint=Checkpoint()).start()
    laptop.report(WorldEvent.STEPPING, epoch=2, size=1, elastic=True)

    laptop.live(60)

    assert laptop.plans


def test_a_checkpoint_that_was_seen_counts_like_one_that_is_declared():
    laptop = Laptop(scaling_by(0.9), checkpoint=Checkpoint()).start().train(20)
    with laptop.transaction() as (tx, _):
        tx.telemetry.add([builders.save(1, measured_at=laptop.now)], received_at=laptop.now)

    laptop.live(30)

    assert laptop.plans


def test_two_changes_do_not_overlap_in_the_measurements():
    settings = replace(QUICK, dwell_seconds=60)
    laptop = Laptop(scaling_by(0.95), cpus=4, settings=settings).start()

    laptop.live(60)

    first, second = laptop.plans[-1], laptop.plans[-2]
    assert first.state is PlanState.VERIFIED
    assert second.created_at >= first.updated_at


def test_a_change_that_only_a_person_asked_for_is_left_alone_for_long():
    settings = replace(QUICK, dwell_seconds=60)
    laptop = Laptop(scaling_by(0.95), cpus=4, settings=settings).start().train(12)
    with laptop.transaction() as (tx, job):
        lifecycle.request(tx, job, 2, by="ada", why="", settings=settings, now=laptop.now)

    laptop.live(40)

    assert laptop.size == 2
    assert laptop.decision.explanation.code == "dwell"


def test_scattered_steps_are_waited_out():
    laptop = Laptop(scaling_by(0.9), noise=0.8).start()

    laptop.train(8).turn()

    assert laptop.decision.explanation.code == "scattered"


def test_few_steps_decide_nothing():
    laptop = Laptop(scaling_by(0.9)).start().train(5)

    laptop.turn()

    assert laptop.decision.explanation.code == "too-few-steps"


def test_a_young_job_of_unknown_length_is_not_worth_a_long_restart():
    settings = replace(QUICK, restart_seconds=300)
    laptop = Laptop(scaling_by(0.9), settings=settings).start()

    laptop.live(60)

    assert laptop.decision.explanation.code == "not-worth-restart"


def test_a_job_that_is_nearly_done_is_left_alone():
    laptop = Laptop(scaling_by(0.9), steps=150).start()

    laptop.live(28)

    assert laptop.plans == []


def test_a_frozen_job_is_decided_about_but_not_changed():
    laptop = Laptop(scaling_by(0.9)).start()
    with laptop.transaction() as (tx, _):
        lifecycle.freeze(tx, everything_frozen(laptop))

    laptop.live(60)

    (plan,) = laptop.plans
    assert plan.state is PlanState.APPROVED
    assert (laptop.wish().frozen, laptop.size) == (True, 1)


def test_a_waiting_plan_says_what_it_waits_for():
    laptop = Laptop(scaling_by(0.9)).start()
    with laptop.transaction() as (tx, _):
        lifecycle.freeze(tx, everything_frozen(laptop))

    laptop.live(60)

    assert laptop.plans[-1].state is PlanState.APPROVED
    said = laptop.decision.explanation
    assert said.code == "plan-active"
    assert said.next_step.startswith("The plan begins once this obstacle is gone: frozen by ")
    assert "`brain freeze --off --all` lifts it" in said.next_step


def test_advice_that_cannot_begin_in_time_lapses_and_says_what_kept_it():
    settings = replace(QUICK, proposal_seconds=30)
    laptop = Laptop(scaling_by(0.9), settings=settings).start()
    with laptop.transaction() as (tx, _):
        lifecycle.freeze(tx, everything_frozen(laptop))

    laptop.live(100)

    lapsed = laptop.plans[-1]
    assert lapsed.state is PlanState.EXPIRED
    assert "could not begin in time: frozen by" in lapsed.outcome.detail


def test_thawing_lets_the_approved_plan_begin():
    laptop = Laptop(scaling_by(0.9)).start()
    with laptop.transaction() as (tx, _):
        lifecycle.freeze(tx, everything_frozen(laptop))
    laptop.live(60)

    with laptop.transaction() as (tx, _):
        lifecycle.thaw(tx, "all", "", by="ada", now=laptop.now)
    laptop.live(40)

    assert (laptop.plans[-1].state, laptop.size) == (PlanState.VERIFIED, 2)


def test_a_degraded_world_is_not_judged():
    laptop = Laptop(scaling_by(0.9)).start().train(30)
    laptop.report(WorldEvent.LOST, cause=Cause.FAILURE, detail="worker 0 was killed")

    laptop.turn()

    assert laptop.job.state is JobState.DEGRADED
    assert laptop.decision.explanation.code == "degraded"


def test_a_straggler_is_not_mistaken_for_bad_scaling():
    laptop = Laptop(scaling_by(0.9), cpus=4).start()
    with laptop.transaction() as (tx, job):
        lifecycle.request(tx, job, 4, by="ada", why="", settings=QUICK, now=laptop.now)
    laptop.coordinate()

    laptop.train(30, slow_rank=3)
    laptop.turn()
    laptop.turn()

    assert laptop.decision.explanation.code == "straggler"


def test_a_plan_whose_world_was_never_measured_is_inconclusive():
    laptop = Laptop(scaling_by(0.9)).start().train(30)
    laptop.turn()
    laptop.coordinate().wait(QUICK.verify_seconds + 1)

    laptop.turn()

    (plan,) = laptop.plans
    assert (plan.state, plan.outcome.verdict) == (PlanState.VERIFIED, Verdict.INCONCLUSIVE)
    assert "no training step" in plan.outcome.detail


def test_what_one_storage_gives_is_expected_of_more_replicas():
    # 64 examples compute in 0.16 s of one replica; the storage takes 0.2 s for them.
    laptop = Laptop(lambda replicas: 0.2, cpus=4).start()
    waits = {size: 0.2 - 0.16 / size for size in (1, 2)}
    for _ in range(30):
        laptop.also = {"data_wait_seconds": waits[laptop.size]}
        laptop.live(4)

    assert {1, 2} <= {point.replicas for point in (*laptop.sight.earlier, laptop.sight.present)}
    found = laptop.sight.predict(4)
    assert found.low < 320 < found.high
    assert found.examples_per_second == pytest.approx(320, rel=0.05)


def test_what_if_answers_up_to_twice_what_was_seen():
    laptop = Laptop(scaling_by(0.9), cpus=8).start().train(30)

    with laptop.transaction() as (tx, job):
        answer = expected_scaling(tx, job, laptop.settings, laptop.now)

    known = {size.replicas: size.prediction for size in answer.sizes}
    assert known[2] is not None
    assert known[2].exploring
    assert known[3] is None
    assert "measure 2 replicas first" in str(answer.sizes[3].undetermined)


def test_a_turn_tells_what_it_did():
    laptop = Laptop(scaling_by(0.9))

    first = laptop.turn()

    assert first.admitted == (laptop.id,)
    assert (first.pool, first.plans, first.conflicts) == (POOL, (), ())


@pytest.mark.parametrize("exponent", [0.3, 0.6, 1.0])
def test_it_settles_and_does_not_oscillate(exponent: float):
    laptop = Laptop(scaling_by(exponent), cpus=8, noise=0.02).start()

    laptop.live(1200, every=20)

    sizes = [plan.target.replicas for plan in laptop.plans if plan.kind is PlanKind.RESIZE]
    assert len(set(sizes)) == len(sizes) <= 4


@pytest.mark.parametrize("minutes", [10, -10])
def test_senders_whose_clock_is_off_are_measured_as_others_are(minutes: float):
    laptop = Laptop(scaling_by(0.9), behind_seconds=60 * minutes).start()

    laptop.live(60)

    assert laptop.plans[-1].outcome.verdict is Verdict.KEPT
    assert laptop.sight.samples[-1].measured_at == laptop.now
