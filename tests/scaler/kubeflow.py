"""Kubeflow played: an API server of a few kinds whose operator makes pods at once."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from scaler.adapters.backend import ForeignBackend
from scaler.adapters.foreign import MANAGED_BY
from scaler.adapters.kubeflow import PYTORCHJOB, PyTorchJobs
from scaler.kubernetes.runtime.cluster import HPA, NODE, POD, SECRET, Cluster
from scaler.kubernetes.runtime.cluster.transport import Stream, TransportAnswer, TransportRequest
from tests.scaler.listing import ListedJobs
from tests.scaler.wished import JOB, NOW

_KINDS = {
    kind.plural: kind.api_version + kind.kind for kind in (PYTORCHJOB, HPA, NODE, POD, SECRET)
}


def elastic(
    *,
    workers: int = 1,
    master: bool = False,
    least: int = 1,
    most: int = 8,
    suspended: bool = False,
    annotations: Mapping[str, str] | None = None,
    cpu: str = "1500m",
    **spec: Any,
) -> dict[str, Any]:
    """A PyTorchJob that Brain may resize, of the form of the project's elastic examples."""
    container = {
        "name": "pytorch",
        "image": "example.org/train:1",
        "command": ["python", "-m", "torch.distributed.run", "--rdzv_backend=c10d", "train.py"],
        "resources": {"requests": {"cpu": cpu}},
    }
    worker = {
        "replicas": workers,
        "restartPolicy": "OnFailure",
        "template": {"spec": {"containers": [container]}},
    }
    roles = {"Worker": worker} | ({"Master": {**worker, "replicas": 1}} if master else {})
    policy = {"rdzvBackend": "c10d", "minReplicas": least, "maxReplicas": most, "maxRestarts": 100}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "digits",
            "namespace": "team",
            "uid": JOB,
            "generation": 1,
            "annotations": {MANAGED_BY: "brain"} if annotations is None else dict(annotations),
        },
        "spec": {
            "elasticPolicy": policy,
            "runPolicy": {"suspend": suspended},
            "pytorchReplicaSpecs": roles,
        }
        | spec,
    }


class Kubeflow:
    """A transport: keeps objects by path; pods follow the job whenever something is written."""

    host = "http://kubeflow"

    def __init__(self, job: dict[str, Any], *, cpu: str = "4", memory: str = "8Gi") -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.written: list[tuple[str, str]] = []
        self._made = 0
        ready = [{"type": "Ready", "status": "True"}]
        allocatable = {"cpu": cpu, "memory": memory}
        node = {"metadata": {"name": "n0"}, "status": {"allocatable": allocatable}}
        node["status"]["conditions"] = ready  # type: ignore[index]
        self.objects[NODE.path("", "n0")] = node
        self.objects[PYTORCHJOB.path("team", "digits")] = job
        self.reconcile()

    @property
    def job(self) -> dict[str, Any]:
        """The PyTorchJob."""
        return self.objects[PYTORCHJOB.path("team", "digits")]

    @property
    def workers(self) -> int:
        """What it asks for."""
        found: int = self.job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
        return found

    @property
    def pods(self) -> list[str]:
        """Names of the pods that there are."""
        return [path.rpartition("/")[2] for path in self.objects if "/pods/" in path]

    def backend(self) -> ForeignBackend:
        """A new backend, as after a crash."""
        cluster = Cluster(self)
        return ForeignBackend(cluster, [PyTorchJobs()], ListedJobs(cluster, ["team"]), pool="local")

    def autoscaler(self, name: str) -> None:
        """As somebody makes one for the job."""
        spec = {"scaleTargetRef": {"kind": "PyTorchJob", "name": "digits"}}
        self.objects[HPA.path("team", name)] = {"metadata": {"name": name}, "spec": spec}

    def phase(self, pod: str, phase: str, **status: Any) -> None:
        """As a kubelet says."""
        self.objects[POD.path("team", pod)]["status"] = {"phase": phase, **status}

    def suspend(self, suspended: bool) -> None:
        """As a person does, or Kueue."""
        self._suspend(suspended)
        self.reconcile()

    def _suspend(self, suspended: bool) -> None:
        self.job["spec"]["runPolicy"]["suspend"] = suspended
        self.job["metadata"]["generation"] += 1

    def lose(self, pod: str) -> None:
        """As somebody deletes it; the operator has not noticed yet."""
        del self.objects[POD.path("team", pod)]

    def reconcile(self) -> None:
        """Make pods as the job asks."""
        spec = self.job["spec"]
        idle = spec["runPolicy"].get("suspend")
        roles = {} if idle else spec["pytorchReplicaSpecs"]
        names = [
            f"digits-{role.lower()}-{index}"
            for role, each in roles.items()
            for index in range(each["replicas"])
        ]
        for name in set(self.pods) - set(names):
            self.lose(name)
        for name in names:
            if name not in self.pods:
                self._make(name)

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        path, body = request.path, request.body or {}
        if request.method == "GET" and path.rpartition("/")[2] in _KINDS:
            return _good({"metadata": {}, "items": self._listed(path, request)})
        if request.method != "GET":
            self.written.append((request.method, path))
        if path.endswith("/scale"):
            replicas = body["spec"]["replicas"]
            self.job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = replicas
        elif request.method == "PATCH" and "/secrets/" in path:
            self.objects[path] = dict(body)
        elif path not in self.objects:
            return TransportAnswer(
                code=404, body=b'{"code": 404, "reason": "NotFound"}', headers={}
            )
        elif request.method == "DELETE":
            del self.objects[path]
        elif request.method == "PATCH":
            self._suspend(body["spec"]["runPolicy"]["suspend"])
        if request.method != "GET" and "/secrets/" not in path:
            self.reconcile()
        return _good(self.objects.get(path, {}))

    def stream(
        self, request: TransportRequest, *, connect_seconds: float, silence_seconds: float
    ) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""

    def _listed(self, path: str, request: TransportRequest) -> list[dict[str, Any]]:
        selector = dict(request.query or {}).get("labelSelector", "")
        name, _, value = str(selector).partition("=")
        found = [obj for at, obj in self.objects.items() if at.startswith(f"{path}/")]
        return [obj for obj in found if not name or obj["metadata"]["labels"].get(name) == value]

    def _make(self, name: str) -> None:
        self._made += 1
        role = "Master" if "-master-" in name else "Worker"
        template = self.job["spec"]["pytorchReplicaSpecs"][role]["template"]
        made = NOW + timedelta(seconds=self._made)
        self.objects[POD.path("team", name)] = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"pod-{self._made}",
                "creationTimestamp": made.isoformat(),
                "labels": {"training.kubeflow.org/job-name": "digits"},
                "ownerReferences": [{"kind": "PyTorchJob", "uid": JOB, "controller": True}],
            },
            "spec": {"nodeName": "n0", **template["spec"]},
            "status": {"phase": "Pending"},
        }


def _good(body: Any) -> TransportAnswer:
    return TransportAnswer(code=200, body=json.dumps(body).encode(), headers={})
