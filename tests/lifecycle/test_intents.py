"""Requests to suspend, resume and cancel a job, and plans that its state or bounds concern."""

from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import BadInput, Conflict
from brain.types.allocation import Bounds
from brain.types.job import Job, JobState
from brain.types.plan import PlanState
from brain.types.world import ReplicaExit, WorldEvent
from tests import builders
from tests.test_lifecycle import exited, laptop, request, running
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


def crowded(here: Laptop, replicas: int) -> Laptop:
    """Let another job take so many of the four cores."""
    bounds = Bounds(min=replicas, max=replicas)
    here.submit(builders.document("second", replicas=bounds, priority=5), id="j2")
    here.turn()
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


def test_a_job_that_was_suspended_during_a_resize_starts_with_a_size_that_fits():
    here = running()
    request(here, 2)
    here.coordinate()
    request(here, 4)
    assert here.plans[0].state is PlanState.APPLYING
    crowded(stopped(here, replicas=2), 2)
    act(here, "resume")
    here.turn()
    assert here.job.reason == "pool local has room for 2 of 4 replicas now"

    request(here, 2)
    here.turn()

    assert here.plans[1].state is PlanState.SUPERSEDED
    assert (here.job.state, here.wish().replicas) == (JobState.STARTING, 2)
    here.coordinate().turn()
    assert (here.job.state, here.plans[0].state) == (JobState.RUNNING, PlanState.APPLIED)


def test_a_job_that_was_suspended_during_a_resize_may_be_edited():
    here = running()
    request(here, 2)
    stopped(here, replicas=1)

    with here.transaction() as (tx, job):
        given: dict[str, Any] = {"settings": here.settings, "now": here.now, "why": "", "by": "ada"}
        plan = lifecycle.edit(tx, job, cpu_millis=2000, memory_bytes=None, replicas=None, **given)

    assert (plan.state, here.plans[1].state) == (PlanState.VERIFIED, PlanState.SUPERSEDED)
    assert here.job.resources.cpu_millis == 2000


def test_a_queued_job_that_is_resized_names_the_command_by_which_it_starts_with_the_size():
    here = crowded(laptop(replicas=Bounds(min=1, max=4, start=3)), 2)
    assert here.job.reason == "pool local has room for 2 of 3 replicas now"

    assert "run `brain edit digits --replicas 2`" in request(here, 2).explanation.next_step
    given: dict[str, Any] = {"settings": here.settings, "now": here.now, "why": "", "by": "ada"}
    with here.transaction() as (tx, job):
        lifecycle.edit(tx, job, cpu_millis=None, memory_bytes=None, replicas=2, **given)
    here.turn()

    assert (here.job.state, here.wish().replicas) == (JobState.STARTING, 2)


def bounded(here: Laptop, most: int) -> None:
    """Lower the bounds of a job, as an owner does in the object of a cluster."""
    with here.transaction() as (tx, job):
        document = replace(job.document, replicas=Bounds(min=1, max=most))
        tx.jobs.put(replace(job, document=document))


def test_a_proposal_beyond_bounds_that_were_lowered_since_is_not_approved():
    here = running()
    with here.transaction() as (tx, job):
        proposal = builders.plan(1, job=job.id, replicas=4)
        tx.plans.add(proposal)
    bounded(here, 2)

    given: dict[str, Any] = {"version": None, "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, _), pytest.raises(BadInput, match="not within the bounds 1:2"):
        lifecycle.approve(tx, proposal, by="ada", **given)


def test_a_size_beyond_bounds_that_were_lowered_since_does_not_come_back():
    here = running()
    request(here, 4)
    here.coordinate()
    request(here, 2)
    here.coordinate()
    bounded(here, 2)

    given: dict[str, Any] = {"version": None, "why": "", "settings": here.settings}
    standing = here.plans[0]
    with here.transaction() as (tx, _), pytest.raises(BadInput, match="not within the bounds"):
        lifecycle.rollback(tx, standing, by="ada", now=here.now, **given)
