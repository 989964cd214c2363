"""What an operator without a Brain makes of objects and of reports. Pure."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import calls
from brain.errors import Unavailable, UnknownJob
from brain.types.document import JobDocument
from brain.types.job import Intent, JobCopy, JobId, JobState
from brain.types.resources import NodeName, PoolName
from brain.types.world import Replica, ReplicaExit, ReplicaReport, ReplicaState
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.without_brain import OwnJob, OwnRule, begun, reported
from tests.builders import NOW
from tests.kubernetes import jobs

ID = JobId("uid-1")


def own(**fields: Any) -> OwnJob:
    given = {"id": ID, "document": JobDocument(name="digits", image="i"), "owner": "team"}
    given |= {"size": 2, "created_at": NOW, "updated_at": NOW}
    return OwnJob(**(given | fields))


def replica(id: int, exit: ReplicaExit | None = None, **fields: Any) -> Replica:
    state = ReplicaState.RUNNING if exit is None else ReplicaState.EXITED
    ended = None if exit is None else NOW + timedelta(seconds=id)
    given = {"id": id, "node": NodeName("n0"), "state": state, "generation": 0}
    given |= {"started_at": NOW, "ended_at": ended, "exit": exit}
    return Replica(**(given | fields))


def after(job: OwnJob, *replicas: Replica, waiting: str | None = None) -> OwnJob:
    report = ReplicaReport(job=ID, replicas=replicas, waiting=waiting, at=NOW)
    return reported(job, report, NOW)


def of_status(**status: Any) -> OwnJob:
    obj = jobs.job("brain-run", "t.py", replicas=2)
    obj["metadata"]["uid"] = ID
    read = read_elastic_job(obj | {"status": status})
    return begun(read, job_document(read), "team", NOW)


def test_a_new_job_is_admitted_with_the_size_of_its_spec() -> None:
    job = of_status()
    assert (job.state, job.size, job.intent) == (JobState.STARTING, 2, Intent.RUN)


def test_a_job_keeps_the_size_and_the_generation_that_a_brain_gave_it() -> None:
    roles = [{"name": "worker", "desired": 3}]
    job = of_status(phase="Running", roles=roles, generation=4, worldEpoch=7)
    assert (job.state, job.size, job.generation, job.epoch) == (JobState.RUNNING, 3, 4, 7)


def test_a_job_that_ended_is_not_begun_again() -> None:
    assert of_status(phase="Failed", message="exit code 1").state is JobState.FAILED


def test_a_suspended_job_stays_suspended() -> None:
    job = of_status(phase="Suspended", roles=[{"name": "worker", "desired": 0}])
    assert (job.state, job.intent, job.size) == (JobState.SUSPENDED, Intent.SUSPEND, 2)


@pytest.mark.parametrize(
    ("exit", "state"),
    [
        (ReplicaExit.SUCCEEDED, JobState.SUCCEEDED),
        (ReplicaExit.FAILED, JobState.FAILED),
        (ReplicaExit.LOST, JobState.STARTING),
    ],
)
def test_the_last_replica_says_how_a_job_ended(exit: ReplicaExit, state: JobState) -> None:
    running = after(own(), replica(0), replica(1))
    assert running.state is JobState.RUNNING
    ended = after(running, replica(0, ReplicaExit.LOST), replica(1, exit))
    assert ended.state is state


def test_a_replica_that_succeeded_ended_the_job_whatever_became_of_the_others() -> None:
    running = after(own(), replica(0), replica(1))
    done = replica(0, ReplicaExit.SUCCEEDED)
    assert after(running, done).state is JobState.SUCCEEDED
    assert after(running, done, replica(1, ReplicaExit.LOST)).state is JobState.SUCCEEDED


def test_fewer_than_are_due_are_told_as_degraded() -> None:
    job = after(after(own(), replica(0), replica(1)), replica(1, ReplicaExit.LOST))
    assert (job.state, job.reason) == (JobState.DEGRADED, "1 of 2 replicas run")


def test_a_job_that_loses_all_its_replicas_too_often_is_given_up() -> None:
    lost = own(failures=10, state=JobState.RUNNING)
    job = after(lost, replica(0, ReplicaExit.LOST))
    assert (job.state, job.failures) == (JobState.FAILED, 11)


def test_replicas_that_left_for_a_suspension_are_no_loss_after_it() -> None:
    asked = replace(own(state=JobState.RUNNING), intent=Intent.SUSPEND)
    still = after(asked, replica(0, ReplicaExit.LEFT), replica(1, ReplicaExit.LEFT))
    assert still.state is JobState.SUSPENDED
    resumed = replace(still, intent=Intent.RUN, state=JobState.STARTING)
    assert after(resumed, waiting="no room").reason == "no room"
    assert after(resumed).failures == 0


def test_jobs_that_are_not_known_are_left_alone() -> None:
    rule = OwnRule("kubernetes", lambda job: None, lambda: NOW)
    with pytest.raises(UnknownJob):
        rule.send(calls.job("other"))
    assert rule.send(calls.jobs()).items == ()


def test_a_job_of_another_mode_is_not_admitted() -> None:
    document = {"name": "digits", "image": "i", "optimizeMode": "cluster"}
    copy = JobCopy(document=document, pool=PoolName("kubernetes"), owner="team")
    rule = OwnRule("kubernetes", lambda job: None, lambda: NOW)
    with pytest.raises(Unavailable, match="set optimizeMode: manual"):
        rule.send(calls.mirror(ID, copy))
