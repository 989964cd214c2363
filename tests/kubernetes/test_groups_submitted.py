"""A job whose replicas differ, on a cluster: submitted as a document, resized in three ways."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.kubernetes.clusters import real_kubeconfig
from tests.kubernetes.test_acceptance import GROUP, NAMESPACE, Cluster, cluster
from tests.kubernetes.test_submitting import POOL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(real_kubeconfig()), reason="needs nodes of two made-up types"),
]
SCRIPT = Path(__file__).parents[1] / "scripts" / "ranked.py"
#: A node of four accelerators of each of two types.
NODES = (
    ("a", "nvidia.com/gpu.product", "nvidia.com/gpu"),
    ("b", "amd.com/gpu.product-name", "amd.com/gpu"),
)
LABEL = "elastic.iml.github.io/group"
Json = dict[str, Any]


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose operator takes submissions to one namespace."""
    with cluster(tmp_path) as made:
        made.take_submissions()
        for name, label, resource in NODES:
            more = {"labels": {label: name.upper()}, "more": {resource: "4"}}
            made.kubelet.add_nodes(name, cpu="32", memory="64Gi", **more)
        made.until("nodes are there", lambda: "B" in made.command("nodes").stdout.split())
        yield made


def document(directory: Path, **fields: Any) -> str:
    """The path of a document: two replicas of one process, and one of two."""
    made = {
        "name": "mixed",
        "image": "registry.example/ranked:1",
        "command": [sys.executable, str(SCRIPT)],
        "directory": str(directory),
        "replicas": {"min": 3, "max": 5},
        "resources": {"cpuMillis": 1000, "memoryBytes": 2**30, "gpus": 2},
        "accelerator": "A",
        "policy": {"mode": "auto"},
        "groups": {
            "large": {
                "replicas": 1,
                "processesPerReplica": 2,
                "resources": {"cpuMillis": 2000, "memoryBytes": 2**31, "gpus": 2},
                "accelerator": "B",
            }
        },
    }
    path = directory / "mixed.yaml"
    path.write_text(yaml.safe_dump(made | fields))
    return str(path)


def of_group(it: Cluster, name: str | None) -> dict[str, Json]:
    """The pods of a group that run, by name; None: those outside the groups."""
    return {
        pod["metadata"]["name"]: pod
        for pod in it.server.objects("pods", "", NAMESPACE)
        if pod["metadata"]["labels"].get(LABEL) == name
        and (pod.get("status") or {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    }


def held(pods: Iterable[Json]) -> list[tuple[str, Json]]:
    """The node of each pod, and the amounts that it requests."""
    return [
        (pod["spec"]["nodeName"], pod["spec"]["containers"][0]["resources"]["requests"])
        for pod in pods
    ]


def groups(it: Cluster) -> list[tuple[str, int, int]]:
    """Name, desired and ready replicas of each group, as the object tells them."""
    role = next((one for one in it.status().get("roles", ()) if one["name"] == "worker"), {})
    return [(one["name"], one["desired"], one["ready"]) for one in role.get("groups", ())]


def steps(it: Cluster, processes: int, *, large: int, without: str = "") -> bool:
    """Whether a world of so many processes steps, with so many replicas of the group."""
    token = (it.home / "admin.token").read_text().strip()
    address = f"http://127.0.0.1:{it.port}/api/v1/jobs/{it.job()['metadata']['uid']}"
    answer = httpx2.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    world = answer.json()["world"] or {}
    members = world.get("members", ())
    assert answer.status_code == 200, answer.text
    return (
        bool(world.get("stepping_at") and not world["ended_at"])
        and sum(one["processes"] for one in members) == processes
        and sum(one["role"] == "large" for one in members) == large
        and without not in [f"mixed-edljob-worker-{one['replica']}" for one in members]
    )


def until(it: Cluster, large: int, **more: Any) -> None:
    """Wait until two workers of one process and ``large`` of two train, and the object says so."""
    it.until(f"{large} of the group train", lambda: steps(it, 2 + 2 * large, large=large, **more))
    told = [("worker", 2, 2), ("large", large, large)]
    it.until("the object tells both groups", lambda: groups(it) == told)


def test_groups_of_a_document_train_on_a_cluster_and_are_resized_one_by_one(
    it: Cluster, tmp_path: Path
) -> None:
    it.says("submit", "--pool", POOL, "-f", document(tmp_path))
    until(it, 1)
    small, large = (
        {"cpu": f"{cpus}", "memory": str(cpus * 2**30), resource: "2"}
        for cpus, (_, _, resource) in enumerate(NODES, 1)
    )
    assert held(of_group(it, None).values()) == 2 * [("a", small)]
    assert held(of_group(it, "large").values()) == [("b", large)]

    it.says("edit", "mixed", "--role=large", "--replicas=2")
    until(it, 2)
    workers = of_group(it, None).keys()

    lost = min(of_group(it, "large"))
    it.kubectl("delete", "pod", lost, "--wait=false")
    until(it, 2, without=lost)
    assert len(of_group(it, "large").keys() - {lost}) == 2
    assert of_group(it, None).keys() == workers

    it.create(plan("large", 1))
    until(it, 1)
    status = next(one["status"] for one in it.plans() if one["metadata"]["name"] == "fewer")
    assert status["target"]["roles"] == {"worker": {"replicas": 3}, "large": {"replicas": 1}}

    patch = {"spec": {"replicaSpecs": {"worker": {"groups": {"large": {"replicas": 2}}}}}}
    it.kubectl("patch", "elasticjob", "mixed", "--type=merge", "-p", json.dumps(patch))
    until(it, 2)
    answer = it.status()["request"]
    assert (answer["outcome"], answer["granted"], answer["groups"]) == ("accepted", 4, {"large": 2})

    (tmp_path / "end").touch()
    it.until("the job has succeeded", lambda: it.status().get("phase") == "Succeeded")


def plan(group: str, replicas: int) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ScalePlan",
        "metadata": {"name": "fewer", "namespace": NAMESPACE},
        "spec": {"ownerJob": "mixed", "replicaResourceSpecs": {group: {"replicas": replicas}}},
    }
