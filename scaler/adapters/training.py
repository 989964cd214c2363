"""The facts that scaling needs about another project's training job, and the interface of a kind of
jobs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, JobDocument, JobId, OptimizeMode, PolicyMode, Restarts
from brain.types.resources import Resources
from scaler.adapters import foreign
from scaler.kubernetes.kinds.documents import command_of, main_container, reserved
from scaler.kubernetes.runtime.cluster import Cluster, Kind, Object

#: Label by which Kueue's users put a job into a queue.
QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One job: replicas are its workers and, before them, a master if there is one."""

    kind: Kind
    job: JobId
    namespace: str
    name: str
    #: Name of the pod of a separate master, the first replica; None if there are only workers.
    master: str | None = None
    #: Names of the workers' pods without ``-<index>``.
    stem: str
    workers: int
    #: Sizes that the job may have; a single size if the job is not elastic.
    bounds: Bounds
    suspended: bool
    #: Number of changes of the object's spec so far.
    generation: int
    #: ``Succeeded`` or ``Failed`` once the job is over.
    over: str | None
    #: uid of the object that owns the pods; None if it does not exist yet.
    owner: str | None
    #: Pod template of the workers.
    template: Mapping[str, Any]
    processes: int
    restarts: int
    #: True if the job's owner allows more than advice.
    acts: bool
    #: Why Brain may not change the size; None if it may.
    refusal: str | None

    @property
    def resources(self) -> Resources:
        """Return the resources that each worker reserves."""
        return reserved(self.template)

    @property
    def size(self) -> int:
        """Return the number of replicas that the job has when it is not suspended."""
        return self.workers + (self.master is not None)

    @property
    def replicas(self) -> int:
        """Return the number of pods that the job should have."""
        return 0 if self.suspended or self.over else self.size

    def workers_for(self, replicas: int) -> int:
        """Return the number of workers for a number of replicas."""
        return max(1, replicas - (self.master is not None))

    def pod_name(self, position: int) -> str:
        """Return the name of the pod at a position; position 0 is the master, if there is one."""
        if self.master is None:
            return f"{self.stem}-{position}"
        return self.master if position == 0 else f"{self.stem}-{position - 1}"


class ForeignKind(Protocol):
    """A kind of jobs that another project's controller runs."""

    kind: Kind
    #: Label of pods with the name of their job.
    label: str
    #: A kind of objects beside the jobs that ``training`` reads, and the selector of their labels.
    beside: tuple[Kind, str]

    def training(self, obj: Object, beside: Iterable[Object]) -> Training:
        """Read a job, with the other objects of its namespace that the kind reads.

        Raises:
            BadInput: Brain cannot manage the object as a job; the message names the field.
        """

    def resize(self, cluster: Cluster, read: Training, workers: int) -> None:
        """Ask the job's controller for ``workers`` workers, at least 1."""

    def suspend(self, cluster: Cluster, read: Training, suspend: bool) -> None:
        """Set ``suspend``: if True, the controller removes all pods; if False, it creates them
        again.
        """


def document(read: Training) -> JobDocument:
    """Build the job document; Brain may only advise, unless the job's owner allows more.

    Raises:
        BadInput: Brain does not accept the value of a field; the message names the field.
    """
    bounds = read.bounds
    made = JobDocument(
        name=read.name,
        project=read.namespace or "default",
        command=command_of(read.template),
        image=main_container(read.template).get("image"),
        replicas=Bounds(
            min=next(bounds.sizes()),
            max=bounds.max,
            unit=bounds.unit,
            start=foreign.clamped(bounds, read.size),
        ),
        processes_per_replica=read.processes,
        resources=read.resources,
        restarts=Restarts(limit=read.restarts),
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=None if read.acts else PolicyMode.SHADOW),
    )
    made.check()
    return made


def processes(said: object, resources: Resources) -> int:
    """Return the number of worker processes of a replica, at least 1.

    ``said`` is the value of ``--nproc-per-node``: a number; ``gpu`` or ``auto`` for one process per
    GPU; ``cpu`` for one per CPU. None means 1.
    """
    text = str(said) if said is not None else "1"
    if text.isdecimal():
        return max(1, int(text))
    return max(1, resources.gpus if text in ("gpu", "auto") else resources.cpu_millis // 1000)


def hands_off(obj: Object, kind: Kind, manager: object, own: str) -> str | None:
    """Return a reason, common to all kinds, why Brain must not resize a job; None if there is none.

    ``manager`` is the value of ``managedBy``; ``own`` is the value that names the kind's own
    controller.
    """
    meta = obj["metadata"]
    name = f"{kind.kind} {meta['name']}"
    if meta.get("deletionTimestamp"):
        return f"{name} is being deleted"
    if not foreign.may_act(meta.get("annotations") or {}):
        return (
            f"Brain only advises on {name}; to let Brain resize it: kubectl annotate "
            f"{kind.kind.lower()} {meta['name']} {foreign.MANAGED_BY}={foreign.MANAGER}"
        )
    if manager not in (None, own):
        return f"{name} is managed by {manager} (field managedBy), so Brain does not resize the job"
    if QUEUE in (meta.get("labels") or {}):
        return (
            f"Kueue admitted {name} at its present size; to let Brain resize it, remove the "
            f"label {QUEUE}"
        )
    return None


def is_true(obj: Object, type: str) -> bool:
    """True if a condition of the object's status is True."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any((each.get("type"), each.get("status")) == (type, "True") for each in conditions)
