"""ElasticJobs in queues of Kueue, on the real CRD of its Workloads; Kueue itself is played."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain import calls
from brain.errors import Unavailable
from brain.types.job import Intent, JobState
from brain.views import JobEdit
from scaler.kubernetes.kinds.fields import QUEUE
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods.identity import INJECT, group_of
from scaler.kubernetes.pods.quota import WORKLOAD
from scaler.kubernetes.runtime.cluster import Denied, Invalid
from tests.kubernetes import jobs
from tests.kubernetes.apiserver import Server
from tests.kubernetes.apiserver.hands import key_of
from tests.kubernetes.clusters import only_emulated
from tests.kubernetes.eventually import repeating
from tests.kubernetes.neighbours.kueue import WORKLOADS, PlayedKueue
from tests.kubernetes.operating import (
    Json,
    Place,
    Stage,
    job,
    living,
    operating,
    staged,
    until,
)
from tests.kubernetes.test_guide_kubernetes import DOCUMENTS

pytestmark = only_emulated("Kueue is played by the emulator alone")


@pytest.fixture
def kueue(stage: Stage) -> Iterator[PlayedKueue]:
    assert isinstance(stage.ground, Server)
    played = PlayedKueue(stage.ground, quota=0)
    with repeating(played.turn):
        yield played
    for key in [key_of(each) for each in stage.ground.objects(WORKLOAD.plural, WORKLOAD.group)]:
        stage.ground.hands.delete(WORKLOADS, key)


@pytest.fixture
def place(stage: Stage, kueue: PlayedKueue, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


def queued(**worker: Any) -> Json:
    """A job of 2 to 4 replicas of one CPU in the queue ``research``.

    No agent of ours is in its pods, so the operator speaks for it: no process runs in pods here.
    """
    made = job(**{"replicas": 2, "minReplicas": 2, "maxReplicas": 4, **worker})
    made["metadata"]["labels"] = {QUEUE: "research"}
    made["metadata"]["annotations"] = {INJECT: "off"}
    jobs.main_of(made)["command"] = ["torchrun", "t.py"]
    return made


def runs(place: Place, made: Json, replicas: int) -> None:
    until(
        f"{replicas} run",
        lambda: len(place.run()) == replicas,
        lambda: (place.pods().keys(), place.status(made)),
    )


def test_it_waits_in_its_queue_and_runs_once_it_is_admitted(place: Place, kueue: PlayedKueue):
    made = place.apply(queued())
    place.says(made, "Admitted", "False", "WaitsInQueue", "research: insufficient unused quota")
    waiting = (place.pods(), place.status(made)["phase"])
    kueue.quota = 2
    runs(place, made, 2)
    place.says(made, "Admitted", "True", "QuotaReserved", "research: 2 replicas")

    (workload,) = kueue.workloads(place.namespace).values()
    assert waiting == ({}, "Queued")
    assert [(s["name"], s["count"]) for s in workload["spec"]["podSets"]] == [("worker", 2)]
    assert workload["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    with pytest.raises(Invalid, match="Object 'Kind' is missing"):
        place.cluster.create(WORKLOAD, {"metadata": workload["metadata"]})
    more = [workload["spec"]["podSets"][0] | {"count": 3}]
    name = workload["metadata"]["name"]
    with pytest.raises(Denied, match="field is immutable"):
        place.cluster.merge(WORKLOAD, place.namespace, name, {"spec": {"podSets": more}})


def test_the_guides_job_waits_and_runs(place: Place, kueue: PlayedKueue):
    made = place.apply(yaml.safe_load(DOCUMENTS["queued.yaml"]))
    place.says(made, "Admitted", "False", "WaitsInQueue", "2 more needed")
    kueue.quota = 4
    runs(place, made, 2)
    place.says(made, "Admitted", "True", "QuotaReserved", "research: 2 replicas")


def test_a_waiting_job_asks_for_what_it_is_edited_to(place: Place, kueue: PlayedKueue):
    kueue.quota = 2
    big = queued(replicas=3, minReplicas=3)
    big["metadata"]["labels"] = {QUEUE: "nowhere"}
    made = place.apply(big)
    place.says(made, "Admitted", "False", "WaitsInQueue", "nowhere: insufficient unused quota")
    place.apply(queued())
    runs(place, made, 2)

    (workload,) = kueue.workloads(place.namespace).values()
    (asked,) = workload["spec"]["podSets"]
    assert (workload["spec"]["queueName"], asked["count"]) == ("research", 2)


def test_an_edit_raises_no_job_above_its_quota(place: Place, kueue: PlayedKueue):
    kueue.quota = 2
    made = place.apply(queued())
    runs(place, made, 2)
    place.apply(queued(replicas=4, minReplicas=4))
    place.says(made, "Admitted", "False", "WaitsForQuota", "research: 2 of 4 replicas")
    kept = sorted(place.pods())
    kueue.quota = 4
    runs(place, made, 4)

    assert kept == ["0", "1"]
    assert sorted(kueue.workloads(place.namespace)) == ["0", "1", "2"]


def test_a_job_that_leaves_its_queue_runs_and_gives_its_quota_back(
    place: Place, kueue: PlayedKueue
):
    made = place.apply(queued())
    place.says(made, "Admitted", "False", "WaitsInQueue")
    free = queued()
    free["metadata"]["labels"] = {}
    place.apply(free)
    runs(place, made, 2)
    place.says(made, "Admitted", "True", "InNoQueue")
    until("it asks for nothing", lambda: not kueue.workloads(place.namespace))
    with place.api.client() as client:
        client.send(calls.suspend(made["metadata"]["uid"]))
    place.says(made, "Suspended", "True", "Suspended")


def test_growth_waits_for_its_quota_unit_by_unit(place: Place, kueue: PlayedKueue):
    kueue.quota = 3
    made = place.apply(queued(replicas=4))
    place.says(made, "Admitted", "False", "WaitsForQuota", "research: 3 of 4 replicas: insuff")
    runs(place, made, 3)
    kueue.quota = 4
    runs(place, made, 4)
    place.says(made, "Admitted", "True", "QuotaReserved", "4 replicas")


def test_an_evicted_job_is_suspended_gives_its_quota_back_and_goes_on_later(
    place: Place, kueue: PlayedKueue
):
    kueue.quota = 2
    made = place.apply(queued())
    runs(place, made, 2)
    kueue.quota = 0
    kueue.evict(kueue.workloads(place.namespace)["0"], "Preempted", "Preempted by a workload")
    place.says(made, "Admitted", "False", "WaitsInQueue")
    place.says(made, "Suspended", "True", "Suspended")
    until("its pods are gone", lambda: not place.pods())

    def released() -> bool:
        status = kueue.workloads(place.namespace)["0"]["status"]
        listed = {each["type"]: each["status"] for each in status["conditions"]}
        return "admission" not in status and listed["QuotaReserved"] == "False"

    until("its quota is back", released, lambda: kueue.workloads(place.namespace))
    kueue.quota = 2
    runs(place, made, 2)


def test_an_evicted_unit_alone_goes(place: Place, kueue: PlayedKueue):
    kueue.quota = 3
    made = place.apply(queued(replicas=3))
    runs(place, made, 3)
    kueue.quota = 2
    kueue.evict(kueue.workloads(place.namespace)["1"], "Preempted", "Preempted by a workload")
    runs(place, made, 2)
    until("its unit is given up", lambda: list(kueue.workloads(place.namespace)) == ["0"])
    place.says(made, "Admitted", "True", "QuotaReserved", "2 replicas")


def test_what_a_person_suspended_holds_no_quota_and_no_admission_resumes_it(
    place: Place, kueue: PlayedKueue
):
    kueue.quota = 2
    made = place.apply(queued())
    runs(place, made, 2)
    with place.api.client() as client:
        client.send(calls.suspend(made["metadata"]["uid"]))
        until("it asks for nothing", lambda: not kueue.workloads(place.namespace))
        place.says(made, "Admitted", "False", "Suspended")
        kept = (place.pods(), place.job(made).job.intent)
        client.send(calls.resume(made["metadata"]["uid"]))
    runs(place, made, 2)

    assert kept == ({}, Intent.SUSPEND)


def test_pods_of_a_unit_go_whose_workload_somebody_deleted(place: Place, kueue: PlayedKueue):
    kueue.quota = 3
    made = place.apply(queued(replicas=3))
    runs(place, made, 3)
    kueue.quota = 2
    place.cluster.delete(WORKLOAD, *key_of(kueue.workloads(place.namespace)["1"]))
    runs(place, made, 2)


def test_a_size_that_brain_did_not_take_back_is_given_back_later(
    place: Place, kueue: PlayedKueue, monkeypatch: pytest.MonkeyPatch
):
    kueue.quota = 3
    made = place.apply(queued(replicas=3))
    runs(place, made, 3)
    resize, failures = place.operator.brain.resize, iter([Unavailable("Brain is away")])

    def once_away(*said: Any, **more: Any) -> Any:
        for failure in failures:
            raise failure
        return resize(*said, **more)

    monkeypatch.setattr(place.operator.brain, "resize", once_away)
    kueue.quota = 2
    kueue.evict(kueue.workloads(place.namespace)["1"], "Preempted", "Preempted by a workload")
    runs(place, made, 2)


def test_a_job_that_ended_or_was_suspended_holds_no_quota(place: Place, kueue: PlayedKueue):
    kueue.quota = 3
    made = place.apply(queued(replicas=3))
    runs(place, made, 3)
    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": True}})
    until("it asks for nothing", lambda: not kueue.workloads(place.namespace))
    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": False}})
    runs(place, made, 3)
    with place.api.client() as client:
        client.send(calls.cancel(made["metadata"]["uid"]))

    def finished() -> bool:
        found = kueue.workloads(place.namespace)
        listed = found["0"]["status"]["conditions"] if list(found) == ["0"] else []
        return ("Finished", "True") in [(each["type"], each["status"]) for each in listed]

    until("Kueue knows", finished, lambda: kueue.workloads(place.namespace))
    assert place.job(made).job.state is JobState.CANCELLED


def mixed(large: int = 1, **worker: Any) -> Json:
    """A job in the queue with ``large`` replicas of two CPUs beside replicas of one."""
    made = queued(**{"replicas": 2 + large, "minReplicas": 3, "maxReplicas": 6, **worker})
    own = queued()
    jobs.main_of(own)["resources"]["requests"]["cpu"] = "2"
    template = own["spec"]["replicaSpecs"]["worker"]["template"]
    group = {"replicas": large, "processesPerReplica": 2, "template": template}
    made["spec"]["replicaSpecs"]["worker"]["groups"] = {"large": group}
    return made


def of_groups(place: Place) -> Counter[str]:
    return Counter(group_of(pod) for pod in place.pods().values())


def test_each_group_of_a_job_is_a_pod_set_whose_growth_waits_for_its_own_quota(
    place: Place, kueue: PlayedKueue
):
    kueue.quota = 3
    made = place.apply(mixed())
    place.says(made, "Admitted", "False", "WaitsInQueue", "1 more needed")
    waiting = dict(place.pods())
    kueue.quota = 5
    runs(place, made, 3)
    (workload,) = kueue.workloads(place.namespace).values()
    sets = [(one["name"], one["count"]) for one in workload["spec"]["podSets"]]
    assert (waiting, sets) == ({}, [("worker", 2), ("large", 1)])

    place.apply(mixed(large=2))
    place.says(made, "Admitted", "False", "WaitsForQuota", "3 of 4 replicas: insufficient")
    assert of_groups(place) == {"worker": 2, "large": 1}
    kueue.quota = 6
    until("both run", lambda: of_groups(place) == {"worker": 2, "large": 2}, place.pods)
    place.says(made, "Admitted", "True", "QuotaReserved", "research: 4 replicas")
    (asked,) = kueue.workloads(place.namespace)["1"]["spec"]["podSets"]
    assert (asked["name"], asked["count"]) == ("large", 1)


def test_a_unit_of_a_group_that_is_evicted_leaves_the_other_groups_alone(
    place: Place, kueue: PlayedKueue
):
    kueue.quota = 7
    made = place.apply(mixed())
    runs(place, made, 3)
    place.apply(mixed(large=2))
    runs(place, made, 4)
    with place.api.client() as client:
        client.send(calls.edit(made["metadata"]["uid"], JobEdit(role="worker", replicas=3)))
    runs(place, made, 5)
    found = kueue.workloads(place.namespace)
    number = next(n for n, one in found.items() if one["spec"]["podSets"][0]["name"] == "large")
    kueue.quota = 5
    kueue.evict(found[number], "Preempted", "Preempted by a workload")
    until("it is gone", lambda: of_groups(place) == {"worker": 3, "large": 1}, place.pods)
    until("it is given up", lambda: len(kueue.workloads(place.namespace)) == 2)
    place.says(made, "Admitted", "True", "QuotaReserved", "4 replicas")


def test_without_kueue_the_label_is_told_as_not_served(tmp_path: Path):
    with staged(tmp_path) as bare, operating(bare.ground, tmp_path / "home") as place:
        made = place.apply(queued())
        place.says(made, "Honoured", "False", "FieldsNotServed", "because Kueue is not")
