"""Who may take from whom: priorities, what an owner allows, and how often one job bears it."""

from dataclasses import replace
from typing import Any

from brain import lifecycle
from brain.types.allocation import Bounds
from brain.types.job import Intent, JobState
from tests.pool.rounds.fleet import QUICK, Fleet, scaling_by


def crowded(*, size: int = 2, **low: Any) -> Fleet:
    """A job on all of a node, changed so lately that it is left alone."""
    fleet = Fleet({"a": 2}, settings=replace(QUICK, shared_dwell_seconds=10_000.0))
    fleet.submit("low", scaling_by(0.95), replicas=Bounds(min=size, max=2), **low)
    fleet.live(24)
    assert fleet.size("low") == 2
    return fleet


def test_a_higher_priority_takes_what_a_job_has_above_its_least_however_lately_it_changed():
    fleet = crowded(size=1)
    fleet.submit("high", scaling_by(0.95), priority=1, replicas=Bounds(min=1, max=1))

    fleet.live(20)

    assert (fleet.size("low"), fleet.size("high")) == (1, 1)


def test_an_equal_priority_waits_until_the_last_change_is_long_enough_ago():
    fleet = crowded(size=1)
    fleet.submit("other", scaling_by(0.95), replicas=Bounds(min=1, max=1))

    fleet.live(20)

    assert (fleet.size("low"), fleet.size("other")) == (2, 0)


def test_an_equal_that_has_waited_a_minute_is_made_room_for_all_the_same():
    fleet = crowded(size=1)
    fleet.submit("other", scaling_by(0.95), replicas=Bounds(min=1, max=1))

    fleet.live(80)

    assert (fleet.size("low"), fleet.size("other")) == (1, 1)


def test_a_job_whose_owner_allows_it_is_suspended_for_a_higher_priority_and_queues_again():
    fleet = crowded(preemptible=True)
    fleet.submit("high", scaling_by(0.95), priority=1, replicas=Bounds(min=2, max=2))

    fleet.live(20)

    low = fleet.job(fleet.jobs["low"].id)
    assert (fleet.size("low"), fleet.size("high")) == (0, 2)
    assert (low.state, low.intent) == (JobState.QUEUED, Intent.RUN)


def test_a_job_does_not_take_its_room_back_before_its_replicas_have_exited():
    fleet = crowded(preemptible=True)
    low = fleet.jobs["low"]
    fleet.submit("high", scaling_by(0.95), priority=1, replicas=Bounds(min=2, max=2))
    while fleet.job(low.id).intent is Intent.RUN:
        fleet.train(2).turn()
    fleet.stop_world("low")
    for _ in range(4):
        fleet.pass_time(2)
        fleet.turn()
    assert fleet.job(low.id).state is JobState.SUSPENDED

    fleet.live(20)

    assert (fleet.size("low"), fleet.size("high")) == (0, 2)


def test_who_was_suspended_for_another_goes_on_when_that_one_ends():
    fleet = crowded(preemptible=True)
    fleet.submit("high", scaling_by(0.95), priority=1, replicas=Bounds(min=2, max=2))
    fleet.live(20)

    fleet.finish("high")
    fleet.live(10)

    assert fleet.size("low") == 2


def test_nobody_is_stopped_without_the_owners_word_or_for_an_equal_priority():
    for low, high in (({}, {"priority": 1}), ({"preemptible": True}, {})):
        fleet = crowded(**low)
        fleet.submit("high", scaling_by(0.95), replicas=Bounds(min=2, max=2), **high)

        fleet.live(20)

        assert (fleet.size("low"), fleet.size("high")) == (2, 0)


def test_a_person_who_suspends_what_was_stopped_for_another_keeps_it_so():
    fleet = crowded(preemptible=True)
    id = fleet.jobs["low"].id
    with fleet.stores.transaction() as tx:
        lifecycle.preempt(tx, tx.jobs.get(id), "high starts", fleet.now)
        lifecycle.suspend(tx, tx.jobs.get(id), by="ada", now=fleet.now)

    fleet.live(10)

    assert fleet.job(id).state is JobState.SUSPENDED


def spread(factor: float) -> Fleet:
    """A job on three nodes of four, one of which needs so much longer a step."""
    fleet = Fleet(dict.fromkeys("abcd", 1))
    fleet.submit("wide", scaling_by(0.9), replicas=Bounds(min=3, max=3))
    fleet.live(20)
    assert set(fleet.held()) == {"a", "b", "c"}
    fleet.slow["b"] = factor
    return fleet


def test_a_job_leaves_a_node_that_slows_it_down_for_minutes():
    fleet = spread(1.4)

    fleet.live(360, every=6)

    assert set(fleet.held()) == {"a", "c", "d"}
    assert "b has needed" in fleet.plans("wide")[0].explanation.reason


def test_a_slow_minute_moves_nobody():
    fleet = spread(1.4)

    fleet.live(60, every=6)
    fleet.slow.clear()
    fleet.live(320, every=6)

    assert set(fleet.held()) == {"a", "b", "c"}


def test_a_job_is_moved_once_in_half_an_hour():
    fleet = spread(1.4)
    fleet.live(360, every=6)
    assert set(fleet.held()) == {"a", "c", "d"}

    fleet.slow = {"c": 1.5}
    fleet.live(420, every=6)

    assert set(fleet.held()) == {"a", "c", "d"}
    assert "Brain waits 30 min between two moves" in fleet.decision("wide").explanation.reason
