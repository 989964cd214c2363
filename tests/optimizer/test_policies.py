"""Policies by themselves: each wrapper does its one thing."""

from dataclasses import replace
from typing import Any

import pytest

from brain.models.fitting import Point
from brain.models.job import Terms, fit
from brain.optimizer import recommend
from brain.optimizer.policies import Efficient, NotInVain, WithinBounds, WorthARestart
from brain.optimizer.situation import Situation
from brain.settings import Settings
from brain.types.job import JobState, PolicyMode
from tests.builders import NOW, job

HOUR = 3600.0


def point(replicas: int, rate: float) -> Point:
    return Point(
        epoch=replicas,
        replicas=replicas,
        processes=replicas,
        accelerator="cpu",
        examples_per_step=64.0,
        step_seconds=64.0 / rate,
        relative_error=0.002,
        steps=200,
        last_step=200,
        until=NOW,
    )


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
        "model": fit(present, earlier, terms=Terms(global_batch=64)),
        "sizes": (1, 2, 3, 4),
        "room": 4,
        "telemetry_age_seconds": 1.0,
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
    early = situation({1: 12800.0}, remaining_seconds=9 * HOUR, end_declared=True)
    late = replace(early, elapsed_seconds=9 * HOUR, remaining_seconds=HOUR)

    assert Efficient().choose(early).code == "exploring"
    assert Efficient().choose(late).code == "at-best"


def test_what_does_not_fit_the_pool_is_no_candidate():
    full = situation({1: 100.0}, room=1)

    choice = WithinBounds(Efficient()).choose(full)

    assert choice.replicas == 1
    assert dict(choice.why_not)[2] == "1\u202freplica fit the pool now"


def test_what_fell_short_is_not_tried_again():
    burnt = situation({1: 100.0}, disappointed=frozenset({2}))

    choice = NotInVain(Efficient()).choose(burnt)

    assert choice.replicas == 1
    assert "fell short" in dict(choice.why_not)[2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"settings": Settings(minimum_gain=0.9)}, "a restart needs +90"),
        ({"settings": Settings(payback_seconds=10.0)}, "is the limit"),
        ({"remaining_seconds": 30.0}, "over 30\u202fs to come"),
    ],
)
def test_a_restart_must_pay(fields: dict[str, Any], said: str):
    choice = WorthARestart(Efficient()).choose(situation({1: 100.0}, **fields))

    assert choice.code == "not-worth-restart"
    assert said in choice.reason


def test_advice_says_what_is_measured_promised_and_what_it_rests_on():
    advice = recommend(situation({1: 1842.0}))

    evidence = {fact.label: fact.value for fact in advice.explanation.evidence}
    assert evidence["measured now"].startswith("1\u202f842 ± 6.1\u202fexamples/s")
    assert evidence["rests on"] == "200\u202fsteps measured at 1 replica, fixed global batch"
    assert evidence["cost of a restart"] == "10\u202fs, assumed"
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

    assert "Approve or reject it" in recommend(advised).explanation.next_step
