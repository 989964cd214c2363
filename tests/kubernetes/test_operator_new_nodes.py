"""Nodes that do not exist yet: jobs ask for them where an autoscaler sees it, and hold nothing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brain.types.resources import Resources
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods.asking import ASKS
from scaler.kubernetes.pods.asking import asking as asking_pod
from scaler.kubernetes.runtime.cluster import POD
from tests.builders import node
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.hands import NODES
from tests.kubernetes.autoscaling import Autoscaler
from tests.kubernetes.clusters import here, only_emulated
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.operating import Place, Stage, living, operating, until
from tests.kubernetes.real import ground
from tests.kubernetes.scheduling import Scheduler

pytestmark = only_emulated("nodes that an autoscaler makes are played by the emulator's hands")

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two nodes of 8 GPUs."""
    with ground(tmp_path_factory.mktemp("apiserver")) as running:
        kubelet, scheduler = FakeKubelet(running), Scheduler(running)
        kubelet.add_nodes("n0", "n1", gpus=8)
        try:
            yield Stage(running, kubelet)
        finally:
            scheduler.close()
            kubelet.close()


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made:
        with made.api.stores.transaction() as tx:
            room = Resources(cpu_millis=256_000, memory_bytes=2**40, gpus=32)
            tx.nodes.put(node("big", pool="kubernetes", capacity=room, seen_at=made.api.now))
        with living(made):
            yield made


@contextmanager
def autoscaler(stage: Stage, *, most: int, **what: Any) -> Iterator[Autoscaler]:
    made = Autoscaler(stage.ground, "made", most=most, **({"gpus": 8} | what))
    try:
        yield made
    finally:
        made.close()


def gang(size: int, patience: int | None = None, **spec: Any) -> Json:
    """A job of so many pods of 8 GPUs, which begin together."""
    made = jobs.job("torchrun", "t.py", resources={GPU: "8"}, replicas=size, minReplicas=size)
    worker = made["spec"]["replicaSpecs"]["worker"]
    worker["template"]["spec"].update(here(spec) if spec else {})
    if patience is not None:
        made["spec"]["gangPatience"] = patience
    return made


def asking(place: Place) -> list[Json]:
    """Pods that ask for nodes."""
    found = place.cluster.list(POD, place.namespace, label_selector=ASKS).items
    return [dict(pod) for pod in found if "deletionTimestamp" not in pod["metadata"]]


def homes(pods: list[Json]) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"])


def end(place: Place) -> None:
    place.cluster.delete(JOB, place.namespace, "digits")
    until("its pods are gone", lambda: not place.cluster.list(POD, place.namespace).items)


POOL = {"pool": "a100"}


def test_a_job_begins_on_nodes_that_come_because_it_asks(stage: Stage, place: Place):
    with autoscaler(stage, most=2, labels=POOL) as scaler:
        place.apply(gang(2, nodeSelector=POOL))
        until("both run", lambda: len(place.run()) == 2, lambda: asking(place))

        assert homes(list(place.pods().values())) == sorted(scaler.made)
        until("nobody asks any more", lambda: not asking(place))
        end(place)


def test_a_cluster_may_begin_with_no_nodes(tmp_path: Path):
    with ground(tmp_path) as running:
        kubelet, scheduler = FakeKubelet(running), Scheduler(running)
        with (
            autoscaler(Stage(running, kubelet), most=2),
            operating(running, tmp_path) as place,
            living(place),
        ):
            place.apply(gang(2))
            until("both run", lambda: len(place.run()) == 2, lambda: asking(place))
        scheduler.close()
        kubelet.close()


def test_an_asking_pod_is_let_in_where_its_job_is():
    strict = {"runAsNonRoot": True}
    made = gang(2, securityContext=strict)
    made["metadata"]["uid"] = "u"
    container = jobs.main_of(made)
    container["securityContext"] = {"allowPrivilegeEscalation": False}
    spec = asking_pod(read_elastic_job(made), "worker", 0, [], None)["spec"]

    assert spec["securityContext"] == strict
    assert spec["containers"][0]["securityContext"] == container["securityContext"]


def test_only_what_is_missing_is_asked_for_and_present_nodes_stay_free(stage: Stage, place: Place):
    made = place.apply(gang(3))
    place.says(made, "Feasible", "Unknown", "WaitingForNodes", "2 fit on the 2 nodes")
    until("one asks", lambda: len(asking(place)) == 1)
    (pod,) = asking(place)
    assert ("schedulingGates" in pod["spec"], homes([pod])) == (False, [])
    assert (place.condition(made, "Reconciling") or ("",))[0] == "True"

    with autoscaler(stage, most=1):
        until("three run", lambda: len(place.run()) == 3, lambda: place.status(made))
        place.says(made, "Feasible", "True", "Fits")
        end(place)


def test_a_node_of_which_its_pod_was_told_first_is_no_less_used(stage: Stage, place: Place):
    made = place.apply(gang(3))
    until("one asks", lambda: len(asking(place)) == 1)
    (pod,) = asking(place)
    stage.ground.hands.bind(pod, "late")
    until("it is there", lambda: homes(asking(place)) == ["late"])
    place.says(made, "Feasible", "Unknown", "WaitingForNodes")
    time.sleep(0.5)  # the operator has looked at its job since

    stage.kubelet.add_nodes("late", gpus=8)
    try:
        until("three run", lambda: len(place.run()) == 3, lambda: place.status(made))
        end(place)
    finally:
        stage.ground.hands.delete(NODES, ("", "late"))


def test_never_is_said_once_no_node_came_for_the_jobs_patience(place: Place):
    made = place.apply(gang(2, patience=1, nodeSelector=POOL))

    place.says(made, "Feasible", "False", "NeverFits", "pool=a100")
    assert (place.condition(made, "Stalled") or ("",))[0] == "True"
    # They hold nothing, and an autoscaler may be installed tomorrow.
    assert (len(asking(place)), homes(asking(place))) == (2, [])


def test_what_came_in_part_is_let_go_after_the_jobs_patience(stage: Stage, place: Place):
    with autoscaler(stage, most=1, labels=POOL):
        made = place.apply(gang(2, patience=2, nodeSelector=POOL))
        until("one node came", lambda: len(homes(asking(place))) == 1)
        place.says(made, "Feasible", "False", "NeverFits")
        until("nothing is held", lambda: not homes(asking(place)))
        end(place)


def test_a_job_that_asks_for_nodes_keeps_no_other_from_the_present_ones(place: Place):
    place.apply(gang(2, nodeSelector=POOL))
    until("two ask", lambda: len(asking(place)) == 2)
    other = gang(1)
    other["metadata"]["name"] = "other"
    place.apply(other)
    until("the other runs", lambda: len(place.run()) == 1, lambda: place.status(other))


def test_a_suspended_job_asks_for_nothing(place: Place):
    made = gang(2, nodeSelector=POOL)
    made["spec"]["suspend"] = True
    made = place.apply(made)
    place.says(made, "Feasible", "False", "NeverFits")

    assert asking(place) == []
