"""The kubelet that runs pods as processes: addresses, environment, volumes, ends."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet_processes import ProcessKubelet
from tests.kubernetes.kubelet_volumes import Mounts
from tests.kubernetes.scheduling import Scheduler

Json = dict[str, Any]


class Place:
    """A server whose pods are processes, and one's hand on it."""

    def __init__(self, server: Server, kubelet: ProcessKubelet) -> None:
        self.server = server
        self.kubelet = kubelet
        self.http = httpx2.Client(base_url=server.url, timeout=60)

    def create(self, made: Json, plural: str = "pods") -> None:
        answer = self.http.post(f"/api/v1/namespaces/default/{plural}", json=made)
        assert answer.status_code == 201, answer.text

    def run(self, code: str, **spec: Any) -> None:
        """Make a pod that runs ``code``."""
        container = {
            "name": "main",
            "image": "image:1",
            "command": [sys.executable, "-u", "-c", code],
            **spec.pop("container", {}),
        }
        self.create(
            {
                "metadata": {"name": "p", "labels": {"role": "worker"}},
                "spec": {"restartPolicy": "Never", "containers": [container], **spec},
            }
        )

    def pod(self) -> Json | None:
        answer = self.http.get("/api/v1/namespaces/default/pods/p")
        found: Json = answer.json()
        return found if answer.status_code == 200 else None

    def phase(self) -> str:
        pod = self.pod()
        return pod["status"]["phase"] if pod else "gone"

    def code(self) -> int:
        pod = self.pod()
        assert pod is not None
        code: int = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        return code


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serving(tmp_path, definitions=[]) as server, ProcessKubelet(server, tmp_path) as kubelet:
        Scheduler(server)
        kubelet.add_nodes("n0")
        made = Place(server, kubelet)
        yield made
        made.http.close()


def test_a_pod_ends_with_the_code_of_its_process(place: Place) -> None:
    place.run("print('hello'); raise SystemExit(7)")
    eventually(lambda: place.phase() == "Failed")
    assert (place.code(), place.kubelet.log("p")) == (7, "hello\n")


def test_a_pod_that_ends_well_has_succeeded(place: Place) -> None:
    place.run("pass")
    eventually(lambda: place.phase() == "Succeeded")


def test_fields_and_secrets_reach_the_environment(place: Place) -> None:
    place.create({"metadata": {"name": "s"}, "stringData": {"token": "abc"}}, "secrets")
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['role']"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "BOTH", "value": "$(ROLE)-$(TOKEN)"},
    ]
    place.run("import os; print(os.environ['IP'], os.environ['BOTH'])", container={"env": env})
    eventually(lambda: place.phase() == "Succeeded")
    assert place.kubelet.log("p").endswith(" worker-abc\n")


def test_an_init_container_leaves_files_to_the_others(place: Place) -> None:
    mounts = [{"name": "shared", "mountPath": "/opt/shared"}]
    init = {
        "name": "copy",
        "image": "image:1",
        "command": ["/bin/sh", "-c", "echo left > /opt/shared/file"],
        "volumeMounts": mounts,
    }
    place.run(
        "print(open('/opt/shared/file').read())",
        container={"volumeMounts": mounts},
        initContainers=[init],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    eventually(lambda: place.phase() == "Succeeded")
    assert place.kubelet.log("p", container="main") == "left\n\n"


def test_a_failed_init_container_fails_the_pod(place: Place) -> None:
    init = {"name": "copy", "image": "image:1", "command": ["/bin/false"]}
    place.run("pass", initContainers=[init])
    eventually(lambda: place.phase() == "Failed")


def test_a_deleted_pod_may_end_within_its_grace(place: Place) -> None:
    place.run(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))\n"
        "print('ready')\n"
        "time.sleep(600)"
    )
    # Unbuffered, the word and its end are two writes; a signal may come between them.
    eventually(lambda: "ready\n" in place.kubelet.log("p"))
    place.http.delete("/api/v1/namespaces/default/pods/p")
    eventually(lambda: place.phase() == "gone")
    assert place.kubelet.log("p") == "ready\nsaved\n"


def test_a_signal_is_told_as_an_exit_code(place: Place) -> None:
    place.run("import time; print('ready'); time.sleep(600)")
    eventually(lambda: "ready" in place.kubelet.log("p"))
    place.kubelet.kill("p", number=signal.SIGKILL)
    eventually(lambda: place.phase() == "Failed")
    assert place.code() == 137


def test_a_pod_waits_that_refers_to_a_missing_secret(place: Place) -> None:
    reference = {"secretKeyRef": {"name": "nowhere", "key": "token"}}
    place.run("pass", container={"env": [{"name": "TOKEN", "valueFrom": reference}]})
    eventually(lambda: bool((place.pod() or {})["status"].get("containerStatuses")))
    assert place.phase() == "Pending"


def test_paths_below_a_mount_are_told_apart_from_others(tmp_path: Path) -> None:
    mounts = Mounts({"v": tmp_path}).of({"volumeMounts": [{"name": "v", "mountPath": "/data"}]})
    assert mounts.told("/data/x /database /old/data") == f"{tmp_path}/x /database /old/data"
