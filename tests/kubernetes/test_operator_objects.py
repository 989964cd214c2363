"""What is told of an object, what goes with it, and what stays."""

from datetime import timedelta
from typing import Any

import pytest

from brain import cycle
from brain.types.job import Intent, JobState
from brain.types.resources import PoolName
from brain.types.world import ReplicaExit
from scaler.kubernetes.dependents.upkeep import BUDGET
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.plans.plans import PLAN
from scaler.kubernetes.replicas.cache import JobCache, Sent
from scaler.kubernetes.runtime.cluster import POD, Key, NotFound
from scaler.ports import ReplicaPhase
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.operating import (
    Place,
    Stage,
    accepted,
    living,
    placed,
    plan,
    retire,
    until,
)
from tests.scaler.wished import NOW


def plain(**worker: Any) -> Json:
    return jobs.job("torchrun", "t.py", resources={"cpu": "1"}, **worker)


def gone(place: Place, kind: Any, name: str) -> bool:
    try:
        place.cluster.get(kind, place.namespace, name)
    except NotFound:
        return True
    return False


def test_a_misspelt_field_of_a_template_is_told_with_the_one_that_was_meant(place: Place):
    made = jobs.job(resources={"cpu": "1"})
    jobs.main_of(made)["commnad"] = ["brain-run", "t.py"]
    made = place.apply(made)

    field = "spec.replicaSpecs.worker.template.spec.containers.0.commnad"
    place.says(made, "Honoured", "False", "FieldsUnknown", f"{field} is not a known pod field")
    place.told("FieldsUnknown", "did you mean command?")


def test_a_misspelt_field_deep_within_is_told_and_labels_are_free(place: Place):
    made = plain()
    template = made["spec"]["replicaSpecs"]["worker"]["template"]
    template["metadata"] = {"labels": {"comand": "x"}}
    template["spec"]["hostAliases"] = [{"ip": "10.0.0.1", "hostname": ["a"]}]
    jobs.main_of(made)["readinessProbe"] = {"httpGet": {"prot": 80}}
    made = place.apply(made)

    place.says(made, "Honoured", "False", "FieldsUnknown", "readinessProbe.httpGet.prot is no")
    message = (place.condition(made, "Honoured") or ("", "", ""))[2]
    assert "did you mean port?" in message
    assert "hostAliases.0.hostname is not a known pod field" in message
    assert "comand" not in message


def test_a_plan_that_was_refused_goes_with_its_job(stage: Stage, place: Place):
    if not stage.ground.collects:
        pytest.skip("nobody collects what has lost its owner here")
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    stale = place.apply(plan(3, annotations={"elastic.iml.github.io/generation": "0"}))
    place.says(stale, "Accepted", "False", "StaleGeneration")
    late = plan(3, name="late")
    late["spec"]["expiresAt"] = "2020-01-01T00:00:00Z"
    place.says(place.apply(late), "Accepted", "False", "Expired")

    place.cluster.delete(JOB, place.namespace, "digits")

    until("both are gone", lambda: gone(place, PLAN, "bigger") and gone(place, PLAN, "late"))


def test_a_plan_for_no_job_is_nobodys(place: Place):
    asked = place.apply(plan(3))
    place.says(asked, "Accepted", "False", "JobNotFound")

    found = place.cluster.get(PLAN, place.namespace, "bigger")
    assert not found["metadata"].get("ownerReferences")


def test_pods_that_are_left_as_orphans_go_on_until_they_end(stage: Stage, place: Place):
    if not stage.ground.collects:
        pytest.skip("nobody frees orphans here")
    made = place.apply(plain(replicas=2, minReplicas=2, maxReplicas=2))
    with living(place):
        until("both run", lambda: len(place.run()) == 2, lambda: place.status(made))
        until("it trains", lambda: place.job(made).job.state is JobState.RUNNING)
        place.cluster.delete(JOB, place.namespace, "digits", propagation="Orphan")
        until("the object is gone", lambda: gone(place, JOB, "digits"))

        # As the operator does every few seconds, for deletions that nobody saw.
        place.operator.jobs.withdrawals.sweep()
        assert place.job(made).job.intent is Intent.RUN
        assert place.run() == {"0", "1"}
        owners = [pod["metadata"].get("ownerReferences") for pod in place.pods().values()]
        assert owners == [None, None]

        for index in place.run():
            name = f"digits-edljob-worker-{index}"
            place.cluster.delete(POD, place.namespace, name, grace_seconds=0)

        def cancelled() -> bool:
            place.operator.jobs.withdrawals.sweep()
            return place.job(made).job.intent is Intent.CANCEL

        until("Brain is told that it is over", cancelled)
        assert not place.run()


def test_a_job_whose_object_no_watch_has_told_of_yet_goes_on(place: Place):
    place.operator.manager.stop()
    made = place.apply(plain())
    # A submission tells Brain of the object at once; this operator's watch is cut.
    place.operator.jobs.mirror.take(made)

    place.operator.jobs.withdrawals.sweep()
    place.operator.jobs.reconcile(Key(place.namespace, "digits"))
    kept = place.job(made).job.intent
    place.cluster.delete(JOB, place.namespace, "digits")
    place.operator.jobs.withdrawals.sweep()

    assert (kept, place.job(made).job.intent) == (Intent.RUN, Intent.CANCEL)


def test_a_job_that_ended_is_begun_by_no_operator_that_comes_later(stage: Stage, place: Place):
    place.operator.manager.stop()
    made = place.apply(jobs.job("torchrun", "t.py", resources={"cpu": "100"}, replicas=1))
    ended = {"phase": "Succeeded", "completionTime": "2026-01-02T03:04:05Z", "generation": 0}
    place.cluster.merge_status(JOB, place.namespace, "digits", {"status": ended})
    later = placed(stage.ground, place.api, place.namespace)
    until("it has seen all there is", lambda: not later.operator.unready)

    later.operator.jobs.reconcile(Key(place.namespace, "digits"))
    retire(later)

    assert place.status(made) == ended
    assert later.operator.brain.view(made["metadata"]["uid"]) is None


@pytest.mark.parametrize("edit", [{"replicas": 4}, {"groups": {"a": {"replicas": 2}}}])
def test_an_edit_between_two_operators_before_the_first_status_is_asked_for(
    stage: Stage, place: Place, edit: Json
):
    sizes: Json = {"groups": {"a": {"replicas": 1}}} if "groups" in edit else {}
    sizes |= {"replicas": 3, "minReplicas": 3, "maxReplicas": 9}
    place.operator.manager.stop()
    made = place.apply(jobs.job("torchrun", "t.py", resources={"cpu": "1"}, **sizes))
    place.operator.jobs.mirror.take(made)
    cycle.turn(place.api.stores, PoolName("kubernetes"), place.api.settings, place.api.now)
    assert place.job(made).job.replicas_wished == 3
    edited = {"spec": {"replicaSpecs": {"worker": edit}}}
    place.cluster.merge(JOB, place.namespace, "digits", edited)

    later = placed(stage.ground, place.api, place.namespace)
    with living(later):
        until("it has the edited size", lambda: len(later.run()) == 4, lambda: later.status(made))
        until("the object says so", lambda: later.status(made)["request"].get("granted") == 4)
    retire(later)


def test_pods_that_are_left_as_orphans_are_kept_from_no_drain(stage: Stage, place: Place):
    if not stage.ground.collects:
        pytest.skip("nobody frees orphans here")

    def kept() -> list[int]:
        found = place.cluster.list(BUDGET, place.namespace).items
        return [each["spec"]["minAvailable"] for each in found]

    accepted(place, replicas=1)
    with living(place):
        until("it runs", lambda: place.run() == {"0"}, place.pods)
        until("a budget keeps it", lambda: kept() == [1])
        place.cluster.delete(JOB, place.namespace, "digits", propagation="Orphan")
        until("no budget keeps it", lambda: kept() in ([0], []))
    assert len(place.pods()) == 1


def test_a_pod_that_never_was_is_not_lost():
    metadata = {"namespace": "team", "name": "p0"}
    sent = Sent.of({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
    sent.taken = True
    known = JobCache(sent={0: sent})
    assert known.seen({}, NOW)[0].phase is ReplicaPhase.STARTING

    later = known.seen({}, NOW + timedelta(seconds=31))[0]

    assert (later.phase, later.exit) == (ReplicaPhase.ENDED, ReplicaExit.CANCELLED)
    assert later.detail == "its pod was never created"
