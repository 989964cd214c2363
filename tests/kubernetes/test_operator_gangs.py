"""Gangs on nodes that take some pods and not others: whole, or nothing is held."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scaler.kubernetes.machinery.cluster import POD
from scaler.kubernetes.pods.identity import NAME, replica_of
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.clusters import here
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.operating import Place, Stage, living, operating, until
from tests.kubernetes.real import ground
from tests.kubernetes.scheduling import Scheduler

TEAM = {"key": "team", "value": "others", "effect": "NoSchedule"}
FOUR = ("n0", "n1", "n2", "n3")
ZONE = "topology.kubernetes.io/zone"
Affinity = dict[str, Any]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Four nodes of 8 GPUs, two in each of two zones."""
    with ground(tmp_path_factory.mktemp("apiserver")) as running:
        kubelet, scheduler = FakeKubelet(running), Scheduler(running)
        for number, name in enumerate(FOUR):
            labels = {ZONE: f"z{number // 2}"}
            kubelet.add_nodes(name, cpu="16", memory="64Gi", gpus=8, labels=labels)
        try:
            yield Stage(running, kubelet)
        finally:
            scheduler.close()
            kubelet.close()


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


@contextmanager
def tainted(stage: Stage, *names: str) -> Iterator[None]:
    """Nodes of another team for a while."""
    hands = stage.ground.hands
    for name in names:
        hands.write_taints(name, lambda had: [*had, TEAM])
    try:
        yield
    finally:
        for name in names:
            hands.write_taints(name, lambda had: [t for t in had if t["key"] != "team"])


def gang(size: int, **more: Any) -> Json:
    """A job of ``size`` replicas of 8 GPUs each, which has no other size."""
    resources = {"cpu": "1", "nvidia.com/gpu": 8}
    bounds = {"replicas": size, "minReplicas": size, "maxReplicas": size}
    made = jobs.job("torchrun", "t.py", resources=resources, **bounds)
    made["spec"]["replicaSpecs"]["worker"]["template"]["spec"].update(more)
    return made


def others(place: Place, stage: Stage, *names: str) -> list[str]:
    """Pods of others that hold the GPUs of these nodes."""
    limits = {"nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
    for name in names:
        chosen = {"kubernetes.io/hostname": name}
        spec = here({"containers": [container], "nodeSelector": chosen})
        metadata = {"name": f"others-{name}", "namespace": place.namespace}
        stage.ground.hands.create(("", "pods"), {"metadata": metadata, "spec": spec})
    found = [f"others-{name}" for name in names]
    until("they run", lambda: all(phase(place, name) == "Running" for name in found))
    return found


def phase(place: Place, name: str) -> str:
    found = {p["metadata"]["name"]: p for p in place.cluster.list(POD, place.namespace).items}
    return str(found[name]["status"]["phase"]) if name in found else ""


def of_the_job(place: Place) -> list[Json]:
    found = place.cluster.list(POD, place.namespace).items
    return [dict(pod) for pod in found if replica_of(pod) is not None]


def homes(place: Place) -> list[str]:
    """Nodes that the job's pods hold."""
    return sorted(pod["spec"]["nodeName"] for pod in of_the_job(place) if "nodeName" in pod["spec"])


def near(kind: str, key: str) -> Affinity:
    """Affinity, or anti-affinity, of a gang's pods to each other."""
    term = {"labelSelector": {"matchLabels": {NAME: "digits"}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_gang_for_which_too_few_nodes_bear_its_pods_never_fits(stage: Stage, place: Place):
    with tainted(stage, "n1", "n2", "n3"):
        made = place.apply(gang(2))
        place.says(made, "Feasible", "False", "NeverFits", "team=others:NoSchedule")

        assert not of_the_job(place)


def test_a_gang_holds_nothing_while_nodes_that_it_may_not_have_are_free(stage: Stage, place: Place):
    with tainted(stage, "n2", "n3"):
        busy = others(place, stage, "n0")
        made = place.apply(gang(2))
        place.says(made, "Scheduled", "False", "WaitingForCapacity", "team=others:NoSchedule")
        assert (homes(place), place.condition(made, "Feasible")) == ([], ("True", "Fits", ""))

        for name in busy:
            place.cluster.delete(POD, place.namespace, name, grace_seconds=0)
        until("both run", lambda: len(place.run()) == 2, place.pods)
        assert homes(place) == ["n0", "n1"]


def test_a_gang_that_bears_a_taint_runs_there(stage: Stage, place: Place):
    with tainted(stage, *FOUR):
        place.apply(gang(2, tolerations=here({"tolerations": [TEAM]})["tolerations"]))
        until("both run", lambda: len(place.run()) == 2, place.pods)


def test_pods_that_keep_each_other_off_need_as_many_zones(place: Place):
    made = place.apply(gang(3, affinity=near("podAntiAffinity", ZONE)))

    place.says(made, "Feasible", "False", "NeverFits", "kept free by pod anti-affinity")


def test_pods_that_want_to_be_near_begin_where_all_find_room(stage: Stage, place: Place):
    others(place, stage, "n0")
    place.apply(gang(2, affinity=near("podAffinity", ZONE)))

    # The scheduler would have put the first on n1, and none beside it.
    until("both run", lambda: len(place.run()) == 2, place.pods)
    assert homes(place) == ["n2", "n3"]
