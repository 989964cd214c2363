"""A person who knows the service alone has jobs trained on a cluster: ``brain submit --pool``."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.clusters import here, real_kubeconfig
from tests.kubernetes.test_acceptance import (
    GROUP,
    NAMESPACE,
    SCRIPT,
    SECONDS,
    Cluster,
    cluster,
)

pytestmark = pytest.mark.timeout(900)
POOL = "kubernetes"
SERVING = Path(__file__).parents[1] / "scripts" / "serving.py"
#: Says what it was given, then trains until a file comes.
TRAIN = f"""\
import os, runpy, sys
print("greeting", os.environ["GREETING"], "rank", os.environ["RANK"], flush=True)
sys.argv[0] = {str(SCRIPT)!r}
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose operator takes submissions to one namespace."""
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        made.take_submissions(*(marking() if real_kubeconfig() else ()))
        made.until("nodes are there", lambda: "n0" in made.command("nodes").stdout)
        yield made
        for obj in marking() if real_kubeconfig() else ():
            made.kubectl("delete", obj["kind"], obj["metadata"]["name"])


def marking() -> list[dict[str, Any]]:
    """A policy that leads jobs of documents to our nodes (1.36), as others' jobs say themselves."""
    group, name = "admissionregistration.k8s.io/v1", {"metadata": {"name": NAMESPACE}}
    rule = {"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE"]}
    where = "/spec/replicaSpecs/worker/template/spec/"
    patches = (
        f'JSONPatch{{op: "add", path: "{where}{field}", value: {json.dumps(value)}}}'
        for field, value in here({}).items()
    )
    patch = {"expression": f"[{', '.join(patches)}]"}
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule | {"resources": ["elasticjobs"]}]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": patch}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    binding = {"policyName": NAMESPACE, "matchResources": {"namespaceSelector": selector}}
    return [
        {"apiVersion": group, "kind": kind, **name, "spec": spec}
        for kind, spec in (
            ("MutatingAdmissionPolicy", policy),
            ("MutatingAdmissionPolicyBinding", binding),
        )
    ]


@pytest.fixture
def it(shared: Cluster) -> Iterator[Cluster]:
    """That cluster, without jobs, policies and quotas of other tests."""
    yield shared
    shared.kubectl("delete", "elasticjobs,resourcequotas", "--all")
    if not shared.server.collects:
        # Pods outlive their job's object, and the next test would see them.
        shared.kubectl("delete", "pods", "--all")
    of_all = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    shared.kubectl("delete", of_all, "costs", "--ignore-not-found")
    shared.until("no job is left", lambda: not shared.job() and not shared.pods())


def document(directory: Path, **fields: Any) -> str:
    """The path of a job document, written there beside its script."""
    (directory / "train.py").write_text(TRAIN)
    command = [sys.executable, f"{directory}/train.py", f"{directory}/end", "--batch", "64"]
    command += ["--save-every", "5", "--checkpoint", f"{directory}/digits.pt"]
    made = {
        "name": "digits",
        "image": "registry.example/digits:1",
        "command": command,
        "replicas": {"min": 1, "max": 3, "start": 2},
        "optimizeMode": "manual",
        "checkpoint": {"path": f"{directory}/digits.pt"},
        "environment": {"GREETING": "hello there"},
    }
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in (made | fields).items() if v is not None}))
    return str(path)


def state(it: Cluster, name: str = "digits") -> str:
    return str(json.loads(it.says("job", name, "-o", "json"))["job"]["state"])


@pytest.mark.slow
def test_a_submitted_job_is_trained_resized_suspended_read_and_cancelled(
    it: Cluster, tmp_path: Path
) -> None:
    path = document(tmp_path)
    assert "Queued" in it.says("submit", "--pool", POOL, "-f", path, "--dry-run")
    assert it.job() == {}
    it.says("submit", "--pool", POOL, "-f", path)

    # The object is its submitter's by an annotation; values are in a Secret that goes with it.
    made = it.job()
    assert made["metadata"]["annotations"]["elastic.iml.github.io/owner"] == "admin"
    assert "hello there" not in json.dumps(it.server.objects("elasticjobs", GROUP, NAMESPACE))
    secrets = {one["metadata"]["name"]: one for one in it.server.objects("secrets", "", NAMESPACE)}
    kept = secrets["digits-environment"]
    assert base64.b64decode(kept["data"]["GREETING"]) == b"hello there"
    assert kept["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert (
        json.loads(it.says("job", "digits", "-o", "json"))["job"]["id"] == (made["metadata"]["uid"])
    )

    it.until("two replicas train", lambda: it.trains(2))
    assert "digits" in it.says("jobs")

    # Output comes through the API server: of all, of one rank, of the one before, and on and on.
    assert it.says("logs", "digits").count("greeting hello there") == 2
    assert "rank 1" in it.says("logs", "digits", "--rank", "1")
    assert "rank 0" not in it.says("logs", "digits", "--rank", "1")
    output = tmp_path / "followed"
    with output.open("w") as out:
        words = [sys.executable, "-m", "brain.cli", "logs", "-f", "digits"]
        follower = subprocess.Popen(words, env=it.environ, stdout=out)

    it.says("resize", "digits", "3", "--why", "more")
    it.until("three replicas train", lambda: it.trains(3))
    it.says("resize", "digits", "2")
    it.until("one has left", lambda: it.trains(2) and len(it.pods()) == 2)
    it.says("suspend", "digits")
    it.until("it is suspended", lambda: state(it) == "Suspended" and not it.pods())
    it.says("resume", "digits")
    it.until("it trains again", lambda: it.trains(2))
    assert "greeting" in it.says("logs", "digits", "--rank", "0")

    (tmp_path / "end").touch()
    it.until("the job has succeeded", lambda: state(it) == "Succeeded")
    # Whoever follows hears replicas that came later, and is sent home with the job.
    assert follower.wait(SECONDS) == 0
    assert output.read_text().count("greeting hello there") >= 5

    # The name is the object's until that is deleted.
    again = it.command("submit", "--pool", POOL, "-f", path)
    assert again.returncode == 5
    assert "exists already (Succeeded)" in again.stderr


def test_a_submission_that_cannot_be_is_refused_with_field_and_remedy(
    it: Cluster, tmp_path: Path
) -> None:
    def refused(*words: str, **fields: Any) -> str:
        done = it.command("submit", "-f", document(tmp_path, **fields), *words)
        assert done.returncode not in (0, 3), done.stdout
        return done.stderr

    assert "pool 'nowhere' has no scaler; pools with a scaler: kubernetes" in refused(
        "--pool", "nowhere"
    )
    assert "image is missing" in refused("--pool", POOL, image=None)
    assert "--submit-to kube-system" in refused(project="kube-system")
    assert "metadata.name 'Digits'" in refused(name="Digits")
    assert "preemptible" in refused(preemptible=True)
    large = {"large": {"replicas": 1, "processesPerReplica": 8, "accelerator": "no label"}}
    of_two = {"replicas": {"min": 2, "max": 2}, "groups": large}
    assert "none of its nodes has accelerator no label, which group large needs" in refused(
        "--pool", POOL, **of_two
    )
    assert "groups.large.accelerator no label has no effect in the pool local" in refused(
        "--pool", "local", **of_two
    )
    token = {"TOKEN": {"fromFile": "/etc/passwd"}}
    assert "use fromSecret" in refused(environment=token)
    assert it.job() == {}

    # The cluster's own words, at the dry run already.
    policies = denial("jobs of this team say what they cost")
    for obj in policies:
        it.create(obj)
    try:
        # A server applies a new policy after a moment; until then it accepts the submission.
        words = ("submit", "-f", document(tmp_path), "--dry-run")
        it.until("the policy holds", lambda: "what they cost" in it.command(*words).stderr)
        assert "what they cost" in refused()
        assert it.job() == {}
    finally:
        for obj in policies:
            it.kubectl("delete", obj["kind"], obj["metadata"]["name"])
        # An API server applies a deleted policy for a while.
        path = document(tmp_path)
        it.until(
            "the policy is gone",
            lambda: not it.command("submit", "--dry-run", "-f", path).returncode,
        )


def denial(words: str) -> list[dict[str, Any]]:
    """A policy that lets nobody make an ElasticJob in our namespace."""
    group, name = "admissionregistration.k8s.io/v1", {"metadata": {"name": f"costs-{NAMESPACE}"}}
    rule = {"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule | {"resources": ["elasticjobs"]}]},
        "validations": [{"expression": "false", "message": words}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    binding = {
        "policyName": f"costs-{NAMESPACE}",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    return [
        {"apiVersion": group, "kind": kind, **name, "spec": spec}
        for kind, spec in (
            ("ValidatingAdmissionPolicy", policy),
            ("ValidatingAdmissionPolicyBinding", binding),
        )
    ]


def served(it: Cluster) -> dict[str, tuple[str, tuple[int, int], str]]:
    """By role and id: the pod's uid, the servers and workers that its TF_CONFIG names, and its
    memory.
    """
    found = {}
    for pod in it.server.objects("pods", "", NAMESPACE):
        main, name = pod["spec"]["containers"][0], pod["metadata"]["name"]
        given = {one["name"]: one.get("value") for one in main["env"]}
        cluster = json.loads(given["TF_CONFIG"])["cluster"]
        counts = len(cluster["ps"]), len(cluster["worker"])
        memory = main["resources"]["requests"]["memory"]
        if name.rpartition("-edljob-")[2] in it.pods():
            uid = pod["metadata"]["uid"]
            found[name.rpartition("-edljob-")[2]] = uid, counts, memory
    return found


def serving(directory: Path) -> dict[str, Any]:
    """An ElasticJob in which the operator itself tells servers, chief and workers of each other."""

    def role(memory: int, **bounds: int) -> dict[str, Any]:
        amounts = {"cpu": "1", "memory": str(memory)}
        command = ["sh", "-c", f"cd {directory} && exec {sys.executable} {SERVING}"]
        main = {"name": "main", "image": "ads:1", "command": command}
        main["resources"] = {"requests": amounts, "limits": amounts}
        return {"replicas": 1, **bounds, "template": {"spec": here({"containers": [main]})}}

    roles = {
        "worker": role(2**30, minReplicas=1, maxReplicas=2),
        "chief": role(2**30),
        "ps": role(2**31),
    }
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "ads", "namespace": NAMESPACE},
        "spec": {"optimizeMode": "manual", "replicaSpecs": roles},
    }


@pytest.mark.slow
def test_an_object_with_parameter_servers_is_served_resized_and_ended_by_its_chief(
    it: Cluster, tmp_path: Path
) -> None:
    it.create(serving(tmp_path))
    it.until("a chief, a server and a worker run", lambda: len(it.pods()) == 3)
    it.until("the job runs", lambda: state(it, "ads") == "Running")
    first = served(it)
    assert {role: one[1:] for role, one in first.items()} == {
        "chief-0": ((1, 1), str(2**30)),
        "ps-0": ((1, 2), str(2**31)),  # the second worker may still come
        "worker-0": ((1, 1), str(2**30)),
    }

    # Plans change the workers alone. Only the chief restarts, which sends them work.
    it.says("resize", "ads", "2")
    it.until("two workers run", lambda: "worker-1" in it.pods())
    it.until(
        "the chief knows both",
        lambda: [one[1] for role, one in served(it).items() if "chief" in role] == [(1, 2)],
    )
    for role in ("ps-0", "worker-0"):
        assert served(it)[role] == first[role]
    refused = it.command("edit", "ads", "--role=ps", "--replicas=2")
    assert refused.returncode != 0
    assert "on a cluster, edit spec.replicaSpecs.ps of its ElasticJob" in refused.stderr

    more = json.dumps({"spec": {"replicaSpecs": {"ps": {"replicas": 2}}}})
    it.kubectl("patch", "elasticjob", "ads", "--type=merge", "-p", more)
    it.until(
        "all five know two servers",
        lambda: [one[1][0] for one in served(it).values()] == 5 * [2],
    )

    # Servers and chief stop and start with the workers, and a resume does not end the job.
    it.says("suspend", "ads")
    it.until("the suspended job has no pod", lambda: not it.pods())
    it.says("resume", "ads")
    it.until("all five run again", lambda: len(it.pods()) == 5 and state(it, "ads") == "Running")

    (tmp_path / "end").touch()
    it.until("the chief has ended the job", lambda: state(it, "ads") == "Succeeded")
    it.until("no pod is left running", lambda: not it.pods())


def test_a_quota_that_holds_pods_up_is_told_in_the_jobs_view(it: Cluster, tmp_path: Path) -> None:
    if not it.server.collects:
        pytest.skip("nobody counts what quotas allow here")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few-pods", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "1"}},
    }
    it.create(quota)
    it.says("submit", "-f", document(tmp_path, name="held"))
    it.until("the quota is told", lambda: "few-pods" in it.says("job", "held"))
    it.says("cancel", "held")
    it.until("it is cancelled", lambda: state(it, "held") == "Cancelled" and not it.pods())


def test_the_same_request_again_makes_no_second_job(it: Cluster, tmp_path: Path) -> None:
    import httpx2

    read = yaml.safe_load(Path(document(tmp_path, name="once")).read_text())
    body = read | {"project": NAMESPACE}
    token = (it.home / "admin.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "once"}
    with httpx2.Client(base_url=f"http://127.0.0.1:{it.port}", headers=headers) as http:
        first, second = (
            http.post("/api/v1/jobs?pool=kubernetes", json=body, timeout=60) for _ in range(2)
        )
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"] == it.job()["metadata"]["uid"]
