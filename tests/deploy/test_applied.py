"""The real kubectl applies what lies in the repository, without Helm."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.jobs import SEED

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("apiserver"), definitions=()) as running:
        yield running


def kubectl(server: Server, *words: str, given: str = "") -> str:
    """What it prints; it must succeed."""
    command = ["kubectl", "--kubeconfig", str(server.kubeconfig), *words]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=100)
    except FileNotFoundError:
        pytest.skip("kubectl is not installed here")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_file_is_a_whole_trial_and_a_job_can_be_submitted_to_it(server: Server) -> None:
    applied = kubectl(server, "apply", "-f", str(DEPLOY / "plain" / "brain.yaml"))
    for made in (
        "customresourcedefinition.apiextensions.k8s.io/elasticjobs.elastic.iml.github.io",
        "deployment.apps/brain",
        "deployment.apps/brain-scaler",
        "statefulset.apps/brain-postgresql",
    ):
        assert f"{made} created" in applied
    kubectl(server, "create", "namespace", "dlrover")
    assert "created" in kubectl(server, "apply", "-f", "-", given=SEED)
    listed = kubectl(server, "get", "ej", "--all-namespaces")
    assert "torch-mnist-single-job-testing-1" in listed


def test_a_field_is_explained_where_people_ask(server: Server) -> None:
    kubectl(server, "apply", "-f", str(DEPLOY / "crds" / "elasticjobs.yaml"))
    told = kubectl(server, "explain", "elasticjob.spec.replicaSpecs.unit")
    assert "added or removed together" in told
