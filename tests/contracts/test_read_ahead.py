"""The contract of reading ahead: questions about many jobs at once are answered as one by one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from brain.errors import VersionMismatch
from brain.ports import JobChanges, SeriesStretch, Stores, Transaction
from brain.types.job import JobId
from brain.types.plan import Outcome, PlanState
from brain.types.resources import PoolName
from brain.types.world import ReplicaState
from tests.builders import at, job, plan, recommendation, replica, throughput, world
from tests.fleets import LOOKED_AT, fill, job_id

MINUTE = timedelta(minutes=1)
IDS = [job_id(number) for number in range(5)]
ENDS = dict.fromkeys(IDS, LOOKED_AT)


def ahead(tx: Transaction) -> None:
    """Read everything ahead, an unknown job too."""
    ids = [*IDS, JobId("unknown")]
    tx.jobs.read_ahead([*ids, "job-1", "job-4"], project="default")
    tx.plans.read_ahead(ids)
    tx.worlds.read_ahead(ids)
    tx.fits.read_ahead(ids, "other")
    tx.telemetry.read_ahead(dict.fromkeys(ids, LOOKED_AT), window=MINUTE)


QUESTIONS: dict[str, Callable[[Transaction, JobId], object]] = {
    "job": lambda tx, id: tx.jobs.get(id),
    "named job": lambda tx, id: tx.jobs.get(tx.jobs.get(id).document.name),
    "plans": lambda tx, id: tx.plans.of(id),
    "effective plans": lambda tx, id: tx.plans.effective(id),
    "changes of plans": lambda tx, id: tx.plans.changes(id),
    "active plan": lambda tx, id: tx.plans.active(id),
    "decision": lambda tx, id: tx.plans.decision(id),
    "latest world": lambda tx, id: tx.worlds.latest(id),
    "worlds": lambda tx, id: tx.worlds.of(id),
    "replicas": lambda tx, id: tx.worlds.replicas(id),
    "present replicas": lambda tx, id: tx.worlds.present(id),
    "fit": lambda tx, id: tx.fits.get(id, "other"),
    "last minute": lambda tx, id: tx.telemetry.throughput(id, since=LOOKED_AT - MINUTE),
    "of an epoch": lambda tx, id: tx.telemetry.throughput(id, since=LOOKED_AT - MINUTE, epoch=2),
    "last seconds": lambda tx, id: tx.telemetry.throughput(id, since=at(30.5)),
    "longer ago": lambda tx, id: tx.telemetry.throughput(id, since=at(-10_000)),
    "newest": lambda tx, id: tx.telemetry.newest(id),
    "newest of an epoch": lambda tx, id: tx.telemetry.newest(id, 1),
    "hosts": lambda tx, id: tx.telemetry.hosts(id, since=LOOKED_AT - MINUTE),
    "hosts longer ago": lambda tx, id: tx.telemetry.hosts(id, since=at(-10_000)),
    "losses": lambda tx, id: tx.telemetry.losses(id),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_was_read_ahead_is_answered_as_ever(stores: Stores, question: str) -> None:
    fill(stores, 5)
    ask = QUESTIONS[question]
    with stores.transaction(read_only=True) as tx:
        expected = [ask(tx, id) for id in IDS]
    with stores.transaction(read_only=True) as tx:
        ahead(tx)
        assert [ask(tx, id) for id in IDS] == expected
        assert [ask(tx, id) for id in IDS] == expected, "asked twice"


def test_series_of_many_jobs_are_the_series_of_each(stores: Stores) -> None:
    fill(stores, 5)
    asked = {
        id: SeriesStretch(metric, at(-500 + n), at(60 + n))
        for n, (id, metric) in enumerate(
            zip(IDS, ("examples_per_second", "cpu_share") * 3, strict=False)
        )
    }
    with stores.transaction() as tx:
        tx.telemetry.retire(raw_before=at(-200), means_before=at(-10_000), hours_before=at(-10_000))
    with stores.transaction(read_only=True) as tx:
        drawn = tx.telemetry.lines(asked, points=48)
        for id, it in asked.items():
            one = tx.telemetry.series(id, it.metric, since=it.since, until=it.until, points=48)
            assert list(drawn.get(id, ())) == one
        assert job_id(1) not in drawn


def test_the_steps_of_a_job_are_those_of_all_its_worlds_without_those_made_again(
    stores: Stores,
) -> None:
    with stores.transaction() as tx:
        for epoch, formed in ((1, 0), (2, 100), (3, 90_000), (4, 91_000)):
            tx.worlds.put(world(epoch, formed_at=at(formed), steps_redone=epoch - 1))
        tx.worlds.put(replace(world(1, formed_at=at(0)), job=job_id(9)))
        samples = [
            *(throughput(n, step=n) for n in (10, 99)),
            throughput(101, step=7_000, rank=1),
            throughput(300, step=50, epoch=2, source="hours before the next world"),
            throughput(90_950, step=70, epoch=3, source="long before the next world"),
            throughput(91_002, step=5, epoch=4, source="next"),
        ]
        tx.telemetry.add(samples, received_at=at(91_003))
    mine = samples[0].place.job
    expected = {mine: 99 + 50 - 1 + 70 - 2 + 5 - 3}

    def found() -> Mapping[JobId, int]:
        with stores.transaction(read_only=True) as tx:
            assert tx.telemetry.steps([]) == {}
            return tx.telemetry.steps([mine, job_id(9), JobId("unknown")])

    assert found() == expected
    for retired in (95, 80_000, 90_960, 200_000):
        with stores.transaction() as tx:
            tx.telemetry.retire(
                raw_before=at(retired), means_before=at(-10_000), hours_before=at(-10_000)
            )
        assert found() == expected, f"samples of the first {retired} s were deleted"


def test_unfinished_jobs_of_all_pools_are_those_of_each(stores: Stores) -> None:
    fill(stores, 8)
    with stores.transaction(read_only=True) as tx:
        every = tx.jobs.unfinished()
        assert every == [job for pool in tx.jobs.pools() for job in tx.jobs.unfinished(pool)]
        assert len(every) == 6


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_decision_that_is_stored_later_is_seen(stores: Stores, asked_before: bool) -> None:
    fill(stores, 5)
    with stores.transaction() as tx:
        tx.plans.read_ahead(IDS)
        if asked_before:
            assert tx.plans.decision(IDS[0]) == recommendation(1)
        tx.plans.decide(IDS[0], recommendation(3))
        assert [tx.plans.decision(id) for id in IDS[:3]] == [
            recommendation(3),
            None,
            recommendation(1),
        ]
        tx.plans.decide(IDS[1], recommendation(2))
        assert tx.plans.decision(IDS[1]) == recommendation(2)
        tx.plans.read_ahead(IDS)
        assert tx.plans.decision(IDS[0]) == recommendation(3)


def test_jobs_and_worlds_that_are_stored_after_they_were_read_are_seen(stores: Stores) -> None:
    fill(stores, 3)
    id, name = IDS[2], "job-2"
    with stores.transaction() as tx:
        before, world_before = tx.jobs.get(name), tx.worlds.latest(id)
        assert world_before is not None
        assert tx.worlds.present(id)
        stored = tx.jobs.put(replace(before, reason="it changed", failures=3))
        newer = replace(world_before, epoch=3, formed_at=at(50))
        tx.worlds.put(newer)
        tx.worlds.put_replicas(id, [replica(7)])
        with pytest.raises(VersionMismatch):
            tx.jobs.put(before)
        found = tx.jobs.get(id), tx.jobs.get(name), tx.worlds.latest(id), tx.worlds.present(id)
        assert found[:3] == (stored, stored, newer)
        assert replica(7) in found[3]
    with stores.transaction(read_only=True) as tx:
        again = tx.jobs.get(id), tx.jobs.get(name), tx.worlds.latest(id), tx.worlds.present(id)
    assert again == found


def test_replicas_that_are_stored_later_are_seen(stores: Stores) -> None:
    with stores.transaction() as tx:
        tx.worlds.read_ahead([job_id(0)])
        tx.worlds.put_replicas(job_id(0), [replica(3)])
        assert tx.worlds.replicas(job_id(0)) == [replica(3)]
        assert tx.worlds.present(job_id(0)) == [replica(3)]


def test_replicas_that_exited_are_present_only_if_they_left_an_unfit_node(stores: Stores) -> None:
    gone = replica(0, state=ReplicaState.EXITED, ended_at=at(5))
    left = replace(gone, id=1, unfit="it was slow")
    with stores.transaction() as tx:
        tx.worlds.put_replicas(job_id(0), [gone, left, replica(2)])
        assert tx.worlds.present(job_id(0)) == [left, replica(2)]


def test_plans_that_came_to_nothing_are_not_effective_and_count_as_changes(stores: Stores) -> None:
    states = {
        1: PlanState.VERIFIED,
        2: PlanState.EXPIRED,
        3: PlanState.SUPERSEDED,
        4: PlanState.REJECTED,
        5: PlanState.APPLIED,
        6: PlanState.FAILED,
        7: PlanState.EXPIRED,
    }
    with stores.transaction() as tx:
        tx.jobs.add(job(job_id(0)))
        for generation, state in states.items():
            tx.plans.add(plan(generation, job=job_id(0), state=state, version=generation))
        met = plan(8, job=job_id(0), state=PlanState.SUPERSEDED, outcome=Outcome(epoch=3))
        tx.plans.add(met)
        tx.plans.add(plan(9, job=job_id(0), state=PlanState.EXPIRED))
        kept = [each.generation for each in tx.plans.effective(job_id(0))]
        assert (kept, tx.plans.changes(job_id(0))) == ([9, 8, 5, 1], 28 + 2)
    with stores.transaction() as tx:
        before = [tx.plans.get(job_id(0), generation) for generation in kept]
        tx.plans.read_ahead([job_id(0)])
        assert tx.plans.effective(job_id(0)) == before
        tx.plans.put(replace(tx.plans.get(job_id(0), 5), state=PlanState.VERIFIED))
        assert tx.plans.changes(job_id(0)) == 28 + 2 + 1
        assert tx.plans.active(job_id(0)) is None
        assert not tx.plans.effective(job_id(1))


def test_changes_in_a_pool_are_those_of_each_unfinished_job_and_its_plans(stores: Stores) -> None:
    fill(stores, 8)
    local, other = PoolName("local"), PoolName("other")
    with stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get(IDS[1]), reason="it waits"))
        tx.jobs.put(replace(tx.jobs.get(IDS[2]), pool=other))
        tx.plans.put(tx.plans.get(IDS[0], 2))
    with stores.transaction(read_only=True) as tx:
        found = {pool: tx.plans.changes_in(pool) for pool in (local, other)}
        assert found == {
            pool: [
                JobChanges(
                    job=job.id,
                    project=job.document.project,
                    state=job.state,
                    changes=job.version + tx.plans.changes(job.id),
                )
                for job in tx.jobs.unfinished(pool)
            ]
            for pool in (local, other)
        }
        assert [len(found[pool]) for pool in (local, other)] == [5, 1]
        assert not tx.plans.changes_in(PoolName("elsewhere"))


def test_of_a_pools_plans_those_count_that_came_since_a_world_met_one(stores: Stores) -> None:
    fill(stores, 5)
    with stores.transaction() as tx:
        tx.plans.put(replace(tx.plans.get(IDS[2], 2), state=PlanState.REJECTED))
        tx.plans.add(plan(3, job=IDS[2], state=PlanState.APPLIED))
    with stores.transaction(read_only=True) as tx:
        found = tx.plans.since_reached(PoolName("local"))
        generations = {id: [each.generation for each in plans] for id, plans in found.items()}
        assert generations == {IDS[0]: [2, 1], IDS[2]: [3], IDS[4]: [2, 1]}
        assert found[IDS[0]] == tx.plans.of(IDS[0])
        assert not tx.plans.since_reached(PoolName("elsewhere"))


def test_of_a_pools_plans_those_that_came_to_nothing_are_left_out(stores: Stores) -> None:
    one, other = job_id(0), job_id(1)
    with stores.transaction() as tx:
        for id in (one, other):
            tx.jobs.add(job(id, name=f"job-{id[-1]}"))
        for generation, state in enumerate((PlanState.VERIFIED, PlanState.EXPIRED), 1):
            tx.plans.add(plan(generation, job=one, state=state))
        for generation, epoch in ((3, 7), (4, None)):
            outcome = Outcome(epoch=epoch)
            tx.plans.add(plan(generation, job=one, state=PlanState.SUPERSEDED, outcome=outcome))
        tx.plans.add(plan(5, job=one, state=PlanState.APPLYING))
        tx.plans.add(plan(1, job=other, state=PlanState.REJECTED))
    with stores.transaction(read_only=True) as tx:
        found = tx.plans.since_reached(PoolName("local"))
        assert {id: [each.generation for each in plans] for id, plans in found.items()} == {
            one: [5, 3, 1]
        }


def test_a_pools_live_replicas_are_those_of_each_unfinished_job(stores: Stores) -> None:
    fill(stores, 5)
    with stores.transaction(read_only=True) as tx:
        expected = {
            job.id: live
            for job in tx.jobs.unfinished(PoolName("local"))
            if (live := [r for r in tx.worlds.replicas(job.id) if r.ended_at is None])
        }
        assert expected
        assert tx.worlds.live(PoolName("local")) == expected
        assert not tx.worlds.live(PoolName("elsewhere"))
