"""What is left to do and to use, and what a run hands on to the next of its script."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import BadInput
from brain.lifecycle.work import (
    KIND,
    earlier_runs,
    limits,
    promised_work,
    spent_replica_seconds,
    still_to_come,
)
from brain.settings import Settings
from brain.types.job import Budget, JobState, OptimizeMode
from brain.types.resources import Resources
from tests import builders
from tests.builders import NOW, at, world
from tests.virtual import QUICK, Laptop, scaling_by


def test_the_cost_of_a_restart_is_learned_from_the_jobs_own_downtimes():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.live(60)

    laptop.live(2)

    evidence = {fact.label: fact.value for fact in laptop.decision.explanation.evidence}
    assert "from 1 change of its own" in evidence.get("cost of a restart", "")


def test_declared_steps_that_nobody_tested_only_shorten_what_is_expected():
    short = Laptop(scaling_by(0.9), steps=90, cpus=1).start().train(12)
    endless = Laptop(scaling_by(0.9), steps=10**9, cpus=1).start().train(12)
    for laptop in (short, endless):
        laptop.turn()

    said = [rest(laptop) for laptop in (short, endless)]
    assert "as declared" in said[0]
    assert "Brain assumes that the run still needs as much time as it has taken so far" in said[1]


def test_in_a_shared_pool_they_count_because_who_declares_too_much_only_comes_after_others():
    laptop = Laptop(scaling_by(0.9), steps=10**6, cpus=1).start().train(12)
    laptop.turn()

    sight = laptop.sight
    with laptop.transaction() as (tx, job):
        job = replace(job, document=replace(job.document, optimize_mode=OptimizeMode.CLUSTER))
        found = still_to_come(job, sight, tx.worlds.of(job.id), elapsed=12.0, past=())

    assert found.known
    assert found.seconds > 10**5


def rest(laptop: Laptop) -> str:
    return {e.label: e.value for e in laptop.decision.explanation.evidence}["still to come"]


def second_run(**declared: int) -> Laptop:
    """A job of which one run took about 200 steps, before its second run begins."""
    return again(Laptop(scaling_by(0.9), cpus=1, **declared), 2)


def again(laptop: Laptop, number: int) -> Laptop:
    """Let a run of about 200 steps come to its end, and the next one be submitted."""
    laptop.start().live(40)
    with laptop.transaction() as (tx, job):
        lifecycle.end(tx, job, JobState.SUCCEEDED, "all done", laptop.now)
    laptop.id = laptop.submit(laptop.document, id=f"0197f000-0000-7000-8000-{number:012}")
    return laptop


def test_a_run_without_declaration_is_as_long_as_the_runs_of_its_script_before():
    laptop = again(again(Laptop(scaling_by(0.9), cpus=1), 2), 3).start().train(12)

    laptop.turn()

    assert "as much work as earlier runs of its script did" in rest(laptop)
    sight = laptop.sight
    with laptop.transaction() as (tx, job):
        worlds, past = tx.worlds.of(job.id), earlier_runs(tx, job)
        found = still_to_come(job, sight, worlds, elapsed=12.0, past=past)
    assert found.known
    assert found.seconds == pytest.approx(40 - 12, rel=0.25)


def test_runs_of_what_turns_out_to_be_another_script_do_not_tell_how_long_it_is():
    laptop = again(again(Laptop(scaling_by(0.9), cpus=1), 2), 3)
    laptop.step_seconds = lambda workers: 40 * scaling_by(0.9)(workers)
    laptop.start().train(400)

    laptop.turn()

    evidence = {e.label: e.value for e in laptop.decision.explanation.evidence}
    assert "not on" in evidence["rests on"]
    assert (
        "Brain assumes that the run still needs as much time as it has taken so far"
        in evidence["still to come"]
    )


def test_one_run_of_a_script_does_not_tell_how_long_the_next_one_is():
    laptop = again(Laptop(scaling_by(0.9), cpus=1), 2).start().train(12)

    laptop.turn()

    assert "as much time as it has taken so far: nothing was declared" in rest(laptop)


def test_declarations_of_a_script_count_whatever_its_runs_are_called():
    laptop = Laptop(scaling_by(0.9), cpus=1, steps=200)
    laptop.document = replace(laptop.document, name="tuesday")
    laptop = again(laptop, 2).start().train(12)

    laptop.turn()

    assert "earlier declarations were right" in rest(laptop)


def test_epochs_mean_nothing_before_a_run_told_how_long_they_are():
    laptop = Laptop(scaling_by(0.9), epochs=10, cpus=1).start().train(12)

    laptop.turn()

    assert "no run reported the length of an epoch" in rest(laptop)


def test_epochs_are_believed_once_two_runs_agreed_how_long_they_are():
    laptop = again(second_run(epochs=10), 3).start().train(12)

    laptop.turn()

    assert "earlier declarations were right" in rest(laptop)
    with laptop.transaction() as (tx, job):
        said = promised_work(job, earlier_runs(tx, job))
    assert said is not None
    assert said.in_examples
    assert said.work == pytest.approx(200 * 64, rel=0.1)


def test_a_run_hands_on_how_true_its_declaration_was():
    laptop = second_run(steps=200)

    with laptop.transaction() as (tx, job):
        said = promised_work(job, earlier_runs(tx, job))

    assert said is not None
    assert said.ratios == pytest.approx((1.0,), rel=0.3)


def test_a_script_whose_declarations_proved_true_is_believed():
    laptop = second_run(steps=200).start().train(12)

    laptop.turn()

    assert "earlier declarations were right" in rest(laptop)


def test_a_script_whose_declarations_proved_false_is_expected_to_go_on_as_long_as_it_did():
    laptop = second_run(steps=20_000).start().train(12)

    laptop.turn()

    assert "wrong by more than a factor of two" in rest(laptop)


def test_a_first_run_inherits_nothing():
    laptop = Laptop(scaling_by(0.9))

    with laptop.transaction() as (tx, job):
        assert tx.fits.get(job.id, KIND) is None


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"deadline": at(-1)}, "deadline", "has passed"),
        ({"budget": Budget(cost=9.0)}, "budget.cost", "set accelerator_prices"),
    ],
)
def test_limits_that_nobody_can_keep_are_refused(fields: dict[str, Any], field: str, said: str):
    with pytest.raises(BadInput, match=said) as refused:
        Laptop(scaling_by(0.9), steps=100, **fields)

    assert refused.value.field == field


def limits_of(laptop: Laptop, settings: Settings = QUICK) -> Any:
    sight = laptop.sight
    with laptop.transaction() as (tx, job):
        return limits(job, sight, tx.worlds.of(job.id), settings, laptop.now)


def test_a_budget_is_counted_in_accelerators_and_in_money():
    each = {"resources": Resources(cpu_millis=500), "steps": 1000}
    hours = Laptop(scaling_by(0.9), budget=Budget(accelerator_hours=1), **each).start().train(20)
    priced = Settings(policy_mode="auto", accelerator_prices="cpu=0.5")
    money = Laptop(scaling_by(0.9), budget=Budget(cost=1.0), settings=priced, **each)
    money.start().train(20)

    # Half a core each: a core-hour is two replica-hours, and 1 buys two core-hours.
    assert limits_of(hours).replica_seconds == pytest.approx(2 * 3600 - 23, abs=1)
    assert limits_of(money, priced).replica_seconds == pytest.approx(4 * 3600 - 23, abs=1)
    assert limits_of(hours).work_seconds == pytest.approx(200 - 20, abs=2)


def test_a_job_without_limits_has_none():
    assert limits_of(Laptop(scaling_by(0.9), steps=100).start().train(20)) is None


def test_worlds_are_paid_for_until_they_end_or_the_next_one_begins():
    worlds = [
        world(3, replicas=4, formed_at=at(100)),
        world(2, replicas=2, formed_at=at(50), ended_at=at(60)),
        world(1, replicas=1, formed_at=NOW),
    ]

    assert spent_replica_seconds(worlds, at(110)) == 1 * 50 + 2 * 10 + 4 * 10
    assert spent_replica_seconds([], NOW) == 0.0


def test_a_deadline_that_one_replica_misses_is_kept_by_more():
    laptop = Laptop(
        scaling_by(0.9), steps=3000, deadline=builders.NOW + timedelta(seconds=420)
    ).start()

    laptop.live(40)

    assert laptop.plans[-1].explanation.code == "keeps-limits"
    assert laptop.size == 2
