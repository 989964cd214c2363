"""The pod of one replica, from the job's template and the wish."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from brain.types.job import JobId
from brain.types.world import ReplicaExit
from launcher.pod.program import RUN
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.documents import job_document, main_container
from scaler.kubernetes.kinds.fields import QUEUE
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import gang, identity
from scaler.kubernetes.pods.asking import asking
from scaler.kubernetes.pods.manifest import AgentInjection, manifest
from scaler.kubernetes.pods.orders import (
    Installation,
    elastic,
    exhausted,
    order,
    past,
    spares_of,
)
from scaler.kubernetes.pods.sight import look
from scaler.kubernetes.runtime import Object
from tests.kubernetes import jobs
from tests.kubernetes.clusters import only_emulated
from tests.kubernetes.predicates import refuses
from tests.scaler.wished import NOW, wish

AGENT = Installation(injection=AgentInjection(image="brain:1"), brain_url="http://brain:8080")
UID = "5f0c8f6e-6f4b-4a53-9a53-1d8f3e9a0c11"


def read(made: jobs.Object) -> ElasticJob:
    made["metadata"]["uid"] = UID
    return read_elastic_job(made)


def pod(
    made: jobs.Object, *, house: Installation = AGENT, pods: tuple[Object, ...] = (), id: int = 0
) -> dict[str, Any]:
    job = read(made)
    first = job_document(job).replicas.first
    wished = wish(first, job=JobId(UID))
    return manifest(order(job, wished, id, past(pods), house, now=NOW))


def main(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in main(pod)["env"]}


def ended(id: int, code: int, *, reason: str = "Error", because: str = "", rank: int = 0) -> Object:
    """A pod that failed with ``code`` on node ``n1``; ``because``: of what the cluster did."""
    container = {"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason}}}
    labels = identity.labels("digits", UID, "worker", id, rank=rank, relaunches=0)
    return {
        "metadata": {"name": identity.pod_name("digits", "worker", id), "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {"phase": "Failed", "reason": because, "containerStatuses": [container]},
    }


def test_a_pod_is_named_and_labelled_as_dlrover_does():
    made = pod(jobs.seed(), id=3)

    assert made["metadata"]["name"] == "torch-mnist-single-job-testing-1-edljob-worker-3"
    labels = made["metadata"]["labels"]
    assert labels["elasticjob.dlrover/replica-index"] == "3"
    assert (labels["app"], labels["some-label"]) == ("dlrover", "some-value")
    assert labels["app.kubernetes.io/managed-by"] == "brain-scaler"


def test_pods_never_restart_and_remember_what_the_template_said():
    made = pod(jobs.seed())

    assert made["spec"]["restartPolicy"] == "Never"
    assert made["metadata"]["annotations"]["elastic.iml.github.io/restart-policy"] == "Always"


def test_our_agent_stands_in_front_of_the_articles_command():
    made = pod(jobs.seed())
    told = json.loads(variables(made)["BRAIN_POD"])

    assert main(made)["command"] == ["/brain/bin/python3", "-E", "-P", "-m", "launcher.pod"]
    assert told["command"][:3] == ["dlrover-run", "--network-check", "--nnodes=1:10"]
    assert (told["job"], told["replica"], told["brain_url"]) == (UID, 0, "http://brain:8080")
    assert made["spec"]["initContainers"][0]["image"] == "brain:1"


def test_the_command_stands_where_kubernetes_puts_values_into_it():
    made = pod(jobs.job("python", "train.py", "--data=$(DATA)"))

    assert main(made)["args"] == [RUN, "python", "train.py", "--data=$(DATA)"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
def test_the_agent_is_copied_into_a_volume_that_is_roots_by_a_user_who_is_not():
    (copy,) = pod(jobs.job("brain-run", "t.py"))["spec"]["initContainers"]
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        image, volume = Path(made, "image"), Path(made, "volume")
        (image / "bin").mkdir(parents=True)
        (image / "bin" / "python3").write_text("#!")
        volume.mkdir()
        volume.chmod(0o777)
        words = [
            w.replace(" /brain", f" {volume}").replace("/opt/brain", str(image))
            for w in copy["command"]
        ]
        subprocess.run(words, user=65532, group=65532, extra_groups=[], check=True, timeout=60)

        assert (volume / "bin" / "python3").read_text() == "#!"


def test_switched_off_by_annotation_the_command_stays_as_it_is():
    made = jobs.seed()
    before = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["command"]
    made["metadata"]["annotations"] = {identity.INJECT: "off"}

    assert main(pod(made))["command"] == before
    assert not elastic(read(made), AGENT)


def test_torchrun_gets_its_rendezvous_and_no_rank():
    told = variables(pod(jobs.job("torchrun", "t.py", minReplicas=2, maxReplicas=4)))

    assert (told["PET_NNODES"], told["PET_RDZV_BACKEND"]) == ("1:4", "c10d")
    assert told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} & told.keys()


def test_torchrun_is_ours_where_the_job_asks():
    assert not elastic(read(jobs.job("torchrun", "t.py")), AGENT)
    made = jobs.job("torchrun", "t.py")
    made["metadata"]["annotations"] = {identity.TORCHRUN: "brain"}
    assert elastic(read(made), AGENT)


def test_torch_distributed_launch_is_told_its_nodes_rank():
    told = variables(pod(jobs.job("python", "-m", "torch.distributed.launch", "t.py", replicas=3)))

    assert (told["PET_NNODES"], told["PET_NODE_RANK"], told["MASTER_PORT"]) == ("3", "0", "29500")


def test_plain_python_without_us_is_a_process_of_its_own():
    told = variables(pod(jobs.job("python", "t.py", replicas=3), house=Installation()))

    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]) == ("0", "3", "0")


def test_an_entry_point_that_nobody_sees_gets_both_forms():
    told = variables(pod(jobs.job(replicas=2)))

    assert (told["RANK"], told["PET_NNODES"]) == ("0", "1:2")


def test_what_the_template_says_of_a_variable_stands():
    made = jobs.job("python", "t.py", replicas=2)
    container = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "RANK", "value": "7"}]

    assert variables(pod(made, house=Installation()))["RANK"] == "7"


def test_the_lowest_free_rank_goes_to_a_replacement():
    alive = [pod(jobs.job("brain-run", "t.py", replicas=3), id=id) for id in (0, 2)]
    alive[1]["metadata"]["labels"][identity.RANK] = "2"

    assert past(alive).rank == 1


def test_memory_grows_after_an_oom_kill():
    made = jobs.job("brain-run", "t.py", resources={"memory": "3Gi"})
    killed = ended(0, 137, reason="OOMKilled")

    assert main(pod(made, pods=(killed,)))["resources"]["requests"]["memory"] == "6Gi"


def test_a_node_whose_device_failed_is_avoided_by_its_name_and_not_by_its_label():
    made = pod(jobs.job("brain-run", "t.py"), pods=(ended(0, 201),))

    def node(name: str, host: str) -> Object:
        return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": host}}}

    assert refuses(node("n1", "other"), made) is not None
    assert refuses(node("n2", "n1"), made) is None


def test_only_failures_of_its_own_count_against_a_rank():
    assert past([ended(0, 1)]).relaunches == 1
    assert past([ended(0, 1, because="Evicted")]).relaunches == 0


def test_a_rank_that_failed_too_often_is_given_up():
    assert exhausted([ended(0, 1)], 0) is not None
    assert exhausted([ended(0, 1)], 1) is None


def test_a_replica_ends_as_its_main_container_whatever_admission_puts_first():
    made = jobs.job("brain-run", "t.py")
    jobs.main_of(made)["name"] = "train"
    found = pod(made)
    word = '{"exit": "left", "exit_code": 0, "at": "2026-11-21T12:00:00Z"}'
    states = [{"name": "mesh"}, {"name": "train", "message": word}]
    found["spec"]["containers"].insert(0, {"name": "mesh"})
    found["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": each.pop("name"), "state": {"terminated": {"exitCode": 0, **each}}}
            for each in states
        ],
    }

    assert look(found, 0).exit is ReplicaExit.LEFT
    assert main_container(found)["name"] == "train"


def test_pods_have_the_labels_of_their_job_but_for_its_queue():
    made = jobs.job("brain-run", "t.py")
    made["metadata"]["labels"] = {QUEUE: "research", "team": "a"}
    found, asks = pod(made), asking(read(made), "worker", 0, [], None)

    for each in (found, asks):
        labels = each["metadata"]["labels"]
        assert (QUEUE in labels, labels["team"]) == (False, "a")


def test_31_replicas_of_unit_4_run_as_28_and_3_stay_warm():
    job = read(jobs.job("brain-run", "t.py", replicas=31, unit=4))
    document = job_document(job)

    assert (document.replicas.first, spares_of(job, document)) == (28, 3)


def test_a_gang_is_gated_and_what_others_gate_stays_gated():
    made = jobs.job("brain-run", "t.py", minReplicas=2, maxReplicas=4)
    spec = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    spec["schedulingGates"] = [{"name": "quota"}]
    found = pod(made)

    assert gang.gated(found)
    assert gang.opened(found, {}) == {"spec": {"schedulingGates": [{"name": "quota"}]}}


@only_emulated("on a cluster templates name a scheduler of the tests' own")
def test_volcano_admits_where_it_is_installed():
    made = jobs.job("brain-run", "t.py", minReplicas=2, maxReplicas=4)
    found = pod(made, house=Installation(volcano=True))

    assert found["spec"]["schedulerName"] == "volcano"
    assert found["metadata"]["annotations"][gang.GROUP] == "digits-edljob-worker"
    assert not gang.gated(found)


@pytest.mark.parametrize("job", ["digits", "7b", "a" * 63, "a" * 62 + "b", "0" * 63])
@pytest.mark.parametrize("role", ["worker", "ps", "chief", "evaluator"])
def test_services_have_names_that_kubernetes_takes_whatever_the_job_is_called(job: str, role: str):
    name = identity.service_name(job, role)

    assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", f"{name}-16384")
    assert name != identity.service_name(f"{job[:-1]}c", role)


@only_emulated("on a cluster templates name a scheduler of the tests' own")
def test_a_job_may_keep_volcano_away():
    made = jobs.job("brain-run", "t.py", minReplicas=2, maxReplicas=4, BatchScheduler="default")
    found = pod(made, house=Installation(volcano=True))

    assert gang.gated(found)
    assert "schedulerName" not in found["spec"]


@pytest.mark.parametrize(
    ("flags", "template", "told", "pod_seconds"),
    [
        ((), {}, 30, 55),
        ((), {"terminationGracePeriodSeconds": 30}, 30, 55),
        ((), {"terminationGracePeriodSeconds": 600}, 575, 600),
        (("--shutdown-timeout=100",), {}, 100, 125),
        (("--shutdown-timeout=100",), {"terminationGracePeriodSeconds": 600}, 100, 600),
    ],
)
def test_a_pod_has_the_time_that_its_script_has_to_save(
    flags: tuple[str, ...], template: dict[str, Any], told: float, pod_seconds: int
):
    made = jobs.job("brain-run", *flags, "train.py")
    made["spec"]["replicaSpecs"]["worker"]["template"]["spec"] |= template

    ordered = pod(made)

    assert ordered["spec"]["terminationGracePeriodSeconds"] == pod_seconds
    intent = json.loads(variables(ordered)["BRAIN_POD"])
    assert intent["checkpoint"]["grace_seconds"] == told


def test_the_document_says_the_grace_before_the_command_does():
    made = jobs.job(
        "brain-run", "--shutdown-timeout=100", "train.py", spec={"checkpoint": {"graceSeconds": 7}}
    )
    assert pod(made)["spec"]["terminationGracePeriodSeconds"] == 32


def test_the_time_of_a_pod_that_no_agent_of_ours_runs_is_its_templates():
    made = jobs.job("torchrun", "train.py")
    assert "terminationGracePeriodSeconds" not in pod(made)["spec"]
