"""Limits of projects hold where jobs begin, too: a round alone would come too late."""

from brain.inmemory import MemoryStores
from brain.types.allocation import Bounds
from brain.types.job import JobState, OptimizeMode
from brain.types.resources import Resources
from brain.types.roles import RoleSize
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


def beside_groups(*, workers: Resources, group: Resources, limit: int) -> Fleet:
    """Twelve GPUs, of which one project may have ``limit``, and a job of it whose group has eight
    replicas beside one worker.
    """
    fleet = Fleet({"a": 12}, kinds={"a": "A100"}, stores=MemoryStores())
    policy = PoolShares(projects={"vision": ProjectShare(limit=limit)})
    with fleet.stores.transaction() as tx:
        tx.pools.put_policy(
            StoredPolicy(pool=POOL, policy=policy, by="ada", updated_at=fleet.now, version=0)
        )
    fleet.submit(
        "mixed",
        scaling_by(0.9),
        project="vision",
        resources=workers,
        groups={"large": RoleSize(replicas=8, processes_per_replica=1, resources=group)},
        optimize_mode=OptimizeMode.SINGLE_JOB,
        replicas=Bounds(min=9, max=9),
    )
    return fleet


CORE, GPU = Resources(cpu_millis=1000), Resources(cpu_millis=1000, gpus=1)


def test_the_accelerators_of_a_group_count_towards_the_limit_of_a_project():
    fleet = beside_groups(workers=CORE, group=GPU, limit=4)

    fleet.turn()

    waits = fleet.job(fleet.jobs["mixed"].id)
    assert waits.state is JobState.QUEUED
    assert waits.reason == "project vision has 0 of the 4 GPUs that its pool allows it"


def test_a_group_without_accelerators_takes_none_of_the_limit_of_a_project():
    fleet = beside_groups(workers=GPU, group=CORE, limit=1)

    fleet.turn()

    assert fleet.job(fleet.jobs["mixed"].id).state is JobState.STARTING


def test_a_round_counts_what_jobs_outside_it_reserve_towards_the_limit_of_their_project():
    fleet = beside_groups(workers=CORE, group=GPU, limit=10)
    fleet.submit("grows", scaling_by(0.9), project="vision", resources=GPU)

    fleet.live(120)

    assert fleet.size("mixed") == 9
    assert fleet.size("grows") == 2, "8 of 10 GPUs are the group's, although 4 of 12 are idle"
