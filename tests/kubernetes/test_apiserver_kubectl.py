"""The real ``kubectl`` works against the emulator, as against a real server."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.clusters import namespace
from tests.kubernetes.real import Ground, ground

TEAM = namespace("trains")
Kubectl = Callable[..., str]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: trains, singular: train, kind: Train, shortNames: [tr]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.cars, statusReplicasPath: .status.cars}
      additionalPrinterColumns:
        - {name: Cars, type: integer, jsonPath: .spec.cars}
        - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [cars]
              properties:
                cars: {type: integer, minimum: 1, description: How many cars it has.}
            status:
              type: object
              x-kubernetes-preserve-unknown-fields: true
"""
TRAIN = """
apiVersion: example.com/v1
kind: Train
metadata: {name: ice}
spec: {cars: 3}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    directory = tmp_path_factory.mktemp("kubectl")
    file = directory / "definition.yaml"
    file.write_text(DEFINITION)
    with ground(directory, definitions=[file]) as made:
        made.hands.create(("", "namespaces"), {"metadata": {"name": TEAM}})
        yield made


@pytest.fixture
def kubectl(server: Ground, tmp_path: Path) -> Kubectl:
    """Runs kubectl; returns what it printed."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def run(*words: str, given: str = "", code: int = 0, **_: Any) -> str:
        command = ["kubectl", "--kubeconfig", str(server.kubeconfig_for("", TEAM)), *words]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, env=environ, timeout=110
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def train(kubectl: Kubectl) -> Iterator[None]:
    """A train that is there."""
    kubectl("apply", "-f", "-", given=TRAIN)
    yield
    kubectl("delete", "train", "ice", "--ignore-not-found")


@pytest.mark.usefixtures("train")
def test_applying_again_changes_nothing(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", given=TRAIN) == "train.example.com/ice unchanged\n"


@pytest.mark.usefixtures("train")
def test_get_prints_the_columns_of_the_kind(kubectl: Kubectl) -> None:
    lines = kubectl("get", "tr").splitlines()
    assert (lines[0].split(), lines[1].split()[:2]) == (["NAME", "CARS", "AGE"], ["ice", "3"])


def test_explain_tells_what_a_field_is(kubectl: Kubectl) -> None:
    assert "How many cars it has." in kubectl("explain", "train.spec.cars")


@pytest.mark.usefixtures("train")
def test_scale_writes_the_replicas(kubectl: Kubectl) -> None:
    kubectl("scale", "train/ice", "--replicas=5")
    assert kubectl("get", "train", "ice", "-o", "jsonpath={.spec.cars}") == "5"


@pytest.mark.usefixtures("train")
def test_applying_over_a_scale_conflicts_until_forced(kubectl: Kubectl) -> None:
    kubectl("scale", "train/ice", "--replicas=5")
    told = kubectl("apply", "--server-side", "-f", "-", given=TRAIN, code=1)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=TRAIN)
    assert ".spec.cars" in told
    assert kubectl("get", "train", "ice", "-o", "jsonpath={.spec.cars}") == "3"


def test_what_breaks_the_schema_is_refused_with_field_and_value(kubectl: Kubectl) -> None:
    told = kubectl("apply", "-f", "-", given=TRAIN.replace("cars: 3", "cars: 0"), code=1)
    assert "spec.cars in body should be greater than or equal to 1" in told


def test_an_unknown_field_is_refused(kubectl: Kubectl) -> None:
    told = kubectl("apply", "-f", "-", given=TRAIN.replace("cars: 3", "cars: 3, x: 1"), code=1)
    assert 'unknown field "spec.x"' in told


@pytest.mark.usefixtures("train")
def test_wait_returns_when_a_condition_holds(server: Ground, kubectl: Kubectl) -> None:
    condition = {"type": "Ready", "status": "True"}
    server.patch_status("trains", TEAM, "ice", {"conditions": [condition]}, "tests", "example.com")
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "train/ice")


@pytest.mark.usefixtures("train")
def test_describe_shows_an_object_and_its_events(server: Ground, kubectl: Kubectl) -> None:
    uid = kubectl("get", "train", "ice", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "ice.1", "namespace": TEAM},
        "involvedObject": {
            "apiVersion": "example.com/v1", "kind": "Train", "name": "ice",
            "namespace": TEAM, "uid": uid,
        },
        "reason": "Departed",
        "message": "left the station",
        "type": "Normal",
    }  # fmt: skip
    kubectl("create", "-f", "-", given=json.dumps(event))
    assert "left the station" in kubectl("describe", "train", "ice")


def test_a_namespace_comes_and_goes(server: Ground, kubectl: Kubectl) -> None:
    if not server.collects:
        pytest.skip("no controller lets namespaces go here")
    name = namespace("brief")
    kubectl("create", "namespace", name)
    assert kubectl("delete", "namespace", name) == f'namespace "{name}" deleted\n'
