"""`brain migrate --crds`: kinds come to this version, and no stored field is lost by it."""

import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from brain.errors import Conflict
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.fields import GROUP, VERSION
from scaler.kubernetes.kinds.generate.schema import definition
from scaler.kubernetes.kinds.upgrade import DEFINITIONS, Step, losses, main, step, upgrade
from scaler.kubernetes.runtime.cluster import NAMESPACE, Cluster, Kind, NotFound, connect
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.clusters import namespace
from tests.kubernetes.jobs import job

JOBS = Kind(GROUP, VERSION, ElasticJob.PLURAL, "ElasticJob")
#: Of the builders' jobs.
TEAM = namespace("team")
NAMES = {"elasticjobs.elastic.iml.github.io", "scaleplans.elastic.iml.github.io"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, definitions=()) as running:
        yield running


@pytest.fixture
def cluster(server: Server) -> Iterator[Cluster]:
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
    cluster.create(NAMESPACE, {"metadata": {"name": TEAM}})
    yield cluster
    cluster.close()


def newer() -> dict[str, Any]:
    """A definition of a version to come, whose spec has a field that this one does not know."""
    crd = deepcopy(definition(ElasticJob))
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["properties"]["colour"] = {"type": "string"}
    return crd


def test_kinds_that_are_not_there_are_made_and_then_left_alone(cluster: Cluster) -> None:
    assert upgrade(cluster) == dict.fromkeys(NAMES, Step.CREATE)
    assert upgrade(cluster) == dict.fromkeys(NAMES, Step.KEEP)
    cluster.create(JOBS, job("torchrun", "train.py"))


def test_a_dry_run_says_and_does_nothing(cluster: Cluster) -> None:
    assert upgrade(cluster, dry_run=True) == dict.fromkeys(NAMES, Step.CREATE)
    with pytest.raises(NotFound):
        cluster.get(DEFINITIONS, "", "elasticjobs.elastic.iml.github.io")


def test_a_downgrade_that_would_drop_a_stored_field_is_refused_and_changes_nothing(
    cluster: Cluster,
) -> None:
    cluster.create(DEFINITIONS, newer())
    cluster.create(JOBS, job("torchrun", "train.py", spec={"colour": "green"}))
    with pytest.raises(Conflict, match=rf"{TEAM}/digits: spec\.colour.*remove those fields first"):
        upgrade(cluster)
    assert cluster.get(JOBS, TEAM, "digits")["spec"]["colour"] == "green"


def test_a_downgrade_by_which_nothing_is_lost_is_made(cluster: Cluster) -> None:
    cluster.create(DEFINITIONS, newer())
    cluster.create(JOBS, job("torchrun", "train.py"))
    done = upgrade(cluster)
    assert done["elasticjobs.elastic.iml.github.io"] is Step.UPDATE
    stored = cluster.get(DEFINITIONS, "", "elasticjobs.elastic.iml.github.io")
    schema = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert "colour" not in schema["properties"]["spec"]["properties"]


def test_the_command_tells_what_it_did(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kubeconfig", str(server.kubeconfig)]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [f"{n} created" for n in sorted(NAMES)]


def test_the_command_says_what_it_cannot_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--kubeconfig", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("brain migrate --crds: ")


def test_brain_migrate_crds_is_this_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "brain.cli", "migrate", "--crds", "--kubeconfig"]
    ended = subprocess.run([*command, tmp_path / "none"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("brain migrate --crds: ")


def test_what_a_server_adds_to_a_definition_is_no_difference() -> None:
    stored = deepcopy(definition(ElasticJob)) | {"status": {"storedVersions": ["v1alpha1"]}}
    stored["metadata"]["uid"] = "u"
    stored["spec"]["conversion"] = {"strategy": "None"}
    assert step(definition(ElasticJob), stored) is Step.KEEP
    assert step(definition(ElasticJob), newer()) is Step.UPDATE


def test_free_parts_lose_nothing() -> None:
    schema = definition(ElasticJob)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    obj = job("torchrun", "train.py", spec={"envs": {"A": {"value": "1", "x": {"y": 1}}}})
    obj["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["new"] = {"deep": True}
    obj["spec"]["replicaSpecs"]["worker"]["priorityy"] = "high"
    (lost,) = losses(schema, [obj])
    assert (lost.object, lost.fields) == (f"{TEAM}/digits", ("spec.replicaSpecs.worker.priorityy",))
