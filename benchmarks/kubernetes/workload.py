"""What is reconciled: plans whose status is to be written, and jobs whose pods are to exist."""

from collections.abc import Iterator, Mapping
from typing import Any

NAMESPACE = "bench"
GROUP, VERSION = "elastic.iml.github.io", "v1alpha1"
PODS_PER_JOB = 16


def plan(number: int) -> dict[str, Any]:
    """A plan as a person writes one."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ScalePlan",
        "metadata": {
            "name": f"plan-{number:05}",
            "namespace": NAMESPACE,
            "labels": {"elasticjob.dlrover/name": f"job-{number % 200}", "scale-type": "manual"},
        },
        "spec": {
            "ownerJob": f"job-{number % 200}",
            "replicaResourceSpecs": {
                "worker": {"replicas": 4, "resource": {"cpu": "8", "memory": "16Gi"}}
            },
        },
    }


def status(obj: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator says of a plan: the same from both."""
    roles = obj["spec"]["replicaResourceSpecs"]
    return {
        "phase": "Applied",
        "observedGeneration": obj["metadata"]["generation"],
        "message": f"worker has {roles['worker']['replicas']} replicas",
        "target": {"roles": {name: dict(role) for name, role in roles.items()}},
    }


def job(number: int) -> dict[str, Any]:
    """A job of sixteen pods."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ElasticJob",
        "metadata": {"name": f"job-{number:03}", "namespace": NAMESPACE},
        "spec": {
            "replicaSpecs": {
                "worker": {
                    "replicas": PODS_PER_JOB,
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "image": "registry.example/train:1",
                                    "command": ["python", "train.py"],
                                    "resources": {"limits": {"cpu": "8", "memory": "16Gi"}},
                                }
                            ]
                        }
                    },
                }
            }
        },
    }


def pods(obj: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods of a job, by their names."""
    metadata = obj["metadata"]
    worker = obj["spec"]["replicaSpecs"]["worker"]
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ElasticJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    for index in range(worker["replicas"]):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-edljob-worker-{index}",
                "namespace": metadata["namespace"],
                "labels": {"elasticjob.dlrover/name": metadata["name"]},
                "ownerReferences": [owner],
            },
            "spec": {**worker["template"]["spec"], "restartPolicy": "Never"},
        }
