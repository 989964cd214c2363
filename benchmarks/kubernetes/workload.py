"""What a user applies: jobs and plans; and pods of others that are merely there."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "bench"
GROUP, VERSION = "elastic.iml.github.io", "v1alpha1"


def job(number: int, pods: int = 1, most: int | None = None, **spec: Any) -> dict[str, Any]:
    """A job without our agent, so that the operator itself finds that it runs.

    ``most``: the bounds are one and that; ``spec``: more fields of its pods.
    """
    bounds = {} if most is None else {"minReplicas": 1, "maxReplicas": most}
    worker = {"replicas": pods, **bounds, "template": {"spec": pod_spec() | spec}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ElasticJob",
        "metadata": {"name": f"job-{number:04}", "namespace": NAMESPACE},
        "spec": {"replicaSpecs": {"worker": worker}},
    }


def pod_spec(cpu: str = "1", memory: str = "1Gi") -> dict[str, Any]:
    """What a pod asks for; by default one of a job."""
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {"containers": [container]}


def plan(number: int, jobs: int) -> dict[str, Any]:
    """A plan as a person writes one, for one of so many jobs."""
    owner = f"job-{number % jobs:04}"
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ScalePlan",
        "metadata": {
            "name": f"plan-{number:05}",
            "namespace": NAMESPACE,
            "labels": {"elasticjob.dlrover/name": owner, "scale-type": "manual"},
        },
        "spec": {
            "ownerJob": owner,
            "replicaResourceSpecs": {"worker": {"replicas": 2 + number // jobs}},
        },
    }


def bare_pod(name: str, *, node: str = "") -> dict[str, Any]:
    """A pod that nobody of ours owns; on ``node`` it is a small one of a Deployment, say."""
    spec = pod_spec("50m", "64Mi") | {"nodeName": node} if node else pod_spec()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "other"}},
        "spec": spec,
    }


#: Nodes that hold every job here, beside every pod of others.
NODES = [f"node-{number:02}" for number in range(40)]
NODE: dict[str, Any] = {"cpu": "256", "memory": "1Ti", "more": {"pods": "2000"}}


@dataclass
class Seen:
    """What happened to jobs, pods and plans, by the watch of whoever stands beside the server."""

    #: When pods came into being.
    made: list[float] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)

    def hear(self, plural: str, obj: Mapping[str, Any], *, new: bool) -> None:
        """Note an object as it is now."""
        name, phase = obj["metadata"]["name"], (obj.get("status") or {}).get("phase")
        if plural == "pods":
            if new:
                self.made.append(time.monotonic())
            if obj["spec"].get("nodeName"):
                self.bound.add(name)
        elif plural == "elasticjobs" and phase == "Running":
            self.running.add(name)
        elif plural == "scaleplans" and phase not in (None, "Pending"):
            self.answered.add(name)

    def told(self) -> dict[str, int]:
        """The numbers of all these."""
        return {
            "made": len(self.made),
            "bound": len(self.bound),
            "running": len(self.running),
            "answered": len(self.answered),
        }
