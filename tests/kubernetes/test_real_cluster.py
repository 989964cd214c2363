"""What stands before a real cluster, tried on a bare emulator: the way there is the same."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from scaler.kubernetes.runtime.cluster import POD, Cluster, connect
from tests.kubernetes import clusters
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.hands import LEASES, NODES, Heard
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet import FakeKubelet, node
from tests.kubernetes.lifecycle import NodeLifecycle
from tests.kubernetes.real import RealCluster
from tests.kubernetes.real.outside import Outside
from tests.kubernetes.scheduling import Scheduler

PODS = "/api/v1/namespaces/default/pods"
RBAC = "rbac.authorization.k8s.io"
ROLES = f"/apis/{RBAC}/v1/clusterroles"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, definitions=[], bare=True) as running:
        yield running


@pytest.fixture
def real(server: Server, tmp_path: Path) -> Iterator[RealCluster]:
    directory = tmp_path / "before"
    directory.mkdir()
    cluster = RealCluster(directory, server.kubeconfig, collects=False)
    yield cluster
    cluster.close()


@pytest.fixture
def http(real: RealCluster) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=real.url, timeout=60) as client:
        yield client


def pod(name: str, *, ours: bool = True) -> Json:
    container = {"name": "main", "image": "image:1"}
    spec: Json = {"restartPolicy": "Never", "containers": [container]}
    if ours:
        spec |= {"schedulerName": clusters.SCHEDULER, "tolerations": [clusters.TAINT]}
    return {"metadata": {"name": name}, "spec": spec}


def test_pods_of_our_scheduler_run_and_others_are_left_alone(
    real: RealCluster, http: httpx2.Client
) -> None:
    kubelet, scheduler = FakeKubelet(real), Scheduler(real)
    kubelet.add_nodes("n0")
    http.post(PODS, json=pod("theirs", ours=False))
    http.post(PODS, json=pod("ours"))
    eventually(lambda: http.get(f"{PODS}/ours").json()["status"]["phase"] == "Running")
    kubelet.exit("ours", 3)
    scheduler.close()
    kubelet.close()

    assert http.get(f"{PODS}/ours").json()["status"]["phase"] == "Failed"
    assert "nodeName" not in http.get(f"{PODS}/theirs").json()["spec"]


def test_what_is_to_break_breaks_on_the_way(real: RealCluster, http: httpx2.Client) -> None:
    real.faults.answer(429, path="pods", retry_after_seconds=3)
    codes = [http.get(PODS).status_code for _ in range(2)]
    with real.outage(), pytest.raises(httpx2.TransportError):
        http.get(PODS)

    assert codes == [429, 200]
    assert real.traffic.counts["GET", "pods", 429] == 1


def test_watches_end_as_if_their_past_were_forgotten(
    real: RealCluster, http: httpx2.Client
) -> None:
    params = {"watch": "1", "timeoutSeconds": "60"}
    with http.stream("GET", PODS, params=params) as answer:
        real.expire()
        told = list(answer.iter_lines())
    assert [("ERROR" in line, '"code":410' in line) for line in told] == [(True, True)]


def test_somebody_else_is_impersonated(real: RealCluster) -> None:
    kubeconfig = real.kubeconfig_for("system:serviceaccount:default:nobody")
    cluster = Cluster(connect(kubeconfig=str(kubeconfig)))
    with pytest.raises(Exception, match="forbidden"):
        cluster.list(POD, "default")
    cluster.close()


def test_it_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path, server.kubeconfig, collects=False)
    kubelet = FakeKubelet(cluster)
    kubelet.add_nodes("n0")
    kubelet.close()
    with httpx2.Client(base_url=cluster.url, timeout=60) as http:
        http.post("/api/v1/namespaces", json={"metadata": {"name": "brain-x"}})
        http.post("/api/v1/namespaces/brain-x/pods", json=pod("p"))
        for name in ("brain-x-brain-scaler", "others"):
            http.post(ROLES, json={"metadata": {"name": name}, "rules": []})
    cluster.close()

    names = [one["metadata"]["name"] for one in server.objects("namespaces")]
    assert (server.objects("nodes"), server.objects("pods")) == ([], [])
    assert "brain-x" not in names
    assert [one["metadata"]["name"] for one in server.objects("clusterroles", RBAC)] == ["others"]


def test_a_node_of_the_clusters_own_is_never_replaced(real: RealCluster, server: Server) -> None:
    server.hands.create(NODES, {"metadata": {"name": "n0"}})

    with pytest.raises(AssertionError, match="a node n0 of its own"):
        real.hands.create(NODES, {"metadata": {"name": "n0"}})

    assert len(server.objects("nodes")) == 1


def test_a_node_is_heard_from_its_birth_where_silent_nodes_are_taken_as_lost(
    server: Server, tmp_path: Path
) -> None:
    old = {"holderIdentity": "n0", "renewTime": "2020-01-01T00:00:00.000000Z"}
    metadata = {"name": "n0", "namespace": "kube-node-lease"}
    server.hands.create(LEASES, {"metadata": metadata, "spec": old | {"leaseDurationSeconds": 40}})
    told: list[str] = []

    def hear(heard: Heard) -> None:
        if heard.resource == NODES and not heard.gone:
            conditions = (heard.obj.get("status") or {}).get("conditions") or ()
            told.extend(one["status"] for one in conditions if one["type"] == "Ready")

    unlisten = server.hands.listen(hear)
    lifecycle = NodeLifecycle(server, grace_seconds=3.0)
    hands = Outside(server.kubeconfig, controlled=True, beat_seconds=0.5)
    try:
        hands.create(NODES, node("n0"))
        lease = ("kube-node-lease", "n0")
        renewed = {server.hands.call(lambda: server.hands.find(LEASES, lease))["spec"]["renewTime"]}

        def beats() -> bool:
            found = server.hands.call(lambda: server.hands.find(LEASES, lease))
            renewed.add(found["spec"]["renewTime"])
            return len(renewed) > 8

        eventually(beats)
        assert set(told) == {"True"}
    finally:
        hands.close()
        lifecycle.close()
        unlisten()
