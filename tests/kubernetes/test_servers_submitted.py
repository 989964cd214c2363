"""A job with parameter servers on a cluster: Brain's agents connect them, Brain measures each, and
plans change their number and their memory. Kubelets are played; they start real processes.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collectors.test_probe_tensorflow import MODULES
from tests.kubernetes.clusters import real_kubeconfig
from tests.kubernetes.test_acceptance import GROUP, NAMESPACE, Cluster, cluster
from tests.kubernetes.test_submitting import POOL, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(real_kubeconfig()), reason="needs nodes of ours for a document's pods"),
]
STAND_IN = Path(__file__).parents[1] / "scripts" / "served.py"
GIB = 2**30
Json = dict[str, Any]


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose operator takes submissions to one namespace."""
    with cluster(tmp_path) as made:
        made.take_submissions()
        made.until("nodes are there", lambda: "n0" in made.command("nodes").stdout)
        yield made


def document(directory: Path, *command: str, **fields: Any) -> str:
    """The path of a document: one chief, one server of 2 GiB, and one worker."""
    made: Json = {
        "name": "ads",
        "image": "registry.example/ads:1",
        "command": list(command),
        "directory": str(directory),
        "replicas": {"min": 3, "max": 5},
        "resources": {"cpuMillis": 2000, "memoryBytes": GIB},
        "policy": {"mode": "approve"},
        "roles": {
            "chief": {"replicas": 1},
            "ps": {"replicas": 1, "resources": {"cpuMillis": 2000, "memoryBytes": 2 * GIB}},
        },
    }
    path = directory / "ads.yaml"
    path.write_text(yaml.safe_dump(made | fields))
    return str(path)


def pods(it: Cluster) -> dict[str, list[tuple[str, str]]]:
    """Name and requested memory of the pods that run, by role."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pod in it.server.objects("pods", "", NAMESPACE):
        metadata = pod["metadata"]
        if pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in metadata:
            role = metadata["labels"].get(f"{GROUP}/group", "worker")
            memory = pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
            found.setdefault(role, []).append((metadata["name"], memory))
    return found


def detail(it: Cluster) -> Json:
    found: Json = json.loads(it.says("job", "ads", "-o", "json"))
    return found


def trains(it: Cluster, *, without: str = "", **roles: int) -> bool:
    """Whether a world with so many replicas of each role steps, and the object says so."""
    world = detail(it)["world"] or {}
    members = world.get("members", ())
    here = [member["role"] for member in members]
    groups = it.status()["roles"][0].get("groups", ())
    told = {one["name"]: one["ready"] for one in groups}
    return (
        bool(world.get("stepping_at") and not world["ended_at"])
        and {role: here.count(role) for role in set(here)} == roles == told
        and without not in [f"ads-edljob-worker-{member['replica']}" for member in members]
        and here[0] == "chief"
    )


def verdict(it: Cluster) -> str:
    """The verdict about the plan that a person asked for; empty before it is given."""
    plans = [one["plan"] for one in json.loads(it.says("plans", "ads", "-o", "json"))]
    asked = next(plan for plan in plans if plan["kind"] == "request")
    return str(asked["outcome"]["verdict"] or "")


def busy(it: Cluster) -> str:
    """How busy Brain finds the servers."""
    decision = detail(it)["job"]["decision"] or {}
    facts = decision.get("explanation", {}).get("evidence", ())
    return next((one["value"] for one in facts if one["label"] == "parameter servers"), "")


def test_servers_are_measured_and_plans_change_their_number_and_memory(
    it: Cluster, tmp_path: Path
) -> None:
    for name, text in MODULES.items():
        module = tmp_path / "tensorflow" / "python" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    command = (sys.executable, str(STAND_IN), str(tmp_path / "end"))
    environment = {"PYTHONPATH": str(tmp_path)}
    refused = it.command("submit", "--pool", POOL, "-f", document(tmp_path, "./train"))
    assert "let the command begin with python or brain-run" in refused.stderr
    it.says("submit", "--pool", POOL, "-f", document(tmp_path, *command, environment=environment))
    it.until("a server is there", lambda: trains(it, chief=1, ps=1, worker=1))
    before = pods(it)
    memory = {role: [amount for _, amount in some] for role, some in before.items()}
    assert memory == {"chief": [f"{GIB}"], "ps": [f"{2 * GIB}"], "worker": [f"{GIB}"]}
    it.until("Brain measures the server", lambda: busy(it).startswith("1, which use "))

    it.says("edit", "ads", "--role=ps", "--replicas=2", "--memory=3Gi")
    it.until("there is another", lambda: trains(it, chief=1, ps=2, worker=1))
    it.until("both have more", lambda: [m for _, m in pods(it)["ps"]] == ["3Gi", "3Gi"])
    assert pods(it)["chief"] == before["chief"]
    it.until("the plan is judged", lambda: verdict(it))
    assert "place chief 0 2 1" in it.says("logs", "ads")

    it.says("rollback", "ads")
    it.until("one server is left", lambda: trains(it, chief=1, ps=1, worker=1))
    it.until("it has what it had", lambda: [m for _, m in pods(it)["ps"]] == ["2Gi"])

    lost = pods(it)["ps"][0][0]
    it.kubectl("delete", "pod", lost, "--wait=false")
    it.until("it is replaced", lambda: trains(it, without=lost, chief=1, ps=1, worker=1))
    assert pods(it)["chief"] == before["chief"]

    it.create(plan(ps=2))
    it.until("a plan adds one", lambda: trains(it, chief=1, ps=2, worker=1))
    (tmp_path / "end").touch()
    it.until("its chief has ended the job", lambda: state(it, "ads") == "Succeeded")
    it.until("no pod is left running", lambda: not it.pods())


def plan(**replicas: int) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ScalePlan",
        "metadata": {"name": "more", "namespace": NAMESPACE},
        "spec": {
            "ownerJob": "ads",
            "replicaResourceSpecs": {name: {"replicas": n} for name, n in replicas.items()},
        },
    }
