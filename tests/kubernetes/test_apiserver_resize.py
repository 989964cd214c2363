"""The ``resize`` subresource and LimitRanges of a server, by kubectl."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.clusters import here, namespace
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.real import Ground, ground
from tests.kubernetes.scheduling import Scheduler

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
Json = dict[str, Any]
SPACE = namespace("resizing")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("apiserver")) as made:
        kubelet, scheduler = FakeKubelet(made), Scheduler(made)
        kubelet.add_nodes("n0", cpu="8", memory="8Gi")
        made.hands.create(("", "namespaces"), {"metadata": {"name": SPACE}})
        yield made
        made.discard(SPACE)
        scheduler.close()
        kubelet.close()


@pytest.fixture
def pod(server: Ground) -> Iterator[str]:
    apply(server, a_pod({"cpu": "1", "memory": "1Gi"}, {"memory": "2Gi"}))
    kubectl(server, "wait", "pod/a", "--for=condition=Ready", "--timeout=30s")
    yield "a"
    kubectl(server, "delete", "pod", "a", "--now")


def kubectl(server: Ground, *words: str, given: str = "", fails: bool = False) -> str:
    command = ["kubectl", f"--kubeconfig={server.kubeconfig}", "-n", SPACE, *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    assert (done.returncode != 0) is fails, done.stderr
    return done.stderr if fails else done.stdout


def apply(server: Ground, obj: Json) -> None:
    kubectl(server, "apply", "-f", "-", given=json.dumps(obj))


def a_pod(requests: Json, limits: Json) -> Json:
    small = {"requests": {"cpu": "1", "memory": "64Mi"}}
    init = {"name": "i", "image": "x", "resources": small}
    main = {"name": "c", "image": "x", "resources": {"requests": requests, "limits": limits}}
    spec = {"containers": [main], "initContainers": [init]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": here(spec)}


def patch(
    server: Ground, container: Json, *, fails: bool = False, group: str = "containers"
) -> str:
    told = json.dumps({"spec": {group: [container]}})
    return kubectl(server, "patch", "pod", "a", "--subresource=resize", "-p", told, fails=fails)


def attempt(server: Ground, container: Json) -> str:
    """What the server says of a resize, be it carried out or not."""
    told = json.dumps({"spec": {"containers": [container]}})
    command = ["kubectl", f"--kubeconfig={server.kubeconfig}", "-n", SPACE, "patch", "pod", "a"]
    command += ["--subresource=resize", "-p", told]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def asked(requests: Json | None = None, limits: Json | None = None) -> Json:
    given = {"requests": requests, "limits": limits}
    return {"name": "c", "resources": {part: each for part, each in given.items() if each}}


def test_a_running_pod_is_resized_in_place(server: Ground, pod: str) -> None:
    patch(server, asked({"memory": "1536Mi"}, {"memory": "3Gi"}))
    path = "jsonpath={.status.containerStatuses[0].resources.limits.memory}"
    kubectl(server, "wait", "pod/a", f"--for={path}=3Gi", "--timeout=30s")
    found = json.loads(kubectl(server, "get", "pod", "a", "-o", "json"))
    assert found["metadata"]["generation"] == 2
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


INIT = {"name": "i", "resources": {"requests": {"cpu": "2"}}}
REFUSED = {
    "a request is removed": (asked({"cpu": None}), "resource requests cannot be removed"),
    "a limit is removed": (asked(limits={"memory": None}), "resource limits cannot be removed"),
    "a request above the limit": (asked({"memory": "4Gi"}), "equal to memory limit of 2Gi"),
    "other resources": (
        asked(limits={"ephemeral-storage": "1Gi"}),
        "only cpu and memory resources are mutable",
    ),
    "init containers": (INIT, "features InPlacePodVerticalScalingInitContainers which are not"),
    "more than its node has": (
        asked({"memory": "9Gi"}, {"memory": "9Gi"}),
        "node didn't have enough allocatable resources: memory, requested: 9663676416",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_resize_may_not_change_is_refused(server: Ground, pod: str, case: str) -> None:
    container, told = REFUSED[case]
    group = "initContainers" if container is INIT else "containers"
    assert told in patch(server, container, group=group, fails=True)


def test_the_class_of_a_pod_stays(server: Ground) -> None:
    obj = a_pod({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})
    del obj["spec"]["initContainers"]
    apply(server, obj)
    try:
        said = patch(server, asked(limits={"memory": "2Gi"}), fails=True)
        assert "Pod QOS Class may not change as a result of resizing" in said
        patch(server, asked({"memory": "2Gi"}, {"memory": "2Gi"}))
    finally:
        kubectl(server, "delete", "pod", "a", "--now")


def test_amounts_are_no_field_that_the_pod_itself_lets_change(server: Ground, pod: str) -> None:
    told = json.dumps({"spec": {"containers": [asked({"memory": "1536Mi"})]}})
    said = kubectl(server, "patch", "pod", "a", "-p", told, fails=True)
    assert "pod updates may not change fields" in said


def test_limit_ranges_bind_new_pods_and_resizes_and_fill_in_amounts(
    server: Ground, pod: str
) -> None:
    bounds = {"type": "Container", "max": {"memory": "4Gi"}, "default": {"cpu": "2"}}
    kind = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}}
    apply(server, kind | {"spec": {"limits": [bounds]}})
    try:
        told = "maximum memory usage per Container is 4Gi, but limit is 5Gi"
        eventually(lambda: told in attempt(server, asked(limits={"memory": "5Gi"})))
        told = kubectl(server, "run", "b", "--image=x", "--dry-run=server", "-o", "json")
        (container,) = json.loads(told)["spec"]["containers"]
        # What is at most allowed is what it asks for where it is silent.
        assert container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    finally:
        kubectl(server, "delete", "limitrange/l")


def test_a_quota_counts_the_difference(server: Ground, pod: str) -> None:
    if not server.collects:
        pytest.skip("nobody counts what quotas allow here")
    kind = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    apply(server, kind | {"spec": {"hard": {"requests.memory": "1800Mi"}}})
    try:
        eventually(lambda: "status unknown" not in attempt(server, asked({"memory": "1700Mi"})))
        told = patch(server, asked({"memory": "1900Mi"}), fails=True)
        assert "exceeded quota: q, requested: requests.memory=200Mi" in told
        patch(server, asked({"memory": "1Gi"}))
    finally:
        kubectl(server, "delete", "quota", "q")
