"""The contracts of ``WorldStore``, ``NodeStore``, ``FitStore`` and ``LeaseStore``."""

from dataclasses import replace

import pytest

from brain.errors import UnknownNode
from brain.ports import StoredFit, Stores
from brain.types.diagnosis import Attachment, Diagnosis, FailureKind
from brain.types.explanation import Evidence
from brain.types.job import JobId, JobState
from brain.types.order import Order
from brain.types.pool import PoolLease
from brain.types.resources import NodeName, PoolName, Resources
from brain.types.world import Cause, ReplicaExit, ReplicaState
from tests.builders import JOB, NOW, at, job, node, replica, world

POOL = PoolName("local")


class TestWorldStore:
    def test_returns_every_field_as_it_was_given(self, stores: Stores) -> None:
        full = world(
            3,
            replicas=2,
            cause=Cause.PLAN,
            stepping_at=at(1),
            ended_at=at(2),
            downtime_seconds=1.25,
            steps_redone=7,
            elastic=True,
            detail="grown",
            diagnosis=Diagnosis(
                kind=FailureKind.HANG,
                sentence="no worker moved",
                node=NodeName("laptop"),
                evidence=(Evidence(label="quiet", value="300 s"),),
                attachments=(Attachment(name="stacks", text="File …"),),
            ),
        )
        with stores.transaction() as t:
            t.worlds.put(full)
            assert t.worlds.latest(JOB) == full

    def test_replaces_the_world_of_an_epoch(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.worlds.put(world(1, replicas=2))
            t.worlds.put(world(1, stepping_at=at(1)))
            assert t.worlds.of(JOB) == [world(1, stepping_at=at(1))]

    def test_lists_the_highest_epoch_first(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for epoch in (1, 10, 2):
                t.worlds.put(world(epoch))
            latest = t.worlds.latest(JOB)
            assert [each.epoch for each in t.worlds.of(JOB)] == [10, 2, 1]
        assert latest
        assert latest.epoch == 10

    def test_knows_no_world_of_a_job_that_never_formed_one(self, stores: Stores) -> None:
        with stores.transaction() as t:
            assert t.worlds.latest(JOB) is None

    def test_replaces_named_replicas_and_keeps_the_others(self, stores: Stores) -> None:
        gone = replica(
            1,
            state=ReplicaState.EXITED,
            exit=ReplicaExit.LEFT,
            exit_code=0,
            ended_at=at(5),
            unfit="it is slow",
            resources=Resources(cpu_millis=500, memory_bytes=2**40),
            unenforced="CPU: no control group",
        )
        with stores.transaction() as t:
            t.worlds.put_replicas(JOB, [replica(10), replica(1), replica(1, role="ps")])
            t.worlds.put_replicas(JOB, [gone])
            found = t.worlds.replicas(JOB)
        assert found == [replica(1, role="ps"), gone, replica(10)]

    def test_finds_what_unfinished_jobs_have_on_nodes(self, stores: Stores) -> None:
        here, there = NodeName("here"), NodeName("there")
        with stores.transaction() as t:
            t.jobs.add(job("j1", name="runs"))
            t.jobs.add(job("j2", name="ended", state=JobState.SUCCEEDED))
            t.jobs.add(job("j3", name="elsewhere"))
            left = replica(3, node=here, state=ReplicaState.EXITED)
            sick = replace(left, id=4, unfit="its GPU fell off the bus")
            mine = [
                replica(0, node=there),
                sick,
                left,
                replica(2, node=here),
                replica(1, node=here),
            ]
            t.worlds.put_replicas(JobId("j1"), mine)
            t.worlds.put_replicas(JobId("j2"), [replica(0, node=here)])
            t.worlds.put_replicas(JobId("j3"), [replica(0, node=there)])
            found = [replica(1, node=here), replica(2, node=here), sick]
            assert t.worlds.on([here]) == {"j1": found}
            assert t.worlds.on([]) == {}

    def test_takes_a_report_of_no_replicas(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.worlds.put_replicas(JOB, [])
            assert t.worlds.replicas(JOB) == []


class TestNodeStore:
    def test_replaces_a_node_by_name(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.nodes.put(node())
            t.nodes.put(node(cpus=8, slots=4, seen_at=at(9), schedulable=False))
            found = t.nodes.get(NodeName("laptop"))
        assert found == node(cpus=8, slots=4, seen_at=at(9), schedulable=False)

    def test_lists_nodes_of_a_pool_by_name(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for name, pool in (("b", "x"), ("B", "x"), ("a", "y")):
                t.nodes.put(node(name, pool=pool))
            assert [each.name for each in t.nodes.of(PoolName("x"))] == ["B", "b"]
            assert [each.name for each in t.nodes.of()] == ["B", "a", "b"]
            assert t.nodes.pools() == ["x", "y"]

    def test_pages_nodes_in_an_order(self, stores: Stores) -> None:
        order = Order(("pool", "name"))
        with stores.transaction() as t:
            for name, pool in (("b", "x"), ("a", "y"), ("B", "x")):
                t.nodes.put(node(name, pool=pool))
            first = t.nodes.page(after=None, size=2)
            by_pool = t.nodes.page(after=("y", "a"), size=2, order=order)
            assert [each.name for each in first] == ["B", "a"]
            assert [each.name for each in by_pool] == ["b", "B"]
            assert [each.name for each in t.nodes.page(after=("a",), size=2)] == ["b"]

    def test_removes_nodes_by_name(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for name in ("a", "b", "c"):
                t.nodes.put(node(name))
            t.nodes.remove([NodeName("a"), NodeName("c"), NodeName("never")])
            assert [each.name for each in t.nodes.of()] == ["b"]

    def test_knows_no_node_that_never_registered(self, stores: Stores) -> None:
        with stores.transaction() as t, pytest.raises(UnknownNode, match="laptop"):
            t.nodes.get(NodeName("laptop"))


class TestFitStore:
    def test_keeps_the_latest_fit_of_each_kind(self, stores: Stores) -> None:
        fit = StoredFit(job=JOB, kind="throughput", parameters='{"a": 1}', fitted_at=NOW)
        newer = replace(fit, parameters='{"a": 2}', fitted_at=at(1))
        with stores.transaction() as t:
            t.fits.put(fit)
            t.fits.put(newer)
            assert t.fits.get(JOB, "throughput") == newer
            assert t.fits.get(JOB, "memory") is None


def held(stores: Stores, holder: str, *, now: float, seconds: float = 10) -> PoolLease | None:
    """Try to hold the pool from ``now`` on."""
    with stores.transaction() as t:
        return t.leases.acquire(POOL, holder, until=at(now + seconds), now=at(now))


class TestLeaseStore:
    def test_is_held_by_one_at_a_time(self, stores: Stores) -> None:
        assert held(stores, "a", now=0) == PoolLease(
            pool=POOL, holder="a", term=1, expires_at=at(10)
        )
        assert held(stores, "b", now=9) is None

    def test_is_kept_by_its_holder_in_the_same_term(self, stores: Stores) -> None:
        held(stores, "a", now=0)
        kept = held(stores, "a", now=50)
        assert kept
        assert (kept.term, kept.expires_at) == (1, at(60))

    def test_is_taken_over_in_a_new_term_once_expired(self, stores: Stores) -> None:
        held(stores, "a", now=0)
        taken = held(stores, "b", now=10)
        assert taken
        assert (taken.holder, taken.term) == ("b", 2)

    def test_is_free_at_once_when_let_go_and_its_term_goes_on(self, stores: Stores) -> None:
        held(stores, "a", now=0)
        with stores.transaction() as t:
            t.leases.release(POOL, "a")
        taken = held(stores, "b", now=1)
        assert taken
        assert taken.term == 2

    def test_is_not_let_go_by_another(self, stores: Stores) -> None:
        held(stores, "a", now=0)
        with stores.transaction() as t:
            t.leases.release(POOL, "b")
        assert held(stores, "b", now=1) is None

    def test_is_free_when_the_clock_was_set_back_an_hour(self, stores: Stores) -> None:
        held(stores, "a", now=3600)
        taken = held(stores, "b", now=0)
        assert taken
        assert (taken.holder, taken.expires_at) == ("b", at(10))

    def test_is_kept_from_a_brain_whose_clock_is_a_little_behind(self, stores: Stores) -> None:
        held(stores, "a", now=5)
        assert held(stores, "b", now=0) is None

    def test_is_apart_for_each_pool(self, stores: Stores) -> None:
        held(stores, "a", now=0)
        with stores.transaction() as t:
            other = t.leases.acquire(PoolName("other"), "b", until=at(9), now=NOW)
        assert other
        assert other.term == 1
