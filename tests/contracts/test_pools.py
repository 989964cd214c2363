"""The contract of ``PoolStore``."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from brain.errors import VersionMismatch
from brain.ports import Mark, Stores, Transaction
from brain.types.job import JobId, JobState
from brain.types.plan import PlanState
from brain.types.resources import NodeName, PoolName
from brain.types.sharing import JobShare, PoolRound, PoolShares, ProjectShare, Rival, StoredPolicy
from tests.builders import JOB, NOW, at, finished, job, plan, replica, throughput, world

POOL = PoolName("local")


def mark(stores: Stores) -> Mark:
    """The mark of the only job."""
    with stores.transaction(read_only=True) as t:
        return t.pools.marks(POOL)[JOB]


def policy(version: int = 0, **projects: ProjectShare) -> StoredPolicy:
    """What the admin wrote."""
    written = PoolShares(projects=projects or {"vision": ProjectShare(guaranteed=2, limit=4)})
    return StoredPolicy(pool=POOL, policy=written, by="ada", updated_at=NOW, version=version)


def share() -> JobShare:
    """A job that lost to another."""
    rival = Rival(accelerator="T4", replicas=4, gain=0.1, cost=0.2)
    return JobShare(
        job=JOB,
        name="digits",
        project="default",
        outcome="keeps",
        accelerator="T4",
        before=2,
        replicas=2,
        nodes=((NodeName("laptop"), 2),),
        next_best=rival,
        lost_to="tiny",
        reason="it keeps 2",
        plan=3,
    )


class TestMarks:
    def test_name_the_unfinished_jobs_of_a_pool_oldest_first(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("b", name="b", created_at=at(1)))
            t.jobs.add(job("c", name="c"))
            t.jobs.add(finished(job("d", name="d"), JobState.FAILED))
            t.jobs.add(job("e", name="e", pool=PoolName("other")))
            marks = t.pools.marks(POOL)
        assert list(marks) == ["c", "b"]
        assert marks[JobId("b")].state is JobState.QUEUED

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.jobs.put(t.jobs.get(JOB)),
            lambda t: t.plans.add(plan(2)),
            lambda t: t.plans.put(replace(t.plans.get(JOB, 1), version=1)),
            lambda t: t.worlds.put(world(2)),
            lambda t: t.worlds.put(world(1, stepping_at=at(1))),
            lambda t: t.worlds.put(world(1, ended_at=at(1))),
            lambda t: t.worlds.put_replicas(JOB, [replica(7)]),
        ],
    )
    def test_differ_once_anything_of_a_job_changed(
        self, stores: Stores, change: Callable[[Transaction], object]
    ) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
            t.plans.add(plan(1, state=PlanState.VERIFIED))
            t.worlds.put(world(1))
        before = mark(stores)
        with stores.transaction() as t:
            change(t)
        assert mark(stores).life != before.life

    def test_tell_samples_apart_from_the_rest(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
        before = mark(stores)
        with stores.transaction() as t:
            t.telemetry.add([throughput()], received_at=NOW)
        assert mark(stores).heard != before.heard
        assert mark(stores).life == before.life

    def test_stay_where_nothing_changed(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
            t.telemetry.add([throughput()], received_at=NOW)
        with stores.transaction() as t:
            t.jobs.add(job("b", name="b"))
            t.telemetry.add([throughput()], received_at=NOW)
            before = t.pools.marks(POOL)[JOB]
        assert mark(stores) == before


class TestPolicies:
    def test_are_returned_as_they_were_given_with_a_version(self, stores: Stores) -> None:
        with stores.transaction() as t:
            stored = t.pools.put_policy(policy())
            assert t.pools.policy(POOL) == stored == policy(1)
            assert t.pools.policies() == [stored]

    def test_are_not_replaced_by_who_saw_an_older_one(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.pools.put_policy(policy())
            with pytest.raises(VersionMismatch, match="at version 1, not 0"):
                t.pools.put_policy(policy())

    def test_are_dropped_once(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.pools.put_policy(policy())
            assert t.pools.remove_policy(POOL)
            assert not t.pools.remove_policy(POOL)
            assert t.pools.policy(POOL) is None


class TestRounds:
    def test_the_latest_of_a_pool_is_kept(self, stores: Stores) -> None:
        first = PoolRound(pool=POOL, decided_at=NOW, units={"T4": "GPU"}, value=1.0, bound=1.5)
        second = replace(
            first,
            decided_at=at(60),
            prices={"T4": 0.25},
            project_prices={"vision": 0.5},
            capacity={"T4": 8},
            used={"T4": 6},
            short={"vision": 1},
            shares=(share(),),
        )
        with stores.transaction() as t:
            assert t.pools.round(POOL) is None
            t.pools.put_round(first)
            t.pools.put_round(second)
            assert t.pools.round(POOL) == second
