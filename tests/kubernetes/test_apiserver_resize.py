"""The emulator's ``resize`` subresource and LimitRanges, by kubectl."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.real import Ground, ground
from tests.kubernetes.scheduling import Scheduler

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
Json = dict[str, Any]
SPACE = "resizing"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("apiserver")) as made:
        kubelet, scheduler = FakeKubelet(made), Scheduler(made)
        kubelet.add_nodes("n0", cpu="8", memory="8Gi")
        made.hands.create(("", "namespaces"), {"metadata": {"name": SPACE}})
        yield made
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
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def patch(
    server: Ground, container: Json, *, fails: bool = False, group: str = "containers"
) -> str:
    told = json.dumps({"spec": {group: [container]}})
    return kubectl(server, "patch", "pod", "a", "--subresource=resize", "-p", told, fails=fails)


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
    "init containers": (INIT, "resources for non-sidecar init containers are immutable"),
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


def test_what_a_node_never_has_is_infeasible(server: Ground, pod: str) -> None:
    patch(server, asked({"memory": "9Gi"}, {"memory": "9Gi"}))
    kubectl(server, "wait", "pod/a", "--for=condition=PodResizePending", "--timeout=30s")
    found = json.loads(kubectl(server, "get", "pod", "a", "-o", "json"))
    (pending,) = (c for c in found["status"]["conditions"] if c["type"] == "PodResizePending")
    assert pending["reason"] == "Infeasible"


def test_limit_ranges_bind_new_pods_and_resizes_and_fill_in_amounts(
    server: Ground, pod: str
) -> None:
    bounds = {"type": "Container", "max": {"memory": "4Gi"}, "default": {"cpu": "2"}}
    kind = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}}
    apply(server, kind | {"spec": {"limits": [bounds]}})
    try:
        said = patch(server, asked(limits={"memory": "5Gi"}), fails=True)
        assert "maximum memory usage per Container is 4Gi, but limit is 5Gi" in said
        said = kubectl(server, "run", "b", "--image=x", fails=True)
        assert "maximum memory usage per Container is 4Gi.  No limit is specified" in said
        limits = {"limits": {"memory": "1Gi"}}
        spec = {"containers": [{"name": "b", "image": "x", "resources": limits}]}
        kubectl(server, "run", "b", "--image=x", f"--overrides={json.dumps({'spec': spec})}")
        path = "jsonpath={.spec.containers[0].resources.limits.cpu}"
        assert kubectl(server, "get", "pod", "b", "-o", path) == "2"
    finally:
        kubectl(server, "delete", "limitrange/l", "pod/b", "--ignore-not-found", "--now")


def test_a_quota_counts_the_difference(server: Ground, pod: str) -> None:
    kind = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    apply(server, kind | {"spec": {"hard": {"requests.memory": "1800Mi"}}})
    try:
        patch(server, asked({"memory": "1700Mi"}))
        told = patch(server, asked({"memory": "1900Mi"}), fails=True)
        assert "exceeded quota: q, requested: requests.memory=209715200" in told
        patch(server, asked({"memory": "1Gi"}))
    finally:
        kubectl(server, "delete", "quota", "q")
