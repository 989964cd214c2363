"""Limits of projects hold where jobs begin, too: a round alone would come too late."""

from brain.inmemory import MemoryStores
from brain.types.allocation import Bounds
from brain.types.job import JobState
from brain.types.resources import Resources
from brain.types.sharing import PoolShares, ProjectShare, StoredPolicy
from tests.pool.rounds.fleet import POOL, Fleet, scaling_by


def limited(limit: int) -> Fleet:
    """Four cores, of which one project may have ``limit``, and two jobs of it."""
    fleet = Fleet({"a": 4}, stores=MemoryStores())
    policy = PoolShares(projects={"vision": ProjectShare(limit=limit)})
    with fleet.stores.transaction() as tx:
        tx.pools.put_policy(
            StoredPolicy(pool=POOL, policy=policy, by="ada", updated_at=fleet.now, version=0)
        )
    for name in ("first", "second"):
        fleet.submit(name, scaling_by(0.9), project="vision", replicas=Bounds(min=1, max=1))
    fleet.submit("other", scaling_by(0.9), replicas=Bounds(min=1, max=1))
    return fleet


def test_a_job_does_not_begin_where_its_project_has_all_that_it_may():
    fleet = limited(1)

    fleet.live(6)

    waits = fleet.job(fleet.jobs["second"].id)
    assert waits.state is JobState.QUEUED
    assert waits.reason == "project vision has 1 of the 1 cores that its pool allows it"
    assert (fleet.size("first"), fleet.size("other")) == (1, 1)


def test_it_begins_once_another_of_its_project_has_ended():
    fleet = limited(1)
    fleet.live(6)

    fleet.finish("first")
    fleet.live(6)

    assert fleet.size("second") == 1


def test_a_job_that_takes_nothing_that_is_counted_begins():
    fleet = limited(1)
    fleet.submit("free", scaling_by(0.9), project="vision", resources=Resources())

    fleet.live(6)

    assert fleet.size("free") == 1
