"""Nodes that their scaler no longer reports, and a scaler that reports nothing."""

from dataclasses import replace
from datetime import timedelta

import pytest

from brain import cycle, lifecycle
from brain.errors import BadInput
from brain.lifecycle.capacity import room
from brain.pool.rounds import Memo
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, JobState, OptimizeMode, PolicyMode
from brain.types.world import ReplicaState
from tests import builders
from tests.virtual import POOL, Laptop, scaling_by

AUTO = ApprovalPolicy(mode=PolicyMode.AUTO)


def beside_a_large_node() -> Laptop:
    """A queued job, a node of two cores, and one of 64."""
    here = Laptop(scaling_by(0.9), cpus=2)
    with here.stores.transaction() as tx:
        tx.nodes.put(builders.node("large", cpus=64))
    return here


def rooms(here: Laptop) -> tuple[int, int]:
    """The room for the job, by the stores and by a turn's cache."""
    memo = Memo(POOL)
    with here.transaction() as (tx, job):
        memo.read(tx, here.now)
        return room(tx, job, here.now), memo.room(tx, job, here.now)


def training(replicas: int = 2) -> Laptop:
    """A job that runs on a pool of four cores, where it would grow."""
    here = Laptop(scaling_by(0.9), cpus=4, policy=AUTO, replicas=Bounds(min=1, max=4, start=2))
    here.start()
    here.observe(*(builders.replica(id) for id in range(replicas)))
    return here


def test_a_node_that_its_scaler_no_longer_reports_is_no_room():
    here = beside_a_large_node()
    assert rooms(here) == (66, 66)
    here.gone = {"large"}

    assert rooms(here.wait(59)) == (66, 66)
    assert rooms(here.wait(1)) == (2, 2)


def test_a_node_that_is_back_is_room_at_once():
    here = beside_a_large_node()
    here.gone = {"large"}
    here.wait(3600)
    here.gone = set()

    assert rooms(here.wait(0)) == (66, 66)


def test_a_cache_that_lasts_notices_silence_and_return():
    here, memo = beside_a_large_node(), Memo(POOL)
    here.gone = {"large"}
    found = []
    for _ in range(3):
        with here.transaction() as (tx, job):
            memo.read(tx, here.now)
            found.append(memo.room(tx, job, here.now))
        here.wait(60)
        here.gone = set() if len(found) == 2 else here.gone
        here.wait(0)

    assert found == [66, 2, 66]


def test_a_job_that_only_a_silent_node_could_hold_is_refused():
    here = beside_a_large_node()
    here.gone = {"large"}
    here.wait(60)

    with pytest.raises(BadInput, match=r"room for 2 replicas; .* the pool has 2 000 mCPU"):
        here.submit(builders.document("wide", replicas=Bounds(min=3, max=9)), id="j2")


def test_a_pool_that_is_silent_as_a_whole_is_judged_as_it_was():
    """Its scaler is away: nothing says that the nodes are."""
    here = beside_a_large_node()
    here.gone = {"large", "laptop"}
    here.wait(3600)

    here.submit(builders.document("wide", replicas=Bounds(min=3, max=9)), id="j2")
    with pytest.raises(BadInput, match="room for 66 replicas"):
        here.submit(builders.document("wider", replicas=Bounds(min=99, max=99)), id="j3")


def test_a_job_waits_while_its_pool_is_silent_and_says_so():
    here = Laptop(scaling_by(0.9))
    here.gone = {"laptop"}
    assert here.wait(60).turn().admitted == ()
    assert here.job.reason == "no node of pool local reports; check that the pool's scaler runs"

    here.gone = set()
    assert here.wait(1).turn().admitted == (here.id,)


def test_a_running_job_keeps_its_size_while_its_scaler_is_silent():
    here = training()
    here.gone = {"laptop"}
    here.wait(60)
    memo = Memo(POOL)
    for _ in range(100):
        here.train(2)
        cycle.turn(here.stores, POOL, here.settings, here.now, memo=memo).checked()
        here.coordinate()

    assert rooms(here) == (2, 2)
    assert (here.job.state, here.size, here.plans) == (JobState.RUNNING, 2, [])

    here.gone = set()
    here.live(60)
    assert [plan.target.replicas for plan in here.plans][-1:] == [4]


@pytest.mark.parametrize("mode", list(OptimizeMode))
def test_no_mode_takes_replicas_from_a_silent_node(mode: OptimizeMode):
    here = training()
    with here.transaction() as (tx, job):
        tx.jobs.put(replace(job, document=replace(job.document, optimize_mode=mode)))
    here.gone = {"laptop"}
    here.wait(60).live(100)

    assert (here.job.state, here.size, here.plans) == (JobState.RUNNING, 2, [])


def test_a_node_that_is_silent_for_a_day_leaves_the_list():
    here = beside_a_large_node()
    here.gone = {"large"}
    here.wait(timedelta(hours=23).total_seconds())
    with here.stores.transaction() as tx:
        assert lifecycle.forget_gone(tx, here.now) == 0
    here.wait(3600)

    with here.stores.transaction() as tx:
        assert lifecycle.forget_gone(tx, here.now) == 1
        assert [node.name for node in tx.nodes.of()] == ["laptop"]


def test_a_node_stays_in_the_list_while_replicas_count_there():
    here = training()
    here.gone = {"laptop"}
    here.wait(timedelta(days=3).total_seconds())
    with here.stores.transaction() as tx:
        assert lifecycle.forget_gone(tx, here.now) == 0

    ended = {"state": ReplicaState.EXITED, "ended_at": here.now}
    here.observe(*(builders.replica(id, **ended) for id in range(2)))
    with here.stores.transaction() as tx:
        assert lifecycle.forget_gone(tx, here.now) == 1


def test_a_job_may_shrink_although_others_reserve_all_of_its_nodes() -> None:
    here = Laptop(scaling_by(0.9), replicas=Bounds(min=1, max=2, start=2)).start().train(60)
    assert here.size == 2
    with here.transaction() as (tx, job):
        tx.nodes.put(builders.node(cpus=0, seen_at=here.now))
        tx.worlds.put_replicas(job.id, [builders.replica(0), builders.replica(1)])
        plan = lifecycle.request(tx, job, 1, by="ada", why="", settings=here.settings, now=here.now)
    assert plan.target.replicas == 1


def test_a_job_waits_for_nodes_that_accept_no_replicas_now() -> None:
    here = Laptop(scaling_by(0.9), cpus=2)
    closed = replace(builders.node(cpus=2, seen_at=here.now), schedulable=False)
    with here.transaction() as (tx, _):
        tx.nodes.put(closed)
    document = builders.document(name="later")
    id = here.submit(document, id="0197f000-0000-7000-8000-0000000000ff")
    here.turn()
    with here.transaction() as (tx, _):
        assert tx.jobs.get(id).state is JobState.QUEUED
        assert "has room for 0 of" in tx.jobs.get(id).reason
        tx.nodes.put(replace(closed, capacity=closed.capacity.times(4), schedulable=True))
    here.turn()
    with here.transaction() as (tx, _):
        assert tx.jobs.get(id).state is JobState.STARTING
