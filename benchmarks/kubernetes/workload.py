"""The objects that a user applies: jobs and plans; and foreign pods."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "bench"
GROUP, VERSION = "elastic.iml.github.io", "v1alpha1"


def job(number: int, pods: int = 1, most: int | None = None, **spec: Any) -> dict[str, Any]:
    """Return a job without our agent, so that the operator itself finds out that it runs.

    With ``most`` the bounds are one and this number; ``spec`` has more fields of its pods.
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
    """Return the spec of a pod, by default of a job's pod."""
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {"containers": [container]}


def plan(number: int, jobs: int) -> dict[str, Any]:
    """Return a plan as a person writes it, for one of the given number of jobs."""
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
    """Return a pod that does not belong to the product; with ``node`` it is a small pod, like one
    of a Deployment.
    """
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
    """The events of jobs, pods and plans, from a watch beside the server."""

    #: When pods came into being.
    made: list[float] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)

    def hear(self, plural: str, obj: Mapping[str, Any], *, new: bool) -> None:
        """Record the present state of an object."""
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
        """Return the numbers of all these events."""
        return {
            "made": len(self.made),
            "bound": len(self.bound),
            "running": len(self.running),
            "answered": len(self.answered),
        }
