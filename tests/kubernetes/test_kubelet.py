"""The kubelet and the scheduler that the suites play clusters with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.kubelet import node as ready_node
from tests.kubernetes.predicates import place_of
from tests.kubernetes.scheduling import GROUP_ANNOTATION, Gang, Scheduler, placed

Json = dict[str, Any]


def pod(name: str = "p", gpus: int = 1, **spec: Any) -> Json:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "image:1", "resources": {"limits": limits}}
    return {
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def nodes(*gpus: int, **what: Any) -> list[Any]:
    return [place_of(ready_node(f"n{i}", gpus=count, **what), ()) for i, count in enumerate(gpus)]


def keyed(*pods: Json) -> list[tuple[tuple[str, str], Json]]:
    return [(("ns", one["metadata"]["name"]), one) for one in pods]


def test_a_pod_goes_to_the_first_node_that_fits() -> None:
    assert placed(keyed(pod(gpus=4)), nodes(2, 8)).bound == {("ns", "p"): "n1"}


def test_a_pod_that_fits_nowhere_is_told_what_lacks() -> None:
    placement = placed(keyed(pod(gpus=4)), nodes(2, 2))
    assert placement.waiting == {
        ("ns", "p"): "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    }


def test_a_gang_that_does_not_fit_leaves_its_room_to_others() -> None:
    members = keyed(pod("a", 4), pod("b", 4), pod("c", 4))
    gang = Gang("g", least=3)
    alone = keyed(pod("later", 8))
    placement = placed([*members, *alone], nodes(8), {key: gang for key, _ in members})
    assert placement.bound == {("ns", "later"): "n0"}


def test_a_gang_that_fits_is_placed_whole() -> None:
    members = keyed(pod("a", 4), pod("b", 4))
    placement = placed(members, nodes(8), {key: Gang("g", least=2) for key, _ in members})
    assert placement.bound == {("ns", "a"): "n0", ("ns", "b"): "n0"}


def test_two_pods_with_one_port_of_their_host_go_to_two_nodes() -> None:
    def listening(name: str) -> Json:
        made = pod(name)
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        return made

    placement = placed(keyed(*map(listening, "abc")), nodes(8, 8))
    assert sorted(placement.bound.values()) == ["n0", "n1"]
    assert list(placement.waiting.values()) == [
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    ]


def test_higher_priority_goes_first() -> None:
    pods = keyed(pod("low", 8, priority=1), pod("high", 8, priority=9))
    assert placed(pods, nodes(8)).bound == {("ns", "high"): "n0"}


def test_a_node_selector_is_kept() -> None:
    wish = pod(nodeSelector={"kubernetes.io/hostname": "n1"})
    assert placed(keyed(wish), nodes(8, 8)).bound == {("ns", "p"): "n1"}


def test_a_taint_keeps_pods_away_that_do_not_tolerate_it() -> None:
    taint = {"key": "gone", "effect": "NoSchedule"}
    assert placed(keyed(pod()), nodes(8, taints=[taint])).bound == {}


def test_a_host_that_an_affinity_excludes_is_not_taken() -> None:
    term = {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n0"]}
        ]
    }
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    wish = pod(affinity={"nodeAffinity": wanted})
    assert placed(keyed(wish), nodes(8, 8)).bound == {("ns", "p"): "n1"}


class Cluster:
    """A server with a scheduler and a kubelet, and one's hand on it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.kubelet = FakeKubelet(server)
        self.scheduler = Scheduler(server)
        self.http = httpx2.Client(base_url=server.url, timeout=60)

    def create(self, made: Json, plural: str = "pods") -> None:
        answer = self.http.post(f"/api/v1/namespaces/default/{plural}", json=made)
        assert answer.status_code == 201, answer.text

    def phase(self, name: str = "p") -> str:
        found = [one for one in self.kubelet.pods() if one["metadata"]["name"] == name]
        return found[0]["status"]["phase"] if found else "gone"

    def status(self, name: str = "p") -> Json:
        found: Json = self.http.get(f"/api/v1/namespaces/default/pods/{name}").json()["status"]
        return found

    def runs(self, *names: str) -> None:
        eventually(lambda: all(self.phase(name) == "Running" for name in names))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with serving(tmp_path, definitions=[]) as server:
        made = Cluster(server)
        yield made
        made.http.close()


def test_a_pod_is_scheduled_and_runs(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod())
    cluster.runs("p")
    assert {one["type"]: one["status"] for one in cluster.status()["conditions"]}["Ready"] == "True"


def test_a_gated_pod_waits_until_its_gate_is_gone(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod("gated", schedulingGates=[{"name": "brain.io/gang"}]))
    cluster.create(pod("free"))
    cluster.runs("free")
    before = cluster.phase("gated")
    cluster.http.patch(
        "/api/v1/namespaces/default/pods/gated",
        headers={"Content-Type": "application/json-patch+json"},
        content=b'[{"op":"remove","path":"/spec/schedulingGates"}]',
    )
    cluster.runs("gated")
    assert before == "Pending"


def test_an_exit_code_ends_a_pod(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod())
    cluster.runs("p")
    cluster.kubelet.exit("p", 3)
    state = cluster.status()["containerStatuses"][0]["state"]["terminated"]
    assert (cluster.phase(), state["exitCode"], state["reason"]) == ("Failed", 3, "Error")


def test_memory_kills_with_137_and_its_reason(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod())
    cluster.runs("p")
    cluster.kubelet.kill_for_memory("p")
    state = cluster.status()["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")


def test_an_evicted_pod_says_so(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod())
    cluster.runs("p")
    cluster.kubelet.evict("p")
    assert (cluster.phase(), cluster.status()["reason"]) == ("Failed", "Evicted")


def test_a_container_restarts_where_its_policy_says_so(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod(restartPolicy="Always"))
    cluster.runs("p")
    cluster.kubelet.exit("p", 1)
    assert (cluster.phase(), cluster.status()["containerStatuses"][0]["restartCount"]) == (
        "Running",
        1,
    )


def test_a_missing_image_keeps_a_pod_pending(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.kubelet.break_image("image:1")
    cluster.create(pod())
    eventually(lambda: bool(cluster.status().get("containerStatuses")))
    waiting = cluster.status()["containerStatuses"][0]["state"]["waiting"]
    assert (cluster.phase(), waiting["reason"]) == ("Pending", "ImagePullBackOff")


def test_a_deleted_pod_of_a_lost_node_stays_until_the_node_is_back(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", gpus=8)
    cluster.create(pod())
    cluster.runs("p")
    cluster.kubelet.lose_node("n0")
    cluster.kubelet.evict_lost("n0")
    while_lost = cluster.phase()
    cluster.kubelet.find_node("n0")
    eventually(lambda: cluster.phase() == "gone")
    assert while_lost == "Running"


def test_a_lost_node_takes_no_new_pods(cluster: Cluster) -> None:
    cluster.kubelet.add_nodes("n0", "n1", gpus=8)
    cluster.kubelet.lose_node("n0")
    cluster.create(pod())
    cluster.runs("p")
    assert cluster.kubelet.pods()[0]["spec"]["nodeName"] == "n1"


def test_a_volcano_gang_starts_when_enough_of_it_is_there(cluster: Cluster) -> None:
    cluster.server.install(Path(__file__).parent / "volcano-podgroups.yaml")
    cluster.kubelet.add_nodes("n0", gpus=8)
    group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 2}}
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    assert cluster.http.post(path, json=group).status_code == 201
    for name in ("a", "b"):
        made = pod(name)
        made["metadata"]["annotations"] = {GROUP_ANNOTATION: "g"}
        cluster.create(made)
    cluster.runs("a", "b")
