"""Conditions, counts and Events of a job: they come, and they go again."""

from typing import Any

import pytest

from brain.errors import Unavailable
from brain.types.job import JobState
from scaler.kubernetes.kinds import Reason
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.runtime.cluster import EVENT, POD
from scaler.kubernetes.runtime.status import StatusCondition
from scaler.kubernetes.status.conditions import accepted, feasible, held_up
from scaler.kubernetes.status.happenings import happenings
from scaler.kubernetes.status.job_status import refused
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.clusters import here
from tests.kubernetes.operating import Place, Stage, living, plan, until
from tests.scaler.wished import NOW


def plain(cpu: str = "1", **worker: Any) -> Json:
    """A job without our agent, whose worlds are as its pods show them."""
    return jobs.job("torchrun", "t.py", resources={"cpu": cpu}, **worker)


def status_of(place: Place, made: Json, type: str) -> str:
    return (place.condition(made, type) or ("absent",))[0]


def becomes(place: Place, made: Json, **wanted: str) -> None:
    """Wait until all of these conditions are so at once."""
    until(
        f"{wanted}",
        lambda: all(status_of(place, made, type) == said for type, said in wanted.items()),
        lambda: place.status(made),
    )


def kstatus(obj: Json) -> str:
    """What kstatus (cli-utils) makes of an object of a kind that it does not know."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    said = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if "deletionTimestamp" in metadata:
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    if said.get("Reconciling") == "True":
        return "InProgress"
    return "Failed" if said.get("Stalled") == "True" else "Current"


def of_tools(place: Place, made: Json) -> str:
    return kstatus(dict(place.cluster.get(JOB, place.namespace, made["metadata"]["name"])))


def test_a_job_that_is_stopped_and_goes_on_says_both(place: Place):
    made = place.apply(plain(replicas=2, minReplicas=2, maxReplicas=2))
    with living(place):
        becomes(place, made, Running="True", Scheduled="True", Suspended="False")
        assert (place.condition(made, "Suspended") or ())[1] == "NotSuspended"
        assert of_tools(place, made) == "Current"
        place.told("Started", "2 replicas are ready")

        place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": True}})
        becomes(place, made, Suspended="True", Scheduled="False", Running="False", Degraded="False")
        assert (place.condition(made, "Scheduled") or ())[1] == "Suspended"
        assert (of_tools(place, made), place.status(made).get("readyReplicas")) == ("Current", 0)
        place.told("Suspended", "")

        place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": False}})
        becomes(place, made, Suspended="False", Scheduled="True", Running="True")
        assert (place.condition(made, "Suspended") or ())[1] == "Resumed"
        place.told("Resumed", "")


def test_pods_of_a_node_that_nobody_hears_are_not_ready_whatever_brain_believes(
    stage: Stage, place: Place
):
    # So large that each node has room for one.
    made = place.apply(plain("12", replicas=2, minReplicas=1, maxReplicas=2))
    with living(place):
        until("both are ready", lambda: place.status(made).get("readyReplicas") == 2)
        becomes(place, made, Degraded="False", Running="True")
        stage.kubelet.lose_node("n1")
        try:
            becomes(place, made, Degraded="True", Reconciling="True")
            assert place.status(made)["readyReplicas"] == 1
            assert [role["ready"] for role in place.status(made)["roles"]] == [1]
            # Brain takes both for running until the operator has given up the node.
            assert place.job(made).job.state is JobState.RUNNING
            place.told("Degraded", "1 of 2 replicas are ready")
        finally:
            stage.kubelet.find_node("n1")
        becomes(place, made, Degraded="False", Reconciling="False")
        place.told("Healed", "2 replicas are ready again")


def test_a_job_without_pods_holds_nothing(place: Place):
    made = place.apply(plain(replicas=2))

    # Nobody makes pods here.
    place.says(made, "Scheduled", "False", "PodsMissing")


def test_a_plan_that_was_carried_out_is_an_event(place: Place):
    made = place.apply(plain(replicas=1, minReplicas=1, maxReplicas=4))
    with living(place):
        becomes(place, made, Running="True")
        place.apply(plan(3))
        place.told("Resized", "3 replicas are ready, generation 1")
        becomes(place, made, Scaling="False", Degraded="False")


def test_the_end_says_what_it_was_and_what_it_was_not(stage: Stage, place: Place):
    made = place.apply(plain(replicas=1))
    with living(place):
        becomes(place, made, Running="True")
        stage.kubelet.exit("digits-edljob-worker-0", 0, namespace=place.namespace)
        becomes(place, made, Complete="True", Failed="False", Running="False", Scheduled="False")
        place.told("Completed", "")
        assert (of_tools(place, made), place.status(made).get("readyReplicas")) == ("Current", 0)


def test_a_job_that_ends_rank_by_rank_is_not_degraded(stage: Stage, place: Place):
    made = place.apply(plain(replicas=2, minReplicas=1, maxReplicas=2))
    with living(place):
        becomes(place, made, Running="True", Degraded="False")
        stage.kubelet.exit("digits-edljob-worker-1", 0, namespace=place.namespace)
        until("one is ready", lambda: place.status(made).get("readyReplicas") == 1)
        assert (status_of(place, made, "Degraded"), of_tools(place, made)) == ("False", "Current")
        stage.kubelet.exit("digits-edljob-worker-0", 0, namespace=place.namespace)
        becomes(place, made, Complete="True", Degraded="False")
    events = place.operator.manager.cluster.list(EVENT, place.namespace).items
    assert "Degraded" not in {each["reason"] for each in events}


def test_a_failure_is_one_for_every_tool(stage: Stage, place: Place):
    made = place.apply(plain(replicas=1))
    with living(place):
        becomes(place, made, Running="True")
        stage.kubelet.exit("digits-edljob-worker-0", 1, namespace=place.namespace)
        becomes(place, made, Complete="False", Failed="True", Stalled="True", Reconciling="False")
        place.told("Failed", "")
        assert of_tools(place, made) == "Failed"


def test_what_waits_is_in_progress_and_what_cannot_be_has_failed(place: Place):
    made = plain("99")
    made["spec"]["gangPatience"] = 2
    made = place.apply(made)

    place.says(made, "Feasible", "Unknown", "WaitingForNodes")
    assert of_tools(place, made) == "InProgress"
    place.says(made, "Feasible", "False", "NeverFits")
    assert of_tools(place, made) == "Failed"


def test_a_master_of_another_is_a_conflict_as_long_as_it_lives(place: Place):
    container = {"name": "main", "image": "x"}
    name = "elasticjob-digits-dlrover-master"
    metadata = {"name": name, "namespace": place.namespace}
    place.cluster.create(POD, {"metadata": metadata, "spec": here({"containers": [container]})})
    made = place.apply(plain())
    place.says(made, "Conflict", "True", "ManagedElsewhere", name)

    place.cluster.delete(POD, place.namespace, name, grace_seconds=0)
    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": False, "epochs": 3}})
    place.says(made, "Conflict", "False", "NoOtherController")


@pytest.mark.parametrize(
    ("wrong", "phase", "stalled"),
    [
        (held_up('pods "p" is forbidden: exceeded quota: few, requested: pods=1'), "Queued", False),
        (held_up("somebody says no"), "Queued", False),
        (feasible("no node has it"), "Queued", True),
        (accepted(False, Reason.INVALID, "deadline needs steps"), "Failed", True),
    ],
)
@pytest.mark.parametrize("before", ["", "Failed"])
def test_only_an_object_that_is_wrong_has_failed(
    wrong: StatusCondition, phase: str, stalled: bool, before: str
):
    obj = {"metadata": {"generation": 1}, "status": {"phase": before}}
    told = refused(obj, wrong, NOW)
    said = {each["type"]: each["status"] for each in told["conditions"]}

    assert (told["phase"], said["Stalled"]) == (phase, str(stalled))
    assert said["Reconciling"] == str(not stalled)


def test_restarts_are_counted_in_events():
    before = {"restarts": 1, "message": "fine"}
    after = {"restarts": 2, "message": "replica 1 was lost"}

    (told,) = happenings(before, after)

    assert (told.type, told.reason, told.message) == (
        "Warning",
        "Restarted",
        "restart 2: replica 1 was lost",
    )
    assert not list(happenings(after, after))


def test_a_job_that_was_active_for_as_long_as_it_may_be_has_failed(place: Place):
    made = plain()
    made["spec"]["activeDeadlineSeconds"] = 2
    made = place.apply(made)
    with living(place):
        becomes(place, made, Complete="False", Failed="True")
        until("its pods have ended", lambda: not place.run(), place.pods)

    place.says(made, "Failed", "True", "DeadlineExceeded")
    place.told("DeadlineExceeded", "activeDeadlineSeconds 2")


def test_an_end_that_is_due_while_brain_is_away_is_asked_for_again_soon(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    def away(job: str) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(place.operator.brain, "cancel", away)
    made = plain()
    made["spec"]["activeDeadlineSeconds"] = 1
    made = place.apply(made)
    with living(place):
        place.told("DeadlineExceeded", "activeDeadlineSeconds 1")
        until("it is asked again soon", place.looks_again_soon)
