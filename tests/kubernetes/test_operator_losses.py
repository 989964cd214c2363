"""What befalls a job's pods, and what the operator makes of it: whole, under played kubelets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brain.types.job import JobId, JobState
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.runtime.cluster import POD, NotFound
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.hands import NODES
from tests.kubernetes.operating import (
    Place,
    Stage,
    accepted,
    add_nodes,
    job,
    living,
    looping,
    operating,
    plan,
    until,
)

WORKER = "digits-edljob-worker"


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path, lost_node_seconds=0.2) as made:
        yield made


def plain(**worker: Any) -> Json:
    """A job without our agent, whose worlds are as its pods show them."""
    return jobs.job("torchrun", "t.py", resources={"cpu": "1"}, **worker)


def nodes(place: Place) -> dict[str, str]:
    """Where each pod of the job is."""
    return {index: pod["spec"].get("nodeName", "") for index, pod in place.pods().items()}


def requested(pod: Json, what: str) -> str:
    found: str = pod["spec"]["containers"][0]["resources"]["requests"][what]
    return found


def finish(place: Place, made: Json) -> None:
    """Let Brain have seen the job's end."""
    with place.api.stores.transaction() as tx:
        now = place.api.now
        tx.jobs.put(tx.jobs.get(made["metadata"]["uid"]).moved(JobState.SUCCEEDED, "", now))
    place.look()


def test_a_pod_that_ran_out_of_memory_comes_back_with_more(stage: Stage, place: Place):
    made = job(replicas=1)
    jobs.main_of(made)["resources"] = {"requests": {"cpu": "1", "memory": "3Gi"}}
    made = place.apply(made)
    until("Brain knows the job", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    place.running(made)
    with looping(place):
        until("it runs", lambda: place.run() == {"0"})
        stage.kubelet.kill_for_memory(f"{WORKER}-0", namespace=place.namespace)
        until("another runs", lambda: place.run() == {"1"}, place.pods)

    assert requested(place.pods()["1"], "memory") in ("6Gi", "6442450944")


def test_a_node_with_a_broken_device_gets_no_further_pod(stage: Stage, place: Place):
    accepted(place, replicas=1)
    with looping(place):
        until("it runs", lambda: place.run() == {"0"})
        sick = nodes(place)["0"]
        stage.kubelet.exit(f"{WORKER}-0", 201, namespace=place.namespace)
        until("another runs", lambda: place.run() == {"1"}, place.pods)

    assert {sick, nodes(place)["1"]} == {"n0", "n1"}


def test_an_evicted_and_a_preempted_pod_are_replaced(stage: Stage, place: Place):
    accepted(place, replicas=2, minReplicas=2)
    with looping(place):
        until("two run", lambda: place.run() == {"0", "1"})
        stage.kubelet.evict(f"{WORKER}-0", namespace=place.namespace)
        stage.kubelet.preempt(f"{WORKER}-1", namespace=place.namespace)
        until("two others run", lambda: place.run() == {"2", "3"}, place.pods)


def test_pods_of_a_lost_node_are_replaced_on_another(stage: Stage, place: Place):
    accepted(place, replicas=20, minReplicas=2, maxReplicas=20)
    with looping(place):
        until("twenty run", lambda: len(place.run()) == 20, place.run)
        lost = {index for index, node in nodes(place).items() if node == "n0"}
        stage.kubelet.lose_node("n0")
        try:
            until(
                "as many as there is room for are made on the other node",
                lambda: sum(n == "n1" for n in nodes(place).values()) == 16,
                lambda: nodes(place),
            )
        finally:
            stage.kubelet.find_node("n0")
    assert len(lost) == 16


def test_pods_of_a_node_that_was_deleted_and_registers_again_end(stage: Stage, place: Place):
    accepted(place, replicas=4, minReplicas=2)
    with looping(place):
        until("four run", lambda: len(place.run()) == 4, place.run)
        lost = {index for index, node in nodes(place).items() if node == "n0"}
        stage.ground.hands.call(lambda: stage.ground.hands.delete(NODES, ("", "n0")))
        until("their replacements exist", lambda: len(place.pods().keys() - lost) == 4, place.pods)
        add_nodes(stage.kubelet, "n0")
        until("they end", lambda: len(place.run()) == 4 and not lost & place.run(), place.pods)

    assert lost


def test_no_pod_of_a_job_that_is_being_deleted_is_replaced(place: Place):
    made = accepted(place)
    held = {"metadata": {"finalizers": ["example.com/keep"]}}
    place.cluster.merge(JOB, place.namespace, "digits", held)
    place.cluster.delete(JOB, place.namespace, "digits")
    uid = JobId(made["metadata"]["uid"])

    def lacking() -> str | None:
        return place.operator.backend.observe(uid, place.api.now).lacking

    until("no pod may start", lambda: lacking() == "its ElasticJob was deleted", lacking)
    free = {"metadata": {"finalizers": None}}
    place.cluster.merge(JOB, place.namespace, "digits", free)


def test_a_job_whose_deletion_a_finalizer_holds_up_shows_its_end(place: Place):
    made = place.apply(plain(replicas=2, minReplicas=2, maxReplicas=2))
    with living(place):
        until("two run", lambda: len(place.run()) == 2, lambda: place.status(made))
        held = {"metadata": {"finalizers": ["example.com/keep"]}}
        place.cluster.merge(JOB, place.namespace, "digits", held)
        place.cluster.delete(JOB, place.namespace, "digits")

        def shown() -> tuple[object, object]:
            status = place.status(made)
            return status.get("phase"), status.get("replicas")

        until("its end is shown", lambda: shown() == ("Cancelled", 0), lambda: place.status(made))
        assert not place.pods()
        free = {"metadata": {"finalizers": None}}
        place.cluster.merge(JOB, place.namespace, "digits", free)


def test_suspending_ends_the_pods_and_resuming_brings_them_back(place: Place):
    made = place.apply(plain(replicas=2, minReplicas=2, maxReplicas=2))
    with living(place):
        until("two run", lambda: len(place.run()) == 2, lambda: place.status(made))
        place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": True}})
        until("none is left", lambda: not place.pods(), lambda: place.status(made))
        until("it says so", lambda: (place.condition(made, "Suspended") or ("",))[0] == "True")
        place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": False}})
        until("two run again", lambda: len(place.run()) == 2, lambda: place.status(made))


def test_what_a_quota_forbids_says_so_and_goes_on_when_it_is_raised(stage: Stage, place: Place):
    if not stage.ground.collects:
        pytest.skip("nobody counts what quotas allow here")
    hard = {"metadata": {"name": "q", "namespace": place.namespace}}
    stage.ground.hands.create(("", "resourcequotas"), {**hard, "spec": {"hard": {"pods": "1"}}})
    made = accepted(place, replicas=2, minReplicas=2)
    with looping(place):
        place.says(made, "Scheduled", "False", "QuotaExceeded", "raise the quota")
        place.told("QuotaExceeded", "quota q is used up")
        stage.ground.hands.delete(("", "resourcequotas"), (place.namespace, "q"))
        until("both run", lambda: len(place.run()) == 2, lambda: place.status(made))


def test_a_job_without_requests_starts_under_a_limit_range_that_bounds_bursts(
    stage: Stage, place: Place
):
    bound = {"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
    limits = [{"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}, **bound}]
    metadata = {"name": "bound", "namespace": place.namespace}
    made = {"metadata": metadata, "spec": {"limits": limits}}
    stage.ground.hands.create(("", "limitranges"), made)
    place.apply(jobs.job("brain-run", "t.py", replicas=1))
    with living(place):
        until("it runs", lambda: place.run() == {"0"}, lambda: place.status(job()))

    (pod,) = place.pods().values()
    (copies,) = pod["spec"]["initContainers"]
    assert copies["resources"] == pod["spec"]["containers"][0]["resources"]


def test_a_finished_job_is_deleted_once_its_time_is_over(place: Place):
    made = job()
    made["spec"]["ttlSecondsAfterFinished"] = 0
    made = place.apply(made)
    until("Brain knows the job", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    place.running(made)
    finish(place, made)

    def gone() -> bool:
        try:
            place.cluster.get(JOB, place.namespace, "digits")
        except NotFound:
            return True
        return False

    until("the object is gone", gone)


def test_what_brain_was_sent_of_a_job_is_forgotten_at_its_end(place: Place):
    made = accepted(place, replicas=1)
    mirror, running = place.operator.jobs.mirror, place.operator.brain.view(made["metadata"]["uid"])
    finish(place, made)
    place.says(made, "Complete", "True", "Succeeded")

    obj = place.cluster.get(JOB, place.namespace, "digits")
    job = read_elastic_job(obj)
    _, view = mirror.tell(obj, job, mirror.document(job), running)

    # The operator compared with nothing, and asked Brain.
    assert view is not None
    assert view.state is JobState.SUCCEEDED


def test_pods_of_shared_hosts_never_declare_the_same_port(place: Place):
    for name in ("one", "two"):
        made = job(replicas=3, minReplicas=3, maxReplicas=3)
        made["metadata"]["name"] = name
        made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["hostNetwork"] = True
        uid = place.apply(made)["metadata"]["uid"]
        until("Brain knows it", lambda uid=uid: place.operator.brain.view(uid))
        place.running({"metadata": {"uid": uid}})
    with looping(place):
        until("six pods are made", lambda: len(every_pod(place)) == 6)

    declared = [port for pod in every_pod(place) for port in host_ports(pod)]
    assert len(declared) == len(set(declared)) == 8
    assert all(20000 <= port <= 29999 for port in declared)


def every_pod(place: Place) -> list[Json]:
    return [dict(pod) for pod in place.cluster.list(POD, place.namespace).items]


def host_ports(pod: Json) -> list[int]:
    listed = pod["spec"]["containers"][0].get("ports") or ()
    return [port["hostPort"] for port in listed if port.get("hostPort")]


def test_plans_make_pods_and_take_the_newest(place: Place):
    made = place.apply(plain(replicas=2, minReplicas=1, maxReplicas=4))
    with living(place):
        until("two run", lambda: len(place.run()) == 2, lambda: place.status(made))
        place.apply(plan(4))
        until("four run", lambda: len(place.run()) == 4, lambda: place.status(made))
        place.apply(plan(1, name="smaller"))
        until("the eldest stays", lambda: place.run() == {"0"}, lambda: place.status(made))
