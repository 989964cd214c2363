"""A cluster without a Brain: jobs are admitted and healed, and nothing is decided."""

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.clusters import here
from tests.kubernetes.test_acceptance import NAMESPACE, SCRIPT, Cluster, cluster, rights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
]
Json = dict[str, Any]


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with nothing of ours in it but the kinds and an account."""
    with cluster(tmp_path) as made:
        made.kubectl("create", "namespace", NAMESPACE)
        made.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights()))
        yield made


def job(directory: Path, **spec: Any) -> Json:
    """Two replicas that train until a file comes."""
    command = ["dlrover-run", "--nproc_per_node=1", str(SCRIPT), f"{directory}/end"]
    command += ["--batch", "64", "--save-every", "5", "--checkpoint", f"{directory}/digits.pt"]
    container = {"name": "main", "image": "digits:1", "command": command}
    container["resources"] = {"requests": {"cpu": "1"}}
    worker: Json = {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}
    worker["template"] = {"spec": here({"containers": [container]})}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "digits", "namespace": NAMESPACE},
        "spec": {
            "optimizeMode": "manual",
            "checkpoint": {"path": f"{directory}/digits.pt"},
            "replicaSpecs": {"worker": worker},
            **spec,
        },
    }


def condition(it: Cluster, type: str) -> tuple[str, str]:
    for each in it.status().get("conditions") or ():
        if each["type"] == type:
            return each["status"], each.get("message", "")
    return "", ""


def steps(it: Cluster, directory: Path) -> int:
    """The last step that any replica printed."""
    said = [file.read_text(errors="replace") for file in directory.glob("pods/**/main.log")]
    return max((int(step) for text in said for step in re.findall(r"step (\d+)", text)), default=0)


def goes_on(it: Cluster, directory: Path, what: str) -> None:
    before = steps(it, directory)
    it.until(f"{what}: it trains on", lambda: steps(it, directory) > before + 10)


def runs(it: Cluster, replicas: int) -> bool:
    status = it.status()
    return (status.get("phase"), status.get("readyReplicas")) == ("Running", replicas)


def coordinator(it: Cluster) -> str:
    """The name of the pod with the lowest id, which coordinates first."""
    return f"digits-edljob-{min(it.pods(), key=lambda name: int(name.rpartition('-')[2]))}"


def lose(it: Cluster, pod: str) -> None:
    """Have a pod end at once, as one does whose node dies."""
    it.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def test_without_a_brain_jobs_are_admitted_and_healed_and_a_resize_waits(
    it: Cluster, tmp_path: Path
) -> None:
    it.address = "none"
    it.start_operator()
    it.create(job(tmp_path))
    it.until("two replicas run", lambda: runs(it, 2))
    goes_on(it, tmp_path, "begun")
    assert condition(it, "Telemetry") == (
        "False",
        "the operator runs without a Brain, so nothing is measured",
    )

    # A lost replica is replaced, the one that coordinates too, by whichever operator there is.
    before = it.pods()
    it.kubectl("delete", "pod", coordinator(it), "--wait=false")
    it.until("another takes its place", lambda: len(it.pods()) == 2 and it.pods() != before)
    goes_on(it, tmp_path, "healed")
    assert it.operator is not None
    it.operator.send_signal(signal.SIGKILL)
    it.operator.wait()
    before = it.pods()
    lose(it, coordinator(it))
    it.start_operator()
    it.until("the next one heals", lambda: len(it.pods()) == 2 and it.pods() != before)
    assert len(it.pods().items() & before.items()) == 1
    it.until("it runs", lambda: runs(it, 2))
    goes_on(it, tmp_path, "healed again")

    # Nobody decides about a size.
    it.kubectl("scale", "elasticjob", "digits", "--replicas=3")
    it.until("the resize waits", lambda: condition(it, "ResizeWaiting")[0] == "True")
    assert "3 replicas were requested" in condition(it, "ResizeWaiting")[1]
    assert "--brain URL" in condition(it, "ResizeWaiting")[1]
    assert len(it.pods()) == 2
    it.kubectl("scale", "elasticjob", "digits", "--replicas=2")
    it.until("it is taken back", lambda: condition(it, "ResizeWaiting")[0] == "False")

    for value, count in (("true", 0), ("false", 2)):
        patch = f'{{"spec":{{"suspend":{value}}}}}'
        it.kubectl("patch", "elasticjob", "digits", "--type=merge", "-p", patch)
        it.until(f"suspend: {value}", lambda count=count: len(it.pods()) == count)  # type: ignore[misc]
    it.until("it runs", lambda: runs(it, 2))
    goes_on(it, tmp_path, "resumed")

    (tmp_path / "end").touch()
    it.until("the job has succeeded", lambda: it.status().get("phase") == "Succeeded")


def test_a_job_that_somebody_has_to_decide_about_is_not_admitted(
    it: Cluster, tmp_path: Path
) -> None:
    it.address = "none"
    it.start_operator()
    it.create(job(tmp_path, optimizeMode="single-job"))
    it.until("it says so", lambda: "optimizeMode: manual" in condition(it, "Accepted")[1])
    assert not it.pods()
    patch = '{"spec":{"optimizeMode":"manual"}}'
    it.kubectl("patch", "elasticjob", "digits", "--type=merge", "-p", patch)
    it.until("it runs", lambda: runs(it, 2))


def test_a_brain_is_taken_off_a_cluster_whose_jobs_train_on(it: Cluster, tmp_path: Path) -> None:
    it.start_brain()
    it.start_operator()
    it.create(job(tmp_path))
    it.until("two replicas train", lambda: it.trains(2))
    it.says("resize", "digits", "3")
    it.until("three replicas train", lambda: it.trains(3))
    before = it.pods()

    for program in (it.brain, it.operator):
        assert program is not None
        program.send_signal(signal.SIGTERM)
        program.wait()
    it.brain, it.address = None, "none"
    it.start_operator()
    goes_on(it, tmp_path, "without Brain")
    it.until("all three run", lambda: runs(it, 3))
    # Nobody was started anew, and the size is the one that Brain gave.
    assert it.pods() == before

    lose(it, coordinator(it))
    it.until("another takes its place", lambda: len(it.pods()) == 3 and it.pods() != before)
    goes_on(it, tmp_path, "healed")
    (tmp_path / "end").touch()
    it.until("the job has succeeded", lambda: it.status().get("phase") == "Succeeded")
