"""A PyTorchJob (``kubeflow.org/v1``) as its operator reads it.

Facts from the project's sources (training-operator, release 1.9): with ``elasticPolicy`` the
operator gives every pod ``PET_NNODES=minReplicas:maxReplicas``, so running pods need no restart
when others come or go. Without both bounds a pod gets the number of workers, which then is fixed.
The rendezvous is at ``<job>-worker-0``, so that pod goes last: by ``suspend``. Pods are
``<job>-master-0`` and ``<job>-worker-<index>``; only the highest index can be taken away.
``elasticPolicy.metrics`` makes the operator keep a HorizontalPodAutoscaler of the job's name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from brain.errors import BadInput
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, JobDocument, JobId, OptimizeMode, PolicyMode, Restarts
from brain.types.resources import Resources
from scaler.adapters import foreign
from scaler.kubernetes.kinds.documents import command_of, launch_in, main_container, reserved
from scaler.kubernetes.runtime.cluster.kind import Kind, Object

PYTORCHJOB = Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")

#: Labels of the operator's pods.
JOB_NAME, ROLE, INDEX = (
    f"training.kubeflow.org/{word}" for word in ("job-name", "replica-type", "replica-index")
)
_QUEUE = "kueue.x-k8s.io/queue-name"
_OURS = "kubeflow.org/training-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Parts of a PyTorchJob that scaling needs.

    A separate Master counts as the first replica.
    """

    job: JobId
    namespace: str
    name: str
    #: True if there is a Master beside the workers.
    master: bool
    workers: int
    #: Sizes that the job may have; a single size where the job is not elastic.
    bounds: Bounds
    suspended: bool
    #: ``Succeeded`` or ``Failed`` once the job is over.
    over: str | None
    #: Resources that each worker reserves.
    resources: Resources
    #: Why Brain may not change the size; None: Brain may.
    refusal: str | None

    @property
    def replicas(self) -> int:
        """Return the number of pods that the job should have."""
        return 0 if self.suspended or self.over else self.workers + self.master

    def workers_for(self, replicas: int) -> int:
        """Return the number of workers that make so many replicas."""
        return max(1, replicas - self.master)

    def pod_name(self, position: int) -> str:
        """Return the name of the pod at a position; position 0 is the Master, if there is one."""
        if self.master and position == 0:
            return f"{self.name}-master-0"
        return f"{self.name}-worker-{position - self.master}"


def training(obj: Object, autoscalers: Iterable[Object] = ()) -> Training:
    """Read a PyTorchJob, with the autoscalers of its namespace.

    Raises:
        BadInput: the job has no workers, or its annotations leave no size; the message names the
            field.
    """
    meta, spec = obj["metadata"], obj.get("spec") or {}
    roles: Mapping[str, Any] = spec.get("pytorchReplicaSpecs") or {}
    worker = roles.get("Worker")
    if worker is None:
        raise BadInput(
            f"PyTorchJob {meta['name']} has no Worker; only workers can be resized",
            field="spec.pytorchReplicaSpecs.Worker",
        )
    master = "Master" in roles
    replicas = worker.get("replicas")
    workers = 1 if replicas is None else _whole(replicas, "pytorchReplicaSpecs.Worker.replicas")
    annotations = meta.get("annotations") or {}
    own = _own_bounds(spec)
    fixed = Bounds(min=workers + master, max=workers + master)
    return Training(
        job=JobId(meta["uid"]),
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        master=master,
        workers=workers,
        bounds=foreign.narrowed(own or fixed, annotations),
        suspended=bool((spec.get("runPolicy") or {}).get("suspend")),
        over=_over(obj),
        resources=reserved(worker.get("template")),
        refusal=_refusal(obj, own is not None, autoscalers),
    )


def document(obj: Object) -> JobDocument:
    """Build the job document of a PyTorchJob: advice only, unless its owner allows more.

    Raises:
        BadInput: the PyTorchJob cannot be a job of Brain; the message names the field.
    """
    read = training(obj)
    spec = obj["spec"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]
    template = worker.get("template")
    launch = launch_in(template)
    policy = spec.get("elasticPolicy") or {}
    acts = foreign.may_act(obj["metadata"].get("annotations") or {})
    start = foreign.clamped(read.bounds, read.workers + read.master)
    made = JobDocument(
        name=read.name,
        project=read.namespace or "default",
        command=command_of(template),
        image=main_container(template).get("image"),
        replicas=Bounds(
            min=next(read.bounds.sizes()), max=read.bounds.max, unit=read.bounds.unit, start=start
        ),
        processes_per_replica=_processes(spec, launch.processes, read.resources),
        resources=read.resources,
        restarts=Restarts(limit=policy.get("maxRestarts", 10)),
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=None if acts else PolicyMode.SHADOW),
    )
    made.check()
    return made


def _own_bounds(spec: Mapping[str, Any]) -> Bounds | None:
    """Return the bounds that ``elasticPolicy`` allows; None where it gives no range."""
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
    raise BadInput(f"spec.{field} {value!r} is no whole number; give one", field=f"spec.{field}")


def _refusal(obj: Object, elastic: bool, autoscalers: Iterable[Object]) -> str | None:
    """Return the first reason why Brain may not resize the job."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    name, policy = meta["name"], spec.get("runPolicy") or {}
    if not foreign.may_act(meta.get("annotations") or {}):
        return (
            f"Brain only advises on PyTorchJob {name}; to have it resized: kubectl annotate "
            f"pytorchjob {name} {foreign.MANAGED_BY}={foreign.MANAGER}"
        )
    if policy.get("managedBy") not in (None, _OURS):
        return f"PyTorchJob {name} is managed by {policy['managedBy']}; only that may change it"
    if _QUEUE in (meta.get("labels") or {}):
        return (
            f"Kueue admits PyTorchJob {name} at its size; take {_QUEUE} off it to have it resized"
        )
    if not elastic:
        return (
            f"PyTorchJob {name} has no elasticPolicy with minReplicas and maxReplicas, so its pods "
            "were told a fixed number of nodes; add both and create it anew"
        )
    if (spec.get("elasticPolicy") or {}).get("metrics"):
        return (
            f"spec.elasticPolicy.metrics makes an autoscaler for PyTorchJob {name}; "
            "remove them, or two would size it"
        )
    rival = next((each for each in autoscalers if _targets(each, name)), None)
    if rival is not None:
        return (
            f"HorizontalPodAutoscaler {rival['metadata']['name']} sizes PyTorchJob {name}; "
            "delete it, or two would"
        )
    return None


def _targets(autoscaler: Object, name: str) -> bool:
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return (target.get("kind"), target.get("name")) == (PYTORCHJOB.kind, name)


def _over(obj: Object) -> str | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    true = [each.get("type") for each in conditions if each.get("status") == "True"]
    return next((each for each in ("Succeeded", "Failed") if each in true), None)


def _processes(spec: Mapping[str, Any], launched: int | str | None, resources: Resources) -> int:
    """Return ``nprocPerNode`` of spec or (deprecated) ``elasticPolicy``, else the command's."""
    said = spec.get("nprocPerNode") or (spec.get("elasticPolicy") or {}).get("nProcPerNode")
    said = launched if said is None else said
    text = str(said) if said is not None else "1"
    if text.isdecimal():
        return max(1, int(text))
    return max(1, resources.gpus if text in ("gpu", "auto") else resources.cpu_millis // 1000)
