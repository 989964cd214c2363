"""A job that begins small comes to its size in minutes, and still does not flap."""

from dataclasses import replace
from typing import Any

from brain.types.allocation import Bounds
from brain.types.plan import Verdict
from brain.types.sharing import PoolShares, ProjectShare, StoredPolicy
from tests.pool.rounds.fleet import POOL, QUICK, Fleet, scaling_by


def pool(**changed: Any) -> Fleet:
    """An empty pool of eight cores in which a change is followed by five minutes of rest."""
    return Fleet({"a": 8}, settings=replace(QUICK, shared_dwell_seconds=300.0, **changed))


def test_a_job_that_keeps_its_promises_doubles_without_a_rest_between():
    fleet = pool()
    fleet.submit("good", scaling_by(0.97), replicas=Bounds(min=1, max=8, start=1))

    fleet.live(120)

    assert fleet.size("good") == 8
    assert [plan.outcome.verdict for plan in fleet.plans("good")] == [Verdict.KEPT] * 3


def test_two_that_grow_into_idle_accelerators_do_not_wait_for_each_other():
    fleet = pool(moved_share=0.0)
    for name in ("one", "other"):
        fleet.submit(name, scaling_by(0.97), replicas=Bounds(min=1, max=2, start=1))

    turns = fleet.live(16)

    grown = [len(turn.plans) for turn in turns if turn.plans]
    assert max(grown) == 2


def test_a_job_whose_owner_left_that_open_begins_with_half_of_what_is_idle():
    fleet = pool()
    fleet.submit("first", scaling_by(0.97), replicas=Bounds(min=1, max=8))
    fleet.live(2)
    fleet.submit("second", scaling_by(0.97), replicas=Bounds(min=1, max=8))
    fleet.live(2)

    assert (fleet.size("first"), fleet.size("second")) == (4, 2)


def test_a_job_begins_with_what_its_owner_named_where_that_is_idle():
    fleet = pool()
    fleet.submit("named", scaling_by(0.97), replicas=Bounds(min=1, max=8, start=6))

    fleet.live(2)

    assert fleet.size("named") == 6


def test_a_job_begins_with_fewer_than_its_owner_named_rather_than_wait():
    fleet = pool()
    for name in ("first", "second"):
        fleet.submit(name, scaling_by(0.97), replicas=Bounds(min=1, max=8, start=6))
        fleet.live(2)

    assert (fleet.size("first"), fleet.size("second")) == (6, 1)


def test_where_people_approve_a_job_waits_for_what_its_owner_named():
    fleet = pool()
    for name in ("first", "second"):
        fleet.submit(name, scaling_by(0.97), mode="approve", replicas=Bounds(min=1, max=8, start=6))
        fleet.live(2)

    assert (fleet.size("first"), fleet.size("second")) == (6, 0)


def test_a_limit_that_bars_the_chosen_size_does_not_keep_a_job_from_beginning():
    fleet = pool()
    policy = PoolShares(projects={"vision": ProjectShare(limit=2)})
    with fleet.stores.transaction() as tx:
        tx.pools.put_policy(
            StoredPolicy(pool=POOL, policy=policy, by="ada", updated_at=fleet.now, version=0)
        )
    fleet.submit("small", scaling_by(0.97), project="vision", replicas=Bounds(min=1, max=8))

    fleet.live(2)

    assert fleet.size("small") == 1


def test_what_an_owner_says_and_what_a_person_approves_begins_as_it_says():
    fleet = pool()
    fleet.submit("said", scaling_by(0.97), replicas=Bounds(min=1, max=8, start=1))
    fleet.submit("asked", scaling_by(0.97), mode="approve", replicas=Bounds(min=1, max=8))

    fleet.live(2)

    assert (fleet.size("said"), fleet.size("asked")) == (1, 1)
