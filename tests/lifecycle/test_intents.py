"""Requests to suspend, resume and cancel a job, and plans that its state or bounds concern."""

import pytest

from brain import lifecycle
from brain.errors import Conflict
from brain.types.job import Job, JobState
from brain.types.world import ReplicaExit, WorldEvent
from tests import builders
from tests.test_lifecycle import exited, laptop, running
from tests.virtual import Laptop


def act(here: Laptop, name: str) -> Job:
    with here.transaction() as (tx, job):
        done: Job = getattr(lifecycle, name)(tx, job, by="ada", now=here.now)
        return done


def stopped(here: Laptop, *, replicas: int) -> Laptop:
    """Suspend a job, and let its coordinator and its scaler say that it has stopped."""
    here.observe(*(builders.replica(id) for id in range(replicas)))
    act(here, "suspend")
    assert here.report(WorldEvent.STOPPED).state is JobState.SUSPENDED
    here.observe(*(exited(id, ReplicaExit.LEFT) for id in range(replicas)))
    return here


@pytest.mark.parametrize("verbs", [("suspend",), ("cancel",), ("suspend", "resume")])
def test_other_processes_hear_of_a_request_before_the_job_has_stopped(verbs: tuple[str, ...]):
    here = running()

    for verb in verbs:
        act(here, verb)

    assert here.events("job.asked") == [f"job.asked-to-{verb}" for verb in verbs]


def test_a_request_that_is_fulfilled_at_once_is_one_event():
    here = laptop()

    act(here, "cancel")

    assert here.events("job.") == ["job.Queued", "job.Cancelled"]


def test_a_job_that_a_person_suspends_is_not_stopped_for_another_one_as_well():
    here = running()
    act(here, "suspend")
    with here.transaction() as (tx, job), pytest.raises(Conflict, match="is being suspended"):
        lifecycle.preempt(tx, job, "high starts", here.now)
    stopped(here, replicas=1).turn()

    assert here.job.state is JobState.SUSPENDED
