"""What an operator without a Brain makes of objects and of reports. Pure."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import calls, wire
from brain.client import Call
from brain.errors import Unavailable, UnknownJob
from brain.types.document import JobDocument
from brain.types.job import Intent, JobCopy, JobId, JobState
from brain.types.resources import NodeName, PoolName, Resources
from brain.types.world import Replica, ReplicaExit, ReplicaReport, ReplicaState
from brain.views import JobEdit, ResizeRequest
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.own_job import OwnJob, begun
from scaler.kubernetes.operator.without_brain import OwnRule, reported
from scaler.ports import Observed, reserved
from scaler.reconcile import targets
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


def job_object() -> dict[str, Any]:
    obj = jobs.job("brain-run", "t.py", replicas=2)
    obj["metadata"]["uid"] = ID
    return obj


def ruled(obj: dict[str, Any] | None) -> OwnRule:
    return OwnRule("kubernetes", lambda job: obj, lambda: NOW)


def admitted(obj: dict[str, Any]) -> OwnRule:
    """The rule that has heard of a job from its operator."""
    rule, document = ruled(obj), {"name": "digits", "image": "i", "optimizeMode": "manual"}
    document |= {"replicas": {"min": 2, "max": 4}}
    rule.send(calls.mirror(ID, JobCopy(document=document, pool=PoolName("kubernetes"), owner="t")))
    return rule


def mirror(rule: OwnRule, obj: dict[str, Any]) -> None:
    """Tell the rule of an object."""
    document = wire.document_plain(job_document(read_elastic_job(obj)))
    document |= {"optimizeMode": "manual"}
    rule.send(calls.mirror(ID, JobCopy(document=document, pool=PoolName("kubernetes"), owner="t")))


def of_status(**status: Any) -> OwnJob:
    read = read_elastic_job(job_object() | {"status": status})
    return begun(read, job_document(read), "team", NOW)


def test_a_new_job_is_admitted_with_the_size_of_its_spec() -> None:
    job = of_status()
    assert (job.state, job.size, job.intent) == (JobState.STARTING, 2, Intent.RUN)


def test_a_job_keeps_the_size_and_the_generation_that_a_brain_gave_it() -> None:
    roles = [{"name": "worker", "desired": 3}]
    job = of_status(phase="Running", roles=roles, generation=4, worldEpoch=7)
    assert (job.state, job.size, job.generation, job.epoch) == (JobState.RUNNING, 3, 4, 7)


def test_a_job_keeps_the_amounts_that_a_brain_gave_it() -> None:
    given = {"cpu": "1500m", "memory": "3Gi"}
    status = {"roles": [{"name": "worker", "desired": 2, "resources": given}]}
    (wish,) = admitted(job_object() | {"status": status}).send(calls.wishes("kubernetes")).jobs
    assert wish.wish.resources == Resources(cpu_millis=1500, memory_bytes=3 * 2**30)
    assert of_status(roles=[{"name": "worker", "desired": 2}]).resources is None


def test_groups_keep_the_sizes_and_the_amounts_that_a_brain_gave_them() -> None:
    obj = job_object()
    worker = obj["spec"]["replicaSpecs"]["worker"]
    worker |= {"minReplicas": 2, "maxReplicas": 4, "groups": {"large": {"processesPerReplica": 2}}}
    large = {"name": "large", "desired": 2, "resources": {"cpu": "3"}}
    obj["status"] = {"roles": [{"name": "worker", "desired": 4, "groups": [large]}]}
    rule, document = ruled(obj), job_document(read_elastic_job(obj))
    plain = wire.document_plain(document) | {"optimizeMode": "manual"}
    rule.send(calls.mirror(ID, JobCopy(document=plain, pool=PoolName("kubernetes"), owner="t")))
    (wish,) = rule.send(calls.wishes("kubernetes")).jobs
    assert targets(wish, Observed(job=JobId(ID))) == {"worker": 2, "large": 2}
    assert reserved(wish, "large").cpu_millis == 3000
    shown = [(one.name, one.replicas_wished) for one in rule.send(calls.job(ID)).job.groups]
    assert shown == [("worker", 2), ("large", 2)]


def test_a_job_that_ended_is_forgotten_with_its_object() -> None:
    objects = {ID: job_object()}
    rule = OwnRule("kubernetes", objects.get, lambda: NOW)
    mirror(rule, objects[ID])
    rule.send(calls.cancel(ID))
    rule.send(calls.jobs())
    known = rule.send(calls.job(ID)).job.state

    del objects[ID]
    rule.send(calls.jobs())

    assert known is JobState.CANCELLED
    with pytest.raises(UnknownJob):
        rule.send(calls.job(ID))


def test_a_job_ends_although_an_edit_made_its_object_invalid() -> None:
    objects = {ID: job_object()}
    rule = OwnRule("kubernetes", objects.get, lambda: NOW)
    mirror(rule, objects[ID])
    objects[ID] = job_object()
    jobs.main_of(objects[ID])["resources"] = {"requests": {"memory": "3Gib"}}

    ended = tuple(replica(id, ReplicaExit.SUCCEEDED) for id in (0, 1))
    rule.send(calls.report_replicas(ReplicaReport(job=ID, replicas=ended, at=NOW)))

    assert rule.send(calls.job(ID)).job.state is JobState.SUCCEEDED


def test_a_job_that_ended_is_not_begun_again() -> None:
    ended = {"phase": "Failed", "message": "exit code 1", "completionTime": NOW.isoformat()}
    assert of_status(**ended).state is JobState.FAILED
    found = ruled(job_object() | {"status": ended}).send(calls.job(ID)).job
    assert (found.state, found.reason, found.finished_at) == (JobState.FAILED, "exit code 1", NOW)


def test_a_job_that_was_refused_is_begun_once_it_can_be_used() -> None:
    assert of_status(phase="Failed", message="spec.deadline needs steps").state is JobState.STARTING


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (calls.resize(ID, ResizeRequest(replicas=3, why="more")), "so the size cannot change"),
        (
            calls.edit(ID, JobEdit(cpu_millis=2000, why="more")),
            "so what each replica reserves cannot change",
        ),
    ],
)
def test_a_change_waits_for_a_brain(call: Call[Any], what: str) -> None:
    rule = admitted(job_object())
    with pytest.raises(Unavailable, match=what):
        rule.send(call)


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


@pytest.mark.parametrize(
    ("exit", "state"),
    [
        (ReplicaExit.SUCCEEDED, JobState.SUCCEEDED),
        (ReplicaExit.FAILED, JobState.FAILED),
        (ReplicaExit.LOST, JobState.SUCCEEDED),
    ],
)
def test_plain_pods_end_one_by_one_and_the_job_with_the_last(
    exit: ReplicaExit, state: JobState
) -> None:
    obj = job_object()
    jobs.main_of(obj)["command"] = ["torchrun", "t.py"]
    rule = admitted(obj)

    def told(*replicas: Replica) -> JobState:
        rule.send(calls.report_replicas(ReplicaReport(job=ID, replicas=replicas, at=NOW)))
        found: JobState = rule.send(calls.job(ID)).job.state
        return found

    assert told(replica(0), replica(1)) is JobState.RUNNING
    assert told(replica(0, ReplicaExit.SUCCEEDED), replica(1)) is JobState.RUNNING
    assert told(replica(1, exit)) is state


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
    rule = ruled(None)
    with pytest.raises(UnknownJob):
        rule.send(calls.job("other"))
    assert rule.send(calls.jobs()).items == ()


def test_a_job_of_another_mode_is_not_admitted() -> None:
    document = {"name": "digits", "image": "i", "optimizeMode": "cluster"}
    copy = JobCopy(document=document, pool=PoolName("kubernetes"), owner="team")
    rule = ruled(None)
    with pytest.raises(Unavailable, match="set optimizeMode: manual"):
        rule.send(calls.mirror(ID, copy))
