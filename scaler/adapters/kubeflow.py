"""A PyTorchJob (``kubeflow.org/v1``) as its operator reads it.

Facts from the project's sources (training-operator, release 1.9): with ``elasticPolicy`` the
operator gives every pod ``PET_NNODES=minReplicas:maxReplicas``, so running pods need no restart
when other pods come or go. Without both bounds a pod gets the number of workers, which is then
fixed. The rendezvous is at ``<job>-worker-0``, so only a suspension removes that pod. Pods are
``<job>-master-0`` and ``<job>-worker-<index>``; only the highest index can be removed. If
``elasticPolicy.metrics`` is set, the operator creates a HorizontalPodAutoscaler with the job's
name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from brain.errors import BadInput
from brain.types.allocation import Bounds
from brain.types.job import JobId
from scaler.adapters import foreign
from scaler.adapters.training import Training, hands_off, is_true, processes
from scaler.kubernetes.kinds.documents import launch_in, reserved
from scaler.kubernetes.runtime.cluster import HPA, Cluster, Kind, Object

PYTORCHJOB = Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
_OURS = "kubeflow.org/training-operator"


class PyTorchJobs:
    """PyTorchJobs, sized through their scale subresource; a separate Master counts as the first
    replica.
    """

    kind = PYTORCHJOB
    label = "training.kubeflow.org/job-name"
    beside = (HPA, "")

    def training(self, obj: Object, beside: Iterable[Object] = ()) -> Training:
        """Read a PyTorchJob, with the autoscalers of its namespace."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        roles: Mapping[str, Any] = spec.get("pytorchReplicaSpecs") or {}
        worker = roles.get("Worker")
        if worker is None:
            raise BadInput(
                f"PyTorchJob {meta['name']} has no Worker role, and Brain resizes only workers; "
                "add a Worker role",
                field="spec.pytorchReplicaSpecs.Worker",
            )
        master = "Master" in roles
        replicas = worker.get("replicas")
        workers = 1 if replicas is None else _whole(replicas, "pytorchReplicaSpecs.Worker.replicas")
        annotations = meta.get("annotations") or {}
        own = _own_bounds(spec)
        fixed = Bounds(min=workers + master, max=workers + master)
        template = worker.get("template") or {}
        return Training(
            kind=self.kind,
            job=JobId(meta["uid"]),
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            master=f"{meta['name']}-master-0" if master else None,
            stem=f"{meta['name']}-worker",
            workers=workers,
            bounds=foreign.narrowed(own or fixed, annotations),
            suspended=bool((spec.get("runPolicy") or {}).get("suspend")),
            generation=meta.get("generation", 0),
            over=next((each for each in ("Succeeded", "Failed") if is_true(obj, each)), None),
            owner=meta["uid"],
            template=template,
            processes=_processes(spec, template),
            restarts=(spec.get("elasticPolicy") or {}).get("maxRestarts", 10),
            acts=foreign.may_act(annotations),
            refusal=_refusal(obj, own is not None, beside),
        )

    def resize(self, cluster: Cluster, read: Training, workers: int) -> None:
        """Write the scale subresource."""
        cluster.scale(PYTORCHJOB, read.namespace, read.name, workers)

    def suspend(self, cluster: Cluster, read: Training, suspend: bool) -> None:
        """Write ``runPolicy.suspend``."""
        patch = {"spec": {"runPolicy": {"suspend": suspend}}}
        cluster.merge(PYTORCHJOB, read.namespace, read.name, patch)


def _own_bounds(spec: Mapping[str, Any]) -> Bounds | None:
    """Return the bounds that ``elasticPolicy`` allows; None if it gives no range."""
    policy = spec.get("elasticPolicy")
    if not policy or policy.get("minReplicas") is None or policy.get("maxReplicas") is None:
        return None
    low, high = (_whole(policy[f"{end}Replicas"], "elasticPolicy") for end in ("min", "max"))
    if low < 1 or low > high:
        raise BadInput(
            f"elasticPolicy: minReplicas {low} and maxReplicas {high} allow no size; "
            "raise maxReplicas or lower minReplicas",
            field="spec.elasticPolicy.minReplicas",
        )
    return Bounds(min=low, max=high)


def _whole(value: object, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BadInput(
        f"spec.{field} {value!r} is not a whole number; correct it", field=f"spec.{field}"
    )


def _refusal(obj: Object, elastic: bool, autoscalers: Iterable[Object]) -> str | None:
    """Return the first reason why Brain may not resize the job."""
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    manager = (spec.get("runPolicy") or {}).get("managedBy")
    if (reason := hands_off(obj, PYTORCHJOB, manager, _OURS)) is not None:
        return reason
    if not elastic:
        return (
            f"PyTorchJob {name} has no elasticPolicy with minReplicas and maxReplicas, so its "
            "pods started with a fixed number of nodes; add both fields and create the job again"
        )
    if (spec.get("elasticPolicy") or {}).get("metrics"):
        return (
            f"spec.elasticPolicy.metrics creates an autoscaler that resizes PyTorchJob {name}; "
            "remove the metrics to let Brain resize the job"
        )
    rival = next((each for each in autoscalers if _targets(each, name)), None)
    if rival is not None:
        return (
            f"HorizontalPodAutoscaler {rival['metadata']['name']} resizes PyTorchJob {name}; "
            "delete the autoscaler to let Brain resize the job"
        )
    return None


def _targets(autoscaler: Object, name: str) -> bool:
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return (target.get("kind"), target.get("name")) == (PYTORCHJOB.kind, name)


def _processes(spec: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    """Return ``nprocPerNode`` of spec or (deprecated) ``elasticPolicy``, else the command's."""
    said = spec.get("nprocPerNode") or (spec.get("elasticPolicy") or {}).get("nProcPerNode")
    launched = launch_in(template).processes
    return processes(launched if said is None else said, reserved(template))
