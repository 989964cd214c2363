"""Reports of scalers: which end of a replica ends its job, and why a job still starts."""

import pytest

from brain import lifecycle
from brain.types.job import JobState
from brain.types.world import Replica, ReplicaExit, ReplicaState, WorldEvent
from tests import builders
from tests.test_lifecycle import exited, laptop, running
from tests.virtual import Laptop


def alive(id: int) -> Replica:
    return builders.replica(id)


@pytest.mark.parametrize(
    ("exit", "state"),
    [(ReplicaExit.SUCCEEDED, JobState.SUCCEEDED), (ReplicaExit.FAILED, JobState.FAILED)],
)
def test_a_job_ends_as_its_replica_did_even_if_a_replaced_one_ended_later(
    exit: ReplicaExit, state: JobState
):
    here = running()
    here.observe(alive(1))

    job = here.observe(
        exited(0, ReplicaExit.LOST, seconds=61, detail="its pod was deleted"),
        exited(1, exit, seconds=60),
    )

    assert job.state is state


def test_a_success_does_not_end_a_job_while_another_replica_is_alive():
    here = running()

    job = here.observe(
        exited(0, ReplicaExit.LOST, seconds=61), exited(1, ReplicaExit.SUCCEEDED), alive(2)
    )

    assert job.state is JobState.DEGRADED


def test_a_job_no_longer_waits_for_what_its_replicas_have_got():
    here = laptop()
    here.turn()
    here.observe(waiting="2 of 2 replicas wait for room")

    job = here.observe(*(alive(id) for id in range(here.wish().replicas)))

    assert job.state is JobState.STARTING
    assert job.reason == "1 replica exists, and has not formed a world yet"


def test_a_job_still_waits_while_some_of_its_replicas_are_missing():
    here = laptop(replicas=builders.Bounds(min=2, max=4))
    here.turn()
    here.observe(alive(0), waiting="1 of 2 replicas waits for room")

    assert here.observe(alive(0)).reason == "1 of 2 replicas waits for room"


@pytest.mark.parametrize("exit", [ReplicaExit.LEFT, ReplicaExit.LOST, ReplicaExit.FAILED])
def test_a_resumed_job_waits_on_when_the_ends_of_its_replicas_are_told(exit: ReplicaExit):
    here = running()
    here.observe(builders.replica(0))
    with here.transaction() as (tx, job):
        lifecycle.suspend(tx, job, by="ada", now=here.now)
    here.report(WorldEvent.STOPPED)
    with here.transaction() as (tx, job):
        resumed = lifecycle.resume(tx, job, by="ada", now=here.now)

    assert here.observe(exited(0, exit)) == resumed
    with here.transaction() as (tx, job):
        assert [one.state for one in tx.worlds.replicas(job.id)] == [ReplicaState.EXITED]


def started_again() -> Laptop:
    """A job that starts again after a suspension, before the end of its replica 0 is reported."""
    here = running()
    here.observe(alive(0))
    with here.transaction() as (tx, job):
        lifecycle.suspend(tx, job, by="ada", now=here.now)
    here.report(WorldEvent.STOPPED)
    with here.transaction() as (tx, job):
        lifecycle.resume(tx, job, by="ada", now=here.now)
    here.turn()
    assert here.job.state is JobState.STARTING
    return here


@pytest.mark.parametrize("exit", [ReplicaExit.LEFT, ReplicaExit.LOST, ReplicaExit.FAILED])
def test_the_end_of_a_replica_from_before_a_suspension_does_not_end_the_resumed_job(
    exit: ReplicaExit,
):
    here = started_again()
    before = here.job

    assert here.observe(exited(0, exit)) == before
    assert here.observe(exited(0, exit), alive(1)).state is JobState.STARTING


@pytest.mark.parametrize("seconds", [50, 70])
def test_a_resumed_job_ends_as_its_new_replica_did_even_if_an_earlier_one_ended_later(seconds: int):
    here = started_again()
    here.observe(alive(0), exited(1, ReplicaExit.FAILED, seconds=60, detail="the new one"))

    job = here.observe(
        exited(0, ReplicaExit.FAILED, seconds=seconds, detail="the earlier one"),
        exited(1, ReplicaExit.FAILED, seconds=60, detail="the new one"),
    )

    assert (job.state, job.reason) == (JobState.FAILED, "the new one")
