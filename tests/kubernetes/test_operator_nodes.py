"""Nodes that go silent, as the cluster's own controller finds out: leases, taints, evictions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.kubernetes.runtime.cluster import LEASE, NODE, POD
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.clusters import here, only_emulated
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.lifecycle import NodeLifecycle
from tests.kubernetes.operating import Place, Stage, living, operating, until
from tests.kubernetes.real import ground
from tests.kubernetes.scheduling import Scheduler

pytestmark = only_emulated("a real cluster has a controller of its own, with its own patience")

UNREACHABLE = "node.kubernetes.io/unreachable"
BEAT_SECONDS, GRACE_SECONDS = 0.25, 3.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three nodes of 16 CPUs whose kubelets renew leases, and whoever looks at these."""
    with ground(tmp_path_factory.mktemp("apiserver")) as running:
        kubelet, scheduler = FakeKubelet(running, beat_seconds=BEAT_SECONDS), Scheduler(running)
        kubelet.add_nodes("n0", "n1", "n2", cpu="16", memory="64Gi")
        lifecycle = NodeLifecycle(running, grace_seconds=GRACE_SECONDS)
        try:
            yield Stage(running, kubelet)
        finally:
            lifecycle.close()
            scheduler.close()
            kubelet.close()


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path, lost_node_seconds=0.2) as made, living(made):
        yield made


def large(tolerated_seconds: int) -> Json:
    """A job of two of which a node takes one, and which bear a silent node for so long."""
    made = jobs.job("torchrun", "t.py", resources={"cpu": "12"}, replicas=2, minReplicas=2)
    made["spec"]["replicaSpecs"]["worker"]["maxReplicas"] = 2
    bears = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    bears["tolerationSeconds"] = tolerated_seconds  # type: ignore[assignment]
    template = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    template["tolerations"] = here({"tolerations": [bears]})["tolerations"]
    return made


def taints(place: Place, name: str) -> list[str]:
    node = place.cluster.get(NODE, "", name)
    return [each["key"] for each in node["spec"].get("taints") or ()]


def pod(place: Place, index: str) -> Json:
    return dict(place.cluster.get(POD, place.namespace, f"digits-edljob-worker-{index}"))


def test_a_node_whose_lease_is_not_renewed_is_left(stage: Stage, place: Place):
    made = place.apply(large(tolerated_seconds=1))
    until("two run", lambda: len(place.run()) == 2, lambda: place.status(made))
    place.says(made, "Degraded", "False", "Full")
    lost = pod(place, "1")["spec"]["nodeName"]
    assert taints(place, lost) == []

    stage.kubelet.silence(lost)
    try:
        until("it is tainted", lambda: taints(place, lost) == [UNREACHABLE] * 2)
        place.told("Degraded", "1 of 2 replicas are ready")
        until("another runs elsewhere", lambda: "2" in place.run(), place.pods)
        assert pod(place, "2")["spec"]["nodeName"] != lost
        until("it is evicted", lambda: "deletionTimestamp" in pod(place, "1")["metadata"])
        said = {
            each["type"]: each.get("reason") for each in pod(place, "1")["status"]["conditions"]
        }
        assert said["DisruptionTarget"] == "DeletionByTaintManager"
        place.told("Healed", "2 replicas are ready again")
    finally:
        stage.kubelet.find_node(lost)
    # On a busy machine its next renewal may be late, and it is tainted once more until then.
    until("it is well again", lambda: taints(place, lost) == [])


def test_nodes_that_are_well_renew_their_leases(place: Place):
    def renewed() -> str:
        lease = place.cluster.get(LEASE, "kube-node-lease", "n0")
        return str(lease["spec"]["renewTime"])

    before = renewed()
    until("it is renewed", lambda: renewed() > before)
    # On a busy machine a renewal may be late, and the node is tainted until then.
    until("it is well", lambda: taints(place, "n0") == [])
