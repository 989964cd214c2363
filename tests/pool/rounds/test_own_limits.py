"""What holds for a job alone holds in a pool, too: its data, its owner's deadline and budget."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from brain.types.allocation import Bounds
from brain.types.document import Budget
from tests.pool.rounds.fleet import QUICK, Fleet, scaling_by

#: 320 examples/s with one replica; 64 examples a step.
STEPS_PER_HOUR = 18_000


def pool(**changed: Any) -> Fleet:
    return Fleet({"a": 8}, settings=replace(QUICK, **changed))


def test_a_job_whose_workers_wait_for_data_is_given_no_more_of_them():
    fleet = pool()
    fleet.submit("fed", scaling_by(0.9), replicas=Bounds(min=1, max=2, start=1))
    fleet.submit("starved", scaling_by(0.9), waits=0.73, replicas=Bounds(min=1, max=4, start=1))

    fleet.live(120)

    assert (fleet.size("fed"), fleet.size("starved")) == (2, 1)
    others = {
        one.replicas: one.why_not for one in fleet.decision("starved").explanation.alternatives
    }
    assert (
        others[2] == "workers wait for data during 73 % of each step; more workers would wait, too"
    )


def two(fleet: Fleet, **document: Any) -> Fleet:
    """A pool that two jobs share evenly, but for what one's owner demands."""
    sizes = Bounds(min=1, max=8, start=4)
    fleet.submit("other", scaling_by(0.9), replicas=sizes)
    fleet.submit("limited", scaling_by(0.9), replicas=sizes, **document)
    return fleet


def test_a_deadline_is_kept_beside_others_who_would_make_more_of_its_accelerators():
    fleet = pool()
    due = fleet.now + timedelta(hours=1)
    two(fleet, steps=int(3.6 * STEPS_PER_HOUR), deadline=due)

    fleet.live(300)

    assert fleet.size("limited") > 4
    assert fleet.size("other") >= 1
    grown = [plan for plan in fleet.plans("limited") if plan.explanation.code == "keeps-limits"]
    assert "the deadline is in" in grown[0].explanation.reason


def test_a_deadline_that_no_size_keeps_takes_nothing_from_others():
    fleet = pool()
    due = fleet.now + timedelta(hours=1)
    two(fleet, steps=100 * STEPS_PER_HOUR, deadline=due)

    fleet.live(300)

    assert (fleet.size("limited"), fleet.size("other")) == (4, 4)


def test_a_deadline_that_finds_no_room_does_not_keep_others_from_starting():
    fleet = pool()
    fleet.submit("rigid", scaling_by(0.9), replicas=Bounds(min=4, max=4))
    sizes, due = Bounds(min=1, max=8, start=4), fleet.now + timedelta(hours=1)
    steps = int(3.6 * STEPS_PER_HOUR)
    fleet.submit("limited", scaling_by(0.9), replicas=sizes, steps=steps, deadline=due)
    fleet.live(60)
    assert fleet.decision("limited").explanation.code == "put-off"
    assert "the deadline is in" in fleet.decision("limited").explanation.reason
    fleet.submit("third", scaling_by(0.9), replicas=Bounds(min=1, max=2))

    fleet.live(120)

    assert (fleet.size("rigid"), fleet.size("limited"), fleet.size("third")) == (4, 3, 1)


def test_a_budget_is_kept_though_nobody_wants_what_it_gives_up():
    fleet = pool()
    sizes = Bounds(min=1, max=8, start=8)
    needs = 1.2
    fleet.submit(
        "thrifty", scaling_by(0.7), replicas=sizes, steps=STEPS_PER_HOUR,
        budget=Budget(accelerator_hours=needs),
    )  # fmt: skip

    fleet.live(300)

    assert fleet.size("thrifty") < 8
    first = fleet.plans("thrifty")[-1].explanation
    assert first.code == "keeps-limits"
    assert "the budget has" in first.reason


def beside_a_starved_one(exponent: float) -> Fleet:
    """A job that scales, and one whose workers wait for data; both begin with half of a pool."""
    fleet = pool()
    sizes = Bounds(min=1, max=8, start=4)
    fleet.submit("starved", scaling_by(exponent), waits=0.73, replicas=sizes)
    fleet.live(2)
    fleet.submit("scales", scaling_by(0.9), replicas=sizes)
    fleet.live(2)
    assert (fleet.size("starved"), fleet.size("scales")) == (4, 4)
    return fleet


def test_a_job_that_its_storage_starves_is_tried_with_fewer_where_others_make_more_of_the_rest():
    fleet = beside_a_starved_one(0.0)

    fleet.live(600, every=6)

    assert (fleet.size("starved"), fleet.size("scales")) == (2, 6)
    tried = fleet.plans("starved")[-1].explanation
    assert tried.code == "tried-smaller"
    assert "workers wait for data during 73 % of each step; 2 of 4 replicas" in tried.reason
    assert "scales gains more from the rest" in tried.reason


def test_a_job_that_loads_more_with_more_workers_gets_back_what_was_tried_to_be_taken():
    fleet = beside_a_starved_one(1.0)

    sizes = set()
    for _ in range(30):
        fleet.live(20)
        sizes.add(fleet.size("starved"))

    assert 2 in sizes
    assert fleet.size("starved") >= 4


def test_a_job_that_more_replicas_make_no_faster_is_tried_with_fewer_than_were_ever_measured():
    fleet = pool()
    fleet.submit("flat", scaling_by(-0.1), replicas=Bounds(min=1, max=8, start=2))
    fleet.live(60)
    fleet.submit("scales", scaling_by(0.9), replicas=Bounds(min=1, max=8, start=6))

    fleet.live(300)

    assert (fleet.size("flat"), fleet.size("scales")) == (1, 7)
    tried = fleet.plans("flat")[0].explanation
    assert tried.code == "tried-smaller"
    assert "4 replicas had 0.93" in tried.reason
