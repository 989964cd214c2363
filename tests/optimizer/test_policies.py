"""Policies by themselves: each wrapper does its one thing."""

from dataclasses import replace
from typing import Any

import pytest

from brain.errors import Undetermined
from brain.models.fitting import Point
from brain.models.job import SpeedTerms
from brain.models.job_fit import fit
from brain.models.sizes import Size
from brain.optimizer import narrowing, recommend
from brain.optimizer.batches import choose_batch, unsettled, wish_at
from brain.optimizer.limits import within_limits, within_limits_beside_others
from brain.optimizer.policies import SINGLE_JOB, Efficient, WorthARestart
from brain.optimizer.situation import Situation, WorkLimits
from brain.optimizer.worth import credit
from brain.settings import Settings
from brain.types.batch import BatchWish
from brain.types.job import BatchBounds, Job, JobState, OptimizeMode, PolicyMode
from brain.typeset import count
from tests.builders import NOW, job

HOUR = 3600.0


def point(replicas: int, rate: float, **fields: Any) -> Point:
    made: dict[str, Any] = {
        "epoch": replicas,
        "processes": replicas,
        "accelerator": "cpu",
        "examples_per_step": 64.0,
        "step_seconds": 64.0 / rate,
        "relative_error": 0.002,
        "steps": 200,
        "last_step": 200,
        "until": NOW,
    }
    return Point(replicas=replicas, **(made | fields))


def situation(rates: dict[int, float], *, at: int = 1, **fields: Any) -> Situation:
    """A job that was measured at each of ``rates`` and runs at size ``at``."""
    present = point(at, rates[at])
    earlier = [point(size, rate) for size, rate in rates.items() if size != at]
    running = job(state=JobState.RUNNING)
    made = {
        "job": running,
        "current": running.document.sized(at),
        "mode": PolicyMode.AUTO,
        "present": present,
        "model": fit(present, earlier, terms=SpeedTerms(global_batch=64)),
        "sizes": (1, 2, 3, 4),
        "room": 4,
        "telemetry_age_seconds": 1.0,
        "stale_after_seconds": 60.0,
        "world_age_seconds": 600.0,
        "checkpointed": True,
        "unsaved_seconds": 20.0,
        "restart_seconds": 10.0,
        "elapsed_seconds": HOUR,
        "remaining_seconds": HOUR,
        "settings": Settings(),
        "now": NOW,
    }
    return Situation(**(made | fields))


@pytest.mark.parametrize(
    ("gain", "size"),
    [
        pytest.param(1.9, 2, id="a doubling that brings 1.9x"),
        pytest.param(1.3, 1, id="a doubling that brings less than 1.41x"),
    ],
)
def test_a_doubling_must_bring_the_root_of_two(gain: float, size: int):
    seen = situation({1: 100.0, 2: 100.0 * gain}, sizes=(1, 2))

    assert Efficient().choose(seen).replicas == size


def test_a_size_that_wastes_its_replicas_is_given_back():
    seen = situation({1: 100.0, 2: 104.0}, at=2, sizes=(1, 2))

    choice = WorthARestart(Efficient()).choose(seen)

    assert (choice.replicas, choice.code) == (1, "saves-replicas")


def test_never_measured_and_larger_gets_credit_for_what_there_is_to_learn():
    assert Efficient().choose(situation({1: 100.0})).code == "exploring"


def test_in_the_last_fifth_of_a_declared_run_there_is_nothing_left_to_learn_it_for():
    # Steps of 5 ms, of which most cannot be shared: nobody expects a doubling to pay.
    early = situation({1: 12800.0}, remaining_seconds=9 * HOUR, end_known=True)
    late = replace(early, elapsed_seconds=9 * HOUR, remaining_seconds=HOUR)

    assert Efficient().choose(early).code == "exploring"
    assert Efficient().choose(late).code == "at-best"


def test_the_credit_fades_as_a_declared_end_comes_near():
    begun = situation({1: 100.0}, end_known=True, elapsed_seconds=0.0)
    credits = [
        credit(replace(begun, elapsed_seconds=passed, remaining_seconds=HOUR - passed), 2)
        for passed in (0.0, 0.5 * HOUR, 0.7 * HOUR, 0.9 * HOUR)
    ]

    assert credits == sorted(credits, reverse=True)
    assert credits[0] > credits[1] > credits[2] > credits[3] == 0.0


def test_an_unmeasured_smaller_size_earns_no_credit():
    assert credit(situation({4: 300.0}, at=4), 2) == 0.0


def test_what_does_not_fit_the_pool_is_no_candidate():
    full = situation({1: 100.0}, room=1)

    choice = Efficient().choose(narrowing.within_room(full))

    assert choice.replicas == 1
    assert dict(choice.why_not)[2] == "the pool has room for 1 replica now"


def test_what_fell_short_is_not_tried_again():
    burnt = situation({1: 100.0}, disappointed={2: 1})

    choice = Efficient().choose(narrowing.not_in_vain(burnt))

    assert choice.replicas == 1
    assert "fell short" in dict(choice.why_not)[2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"settings": Settings(minimum_gain=0.9)}, "a restart must bring at least +90"),
        ({"settings": Settings(payback_seconds=10.0)}, "but the limit is"),
        ({"remaining_seconds": 30.0}, "over the remaining 30 s"),
    ],
)
def test_a_restart_must_pay(fields: dict[str, Any], said: str):
    choice = WorthARestart(Efficient()).choose(situation({1: 100.0}, **fields))

    assert choice.code == "not-worth-restart"
    assert said in choice.reason


def test_a_loader_that_starves_its_workers_is_not_given_more_of_them():
    hungry = situation({1: 100.0}, data_wait_share=0.6)

    choice = Efficient().choose(narrowing.fed(hungry))

    assert choice.replicas == 1
    assert "wait for data during 60" in dict(choice.why_not)[2]


@pytest.mark.parametrize(("busy", "replicas"), [(0.97, 1), (0.4, 2), (None, 2)])
def test_some_waiting_for_data_counts_where_the_processors_are_busy(
    busy: float | None, replicas: int
):
    seen = situation({1: 100.0}, sizes=(1, 2), data_wait_share=0.2, cpu_share=busy)

    assert Efficient().choose(narrowing.fed(seen)).replicas == replicas


@pytest.mark.parametrize(("stalled", "replicas"), [(0.4, 1), (0.02, 2), (None, 2)])
def test_some_waiting_for_data_counts_where_storage_is_slow(stalled: float | None, replicas: int):
    seen = situation({1: 100.0}, sizes=(1, 2), data_wait_share=0.2, io_stalled_share=stalled)

    choice = Efficient().choose(narrowing.fed(seen))

    assert choice.replicas == replicas
    assert ("because storage is slow" in dict(choice.why_not).get(2, "")) is (replicas == 1)


def test_a_larger_size_that_was_measured_counts_whoever_waits_for_data():
    hungry = situation({1: 100.0, 2: 190.0}, sizes=(1, 2), data_wait_share=0.6)

    assert Efficient().choose(narrowing.fed(hungry)).replicas == 2


def test_a_smaller_size_that_does_more_for_its_price_is_taken_although_it_is_slower():
    seen = situation({2: 120.0, 1: 100.0}, at=2, sizes=(1, 2))

    assert SINGLE_JOB.choose(seen).replicas == 1


def test_flapping_a_size_that_was_left_within_the_hour_needs_more_than_noise_to_come_back():
    rates = {1: 100.0, 2: 102.0}
    seen = situation(rates, at=2, sizes=(1, 2), left_lately=frozenset({1}))
    dear = situation({1: 100.0, 2: 75.0}, at=2, sizes=(1, 2), left_lately=frozenset({1}))

    long_ago = replace(seen, left_lately=frozenset())
    assert Efficient().choose(narrowing.not_back(long_ago)).replicas == 1
    assert Efficient().choose(narrowing.not_back(dear)).replicas == 1


def limited(rates: dict[int, float], *, at: int = 1, **limits: Any) -> Situation:
    return situation(
        rates, at=at, sizes=(1, 2, 4), limits=WorkLimits(work_seconds=2 * HOUR, **limits)
    )


RATES = {1: 100.0, 2: 130.0, 4: 160.0}


def test_a_deadline_is_kept_by_the_size_that_keeps_it_whatever_it_costs():
    relaxed = limited(RATES, deadline_seconds=3 * HOUR)
    pressed = limited(RATES, deadline_seconds=1.4 * HOUR)

    assert SINGLE_JOB.choose(relaxed).replicas == 1
    choice = SINGLE_JOB.choose(pressed)
    assert (choice.replicas, choice.code) == (4, "keeps-limits")
    assert "the deadline is in 1 h 24 min; 4 replicas would keep the limit" in choice.reason


def test_a_budget_is_kept_by_a_smaller_size():
    choice = SINGLE_JOB.choose(limited(RATES, at=4, replica_seconds=4 * HOUR))

    assert choice.replicas == 1
    assert "the budget has 4 h" in choice.reason


def test_a_size_that_would_break_the_budget_is_not_chosen():
    seen = limited({1: 100.0, 2: 160.0, 4: 210.0}, replica_seconds=2.2 * HOUR)

    choice = Efficient().choose(within_limits(seen))

    assert choice.replicas == 1
    assert "the budget has" in dict(choice.why_not)[2]


@pytest.mark.parametrize(
    ("limits", "best"), [({"deadline_seconds": 600.0}, 4), ({"replica_seconds": 600.0}, 1)]
)
def test_where_no_size_keeps_a_limit_the_one_that_breaks_it_least_is_taken(
    limits: dict[str, float], best: int
):
    choice = SINGLE_JOB.choose(limited(RATES, at=2, **limits))

    assert (choice.replicas, choice.code) == (best, "keeps-limits")
    assert f"{count(best, 'replica')} would come nearest, because no size" in choice.reason


def test_beside_others_a_deadline_that_no_size_keeps_moves_nobody_and_voids_no_budget():
    hopeless = limited(RATES, at=4, deadline_seconds=600.0)
    both = limited(RATES, at=4, deadline_seconds=600.0, replica_seconds=4 * HOUR)

    assert within_limits_beside_others(hopeless) == hopeless
    left = within_limits_beside_others(both)
    assert left.untenable is not None
    assert "the budget has" in left.untenable.why
    assert left.limits == both.limits


def test_a_smaller_size_keeps_a_deadline_with_time_to_spare():
    # Two of four replicas take 8861 s and a restart; at 80 % a little more.
    tight = limited(RATES, at=4, deadline_seconds=9500.0)
    roomy = limited(RATES, at=4, deadline_seconds=10500.0)

    assert 2 not in within_limits(tight).sizes
    assert 2 in within_limits(roomy).sizes


def test_a_limit_that_only_an_unknown_size_could_keep_changes_nothing_that_is_known():
    lonely = limited({1: 100.0}, deadline_seconds=60.0)

    assert SINGLE_JOB.choose(lonely).replicas == 2


def test_where_uncertainty_blocks_a_decision_a_free_trial_is_proposed():
    # Steps of 20 ms on a GPU, late in a declared run: 2 might pay, and nothing may be tried.
    present = point(1, 3200.0, accelerator="T4")
    unsure = situation(
        {1: 3200.0},
        sizes=(1, 2),
        present=present,
        model=fit(present, terms=SpeedTerms(global_batch=64)),
        elapsed_seconds=9 * HOUR,
        remaining_seconds=HOUR,
        end_known=True,
    )

    choice = Efficient().choose(unsure)

    assert choice.code == "at-best"
    assert "micro-batches" in choice.next_step
    assert "without a restart" in choice.next_step


def test_a_size_that_nothing_is_known_of_says_what_to_measure_first():
    choice = SINGLE_JOB.choose(situation({1: 100.0}))

    assert "measure 2 replicas first" in dict(choice.why_not)[4]


def test_advice_says_what_is_measured_promised_and_what_it_rests_on():
    advice = recommend(situation({1: 1842.0}))

    evidence = {fact.label: fact.value for fact in advice.explanation.evidence}
    assert evidence["measured"].startswith("1 842 ± 6.1 examples/s")
    assert evidence["rests on"] == "200 steps measured at 1 replica, fixed global batch"
    assert evidence["cost of a restart"] == "10 s, assumed"
    assert advice.predicted is not None
    assert advice.predicted.exploring


def test_every_other_size_is_an_alternative_with_its_reason():
    advice = recommend(situation({1: 100.0}))

    assert [(a.replicas, a.gain is None) for a in advice.explanation.alternatives] == [
        (1, False),
        (3, True),
        (4, True),
    ]
    assert all(alternative.why_not for alternative in advice.explanation.alternatives)


def test_a_hold_names_every_other_size_too():
    held = recommend(situation({1: 100.0}, checkpointed=False))

    assert held.hold
    assert [a.replicas for a in held.explanation.alternatives] == [2, 3, 4]


def test_confidence_is_the_chance_that_the_promise_is_kept():
    unsure = recommend(situation({1: 100.0})).explanation.confidence
    sure = recommend(situation({1: 100.0, 2: 190.0})).explanation.confidence

    assert unsure is not None
    assert sure is not None
    assert 0.6 < unsure < sure <= 1


def test_a_job_that_brain_may_only_advise_on_asks_a_person():
    seen = situation({1: 100.0})
    advised = replace(seen, job=replace(seen.job, advise_only="2 rollbacks within 24 h"))

    assert "Approve or reject the plan" in recommend(advised).explanation.next_step


@pytest.mark.parametrize(
    "unknown",
    [Undetermined("no step yet", code="no-steps"), Undetermined("its step time is nan s")],
)
def test_what_is_not_measured_is_held_with_the_reason(unknown: Undetermined):
    held = recommend(situation({1: 100.0}, present=unknown, model=None))

    assert held.hold
    assert str(unknown) in held.explanation.reason


def test_a_size_at_which_a_workers_batch_would_not_surely_fit_its_device_is_not_taken():
    wasteful = {1: 100.0, 2: 100.0, 4: 100.0}

    tight = situation(wasteful, at=4, device_examples=32.0)
    unread = situation(wasteful, at=4)

    assert recommend(tight).target.replicas == 2
    refused = {one.replicas: one.why_not for one in recommend(tight).explanation.alternatives}
    assert "64 examples, but only 32 are known to fit" in refused[1]
    assert recommend(unread).target.replicas == 1


def told(batch: float, **fields: Any) -> Situation:
    """A script that takes the batch that it is told, from 64 to 4,096 examples, and makes
    ``batch`` of them in steps of half a second: nearly all of it is overhead."""
    present = point(2, batch / 0.5, examples_per_step=batch, noise_scale=1e5)
    terms = SpeedTerms(global_batch=64, largest_batch=4096, largest_local=2048, told=True)
    less = point(2, 64 / 0.49, epoch=1, examples_per_step=64.0, noise_scale=1e5)
    model = fit(present, [less] if batch > 64 else [], terms=terms)
    return situation({2: 1.0}, at=2, sizes=(1, 2, 4), present=present, model=model, **fields)


def test_a_better_batch_comes_before_a_larger_size():
    waits = narrowing.judged(told(64.0))
    measured = narrowing.judged(told(4096.0))

    assert dict(waits.ruled_out) == {4: "Brain first measures a better batch at the present size"}
    assert waits.sizes == (1, 2)
    assert measured.sizes == (1, 2, 4)


@pytest.mark.parametrize(("noise", "again"), [(100.0, True), (None, False)])
def test_noise_that_became_old_is_measured_again_where_it_once_was(
    noise: float | None, again: bool
):
    terms = SpeedTerms(global_batch=64, largest_batch=4096, largest_local=2048, told=True)
    pair = point(1, 90.0, accumulation=2, noise_scale=noise, epoch=1)
    model = fit(point(1, 100.0, epoch=2), [pair], terms=terms)

    old = situation({1: 100.0}, present=model.present, model=model, world_age_seconds=9e3)

    assert unsettled(old) is again


def told_its_batch() -> Job:
    running = job(state=JobState.RUNNING)
    batch = BatchBounds(global_size=64, global_max=4096, local_max=2048, tune=True)
    return replace(running, document=replace(running.document, batch=batch))


def test_noise_that_micro_batches_did_not_tell_is_looked_for_again_once_the_work_has_doubled():
    terms = SpeedTerms(global_batch=64, largest_batch=4096, largest_local=2048, told=True)
    vain = point(1, 90.0, accumulation=2, noise_scale=None, epoch=1, last_step=100)

    def asked_again(steps: int) -> bool:
        model = fit(point(1, 100.0, epoch=2, last_step=steps), [vain], terms=terms)
        return unsettled(
            situation({1: 100.0}, present=model.present, model=model, world_age_seconds=9e3)
        )

    assert not asked_again(50)
    assert asked_again(150)


def test_a_batch_is_rounded_for_devices_but_never_below_the_first():
    terms = SpeedTerms(global_batch=20, largest_batch=640, largest_local=80, told=True)
    quiet = point(1, 40.0, examples_per_step=20.0, accumulation=2, noise_scale=2.0)
    noisy = replace(quiet, noise_scale=1e4)

    first = wish_at(fit(quiet, terms=terms), Size(replicas=1))
    larger = wish_at(fit(noisy, terms=terms), Size(replicas=1))

    assert first is not None
    assert first.global_size == 20
    assert larger is not None
    assert larger.local_most % 8 == 0


def test_a_trial_lasts_until_noise_is_known_however_old_its_world_is():
    terms = SpeedTerms(global_batch=64, largest_batch=4096, largest_local=2048, told=True)
    asked = BatchWish(global_size=64, local_most=32)
    pair = point(1, 90.0, accumulation=2, examples_per_step=64.0, noise_scale=None)
    model = fit(pair, terms=terms)
    tried = situation(
        {1: 90.0}, present=pair, model=model, world_age_seconds=9e3, job=told_its_batch()
    )

    assert choose_batch(tried, asked, trying_seconds=60.0, shared=True) is None
    over = choose_batch(tried, asked, trying_seconds=301.0, shared=True)
    assert over is not None
    assert "the trial is over" in over.reason
    manual = replace(tried.job.document, optimize_mode=OptimizeMode.MANUAL)
    tried = replace(tried, job=replace(tried.job, document=manual))
    assert choose_batch(tried, asked, trying_seconds=301.0, shared=True) is None, "people choose"
