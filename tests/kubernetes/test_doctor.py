"""``brain doctor --cluster``: what is missing is named, with the command that mends it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain.cli.doctor import ClusterToCheck as Asked
from brain.cli.doctor import examine_cluster
from brain.types.finding import Finding
from collectors.pods.door import Door, by_kubeconfig
from collectors.pods.sources import SourcesRead, TelemetrySources
from scaler.kubernetes.doctor import installed, rights
from scaler.kubernetes.doctor.__main__ import findings
from scaler.kubernetes.doctor.rights import RightsQuestion
from scaler.kubernetes.runtime.cluster import NAMESPACE, NODE, POD, Cluster, Kind, connect
from tests.kubernetes.apiserver.server import Server, serving
from tests.kubernetes.clusters import namespace as named
from tests.kubernetes.real import Ground, ground
from tests.kubernetes.shelf import Shelf

ROOT = Path(__file__).parents[2]
DEPLOY = "deploy/kustomize"
OPERATOR = "system:serviceaccount:brain:brain-scaler"
_ROLES = "rbac.authorization.k8s.io"
_RBAC_KINDS = {
    kind: Kind(_ROLES, "v1", f"{kind.lower()}s", kind, not kind.startswith("Cluster"))
    for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """An emulator, whose rights may be taken away."""
    with serving(tmp_path) as up:
        yield up


@pytest.fixture
def anywhere(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path) as up:
        yield up


def door(server: Ground) -> Cluster:
    return Cluster(connect(kubeconfig=str(server.kubeconfig)))


def node(name: str, *, labels: dict[str, str] | None = None, gpus: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "status": {
            "allocatable": {"cpu": "8"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {}),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def apply(cluster: Cluster, *files: str, namespace: str) -> None:
    """As ``kubectl apply -n NAMESPACE -f`` does."""
    for file in files:
        for obj in yaml.safe_load_all((ROOT / file).read_text()):
            kind = _RBAC_KINDS[obj["kind"]]
            where = {"namespace": namespace} if kind.namespaced else {}
            cluster.apply(kind, obj | {"metadata": obj["metadata"] | where})


def bad(found: Iterator[Finding]) -> list[Finding]:
    return [each for each in found if each.level == "bad"]


def test_who_may_do_everything_lacks_nothing(anywhere: Ground):
    found = list(rights.examine(door(anywhere), RightsQuestion()))

    assert [(each.level, each.what) for each in found] == [
        ("ok", "this account has all permissions that the operator needs")
    ]


def test_a_missing_verb_is_named_with_why_and_the_remedy(server: Server):
    server.access.deny("patch", "pods")

    found = bad(rights.examine(door(server), RightsQuestion(namespaces=("team",))))

    assert [each.remedy for each in found] == [
        "kubectl apply -n team -f deploy/kustomize/namespaced/jobs/rbac.yaml"
    ]
    assert found[0].what.startswith(
        "the operator lacks the permission to patch pods in team; with this permission it creates "
        "and deletes the pods"
    )


def test_what_is_optional_is_only_noted(server: Server):
    server.access.deny("list", "podgroups")

    levels = [each.level for each in rights.examine(door(server), RightsQuestion())]

    assert levels == ["note"]


@pytest.mark.parametrize(
    ("asking", "files"),
    [
        (RightsQuestion(user=OPERATOR), (f"{DEPLOY}/cluster-wide/rbac.yaml",)),
        (
            RightsQuestion(user=OPERATOR, namespaces=("brain",)),
            (f"{DEPLOY}/namespaced/rbac.yaml", f"{DEPLOY}/namespaced/jobs/rbac.yaml"),
        ),
    ],
    ids=["cluster-wide", "namespaces"],
)
def test_the_roles_that_the_remedies_apply_mend_all(
    server: Server, asking: RightsQuestion, files: tuple[str, ...]
):
    cluster = door(server)
    cluster.create(NAMESPACE, {"metadata": {"name": "brain"}})
    before = list(rights.examine(cluster, asking))
    said = " ".join(each.remedy for each in before)

    apply(cluster, *files, namespace="brain")

    assert all(file in said for file in files)
    assert [each.level for each in rights.examine(cluster, asking)] == ["ok"]


def test_kinds_that_are_not_served_are_named(tmp_path: Path):
    with serving(tmp_path, definitions=()) as server:
        found = bad(installed.examine(door(server)))

    said = {each.what.partition(":")[0]: each.remedy for each in found}
    lacking = "the API server does not serve"
    assert said[f"{lacking} elasticjobs.elastic.iml.github.io"] == "brain migrate --crds"
    assert f"{lacking} scaleplans/status.elastic.iml.github.io" in said


def test_our_own_kinds_have_all_that_is_needed(anywhere: Ground):
    said = [each.what for each in installed.examine(door(anywhere))]

    assert "ElasticJob and ScalePlan are installed" in said


def test_labels_that_nodes_lack_are_named():
    zone = {"topology.kubernetes.io/zone": "a"}
    found = list(installed.nodes([node("a", labels=zone, gpus=8), node("b")]))

    assert [(each.level, each.what) for each in found] == [
        ("note", "1 node (a) with GPUs: no label names the GPU product (nvidia.com/gpu.product)"),
        ("note", "1 node (b): no label topology.kubernetes.io/zone"),
    ]
    assert "kubectl label node b topology.kubernetes.io/zone=" in found[1].remedy


def test_nodes_of_all_pages_are_examined():
    shelf = Shelf()
    shelf.objects["/version"] = {"major": "1", "minor": "33"}
    for number in range(501):
        shelf.put(node(f"n{number:03}", gpus=8), NODE)

    found = list(installed.examine(Cluster(shelf)))

    assert [each.what[:9] for each in found if "product" in each.what] == ["501 nodes"]


def test_a_cluster_that_is_away_is_a_finding(tmp_path: Path):
    with serving(tmp_path) as server:
        kubeconfig = str(server.kubeconfig)

    found = list(findings(kubeconfig, None, RightsQuestion()))

    assert {each.level for each in found} == {"bad"}


def test_both_programs_are_asked(server: Server):
    server.access.deny("list", "nodes")

    found = [each for each in examine_cluster(Asked(kubeconfig=str(server.kubeconfig)))]

    said = " ".join(each.what for each in found if each.level == "bad")
    assert "the operator lacks the permission to list nodes" in said
    assert "the collector lacks the permission to list nodes" in said


def test_the_collector_reads_what_an_api_server_lists(anywhere: Ground):
    cluster = door(anywhere)
    cluster.create(NAMESPACE, {"metadata": {"name": named("team")}})
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "500m"}}}
    meta = {"name": "digits-edljob-worker-0", "namespace": named("team")}
    made = cluster.create(POD, {"metadata": meta, "spec": {"containers": [container]}})

    async def look() -> SourcesRead:
        reader = Door(by_kubeconfig(str(anywhere.kubeconfig), None))
        try:
            return await TelemetrySources(reader).look()
        finally:
            await reader.close()

    found = asyncio.run(look())

    asked = {pod.uid: pod.requests.cpu_millis for pod in found.pods or ()}
    assert asked[made["metadata"]["uid"]] == 500
    # Where nobody measures; a real cluster may have somebody who does.
    assert {trouble.source for trouble in found.troubles} <= {"usage"}
