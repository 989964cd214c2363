"""Builds the order for a job's next pod from the job's object, the desired state, and the earlier
replicas.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from brain import wire
from brain.types.grace import GRACE_SECONDS
from brain.types.job import Checkpoint, JobDocument
from brain.types.resources import Resources
from brain.types.roles import Task
from brain.views import DesiredJob, JobView
from scaler.kubernetes.kinds import (
    BatchScheduler,
    ElasticJob,
    ReplicaSpec,
    ReplicaType,
)
from scaler.kubernetes.kinds.documents import clip_groups, job_document
from scaler.kubernetes.kinds.documents.templates import main_container, requests_of
from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.pods import identity, tensorflow
from scaler.kubernetes.pods.amounts import of_main
from scaler.kubernetes.pods.command import ContainerEntry
from scaler.kubernetes.pods.environment import MASTER_PORT, Crowd
from scaler.kubernetes.pods.failures import Remedy, failure, raised
from scaler.kubernetes.pods.manifest import (
    AGENT_PORT,
    AgentInjection,
    PodOrder,
    agent_runs,
    command_of,
)
from scaler.kubernetes.pods.sight import ended_by_deletion
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.ports import document as document_of
from scaler.ports import processes
from scaler.ports import reserved as amounts_of

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Settings of an installation for all its pods."""

    injection: AgentInjection | None = None
    brain_url: str | None = None
    #: True if Volcano's PodGroup is installed.
    volcano: bool = False
    #: True if Kueue is installed.
    kueue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReplicas:
    """Facts about earlier pods of a role that affect the next one."""

    #: The lowest rank without a living pod.
    rank: int
    #: Number of own failures of the replicas that had this rank.
    relaunches: int
    #: Number of OOM kills of the role's pods.
    kills: int
    #: Nodes whose hardware failed a replica.
    avoid: frozenset[str]


def past(
    pods: Iterable[Object], going: Collection[int] = (), *, crashes: bool = False
) -> EarlierReplicas:
    """Collect, from the existing pods of a role, the facts that affect the next pod.

    ``going`` has the ids of replicas that are being replaced; other replicas may get their ranks.
    If ``crashes`` is True, a crash counts as the replica's own failure; use this for jobs that do
    not count the crash as the loss of a world.
    """
    known = list(pods)
    staying = (pod for pod in known if _label(pod, identity.INDEX) not in going)
    alive = {_label(pod, identity.RANK) for pod in staying if not _over(pod)}
    rank = next(number for number in range(len(known) + 1) if number not in alive)
    over = [pod for pod in known if _over(pod)]
    failed = (pod for pod in over if _phase(pod) == "Failed" and not ended_by_deletion(pod))
    failures = [(pod, failure(pod)) for pod in failed]
    before = [pod for pod in over if _label(pod, identity.RANK) == rank]
    last = max(before, key=lambda pod: _label(pod, identity.INDEX), default=None)
    own = {
        id(pod)
        for pod, why in failures
        if why.remedy is not Remedy.RETRY or (crashes and why.crashed)
    }
    relaunches = 0
    if last is not None:
        relaunches = _label(last, identity.RELAUNCHES) + (id(last) in own)
    return EarlierReplicas(
        rank=rank,
        relaunches=relaunches,
        kills=sum(why.remedy is Remedy.MEMORY for _, why in failures),
        avoid=frozenset(
            str(pod["spec"].get("nodeName"))
            for pod, why in failures
            if why.remedy is Remedy.ELSEWHERE and pod["spec"].get("nodeName")
        ),
    )


def order(
    job: ElasticJob,
    wish: DesiredJob,
    replica: int,
    before: EarlierReplicas,
    house: Installation,
    *,
    now: datetime,
    nearest: str | None = None,
    only_there: bool = False,
    place: Mapping[str, Any] | None = None,
    epoch: int = 0,
    host_ports: tuple[int, ...] = (),
    group: str = identity.WORKER,
) -> PodOrder:
    """Build the order for the pod of replica ``replica``, in its ``group``.

    Raises:
        BadInput: the object cannot be used.
    """
    role, document = job.spec.replica_specs[job.scaled], job_document(job)
    template, wanted = job.template_of(group), _planned(wish, group)
    injection = house.injection if injected(job, house) else None
    wished, host = wish.wish, bool((template.get("spec") or {}).get("hostNetwork"))
    crowd = Crowd(
        job=job.metadata.name,
        uid=job.metadata.uid,
        type=job.scaled,
        id=replica,
        rank=before.rank,
        size=wished.replicas,
        least=wished.minimum,
        most=max(document.replicas.max, wished.replicas),
        processes=processes(wish, group),
        restarts=wished.restart_limit,
        master="localhost" if alone(job, document) else master_name(job),
        master_port=host_ports[1] if len(host_ports) > 1 else MASTER_PORT,
    )
    spares = spares_of(job, document)
    sizes = sizes_of(job) | {job.scaled: wished.replicas}
    told = tensorflow_config(job, job.scaled, before.rank, sizes)
    return PodOrder(
        namespace=job.metadata.namespace,
        labels=job.metadata.labels,
        annotations=annotations_of(job),
        crowd=crowd,
        group=group,
        unit=wished.unit,
        generation=wished.generation,
        relaunches=before.relaunches,
        template=_with_policy(template, role),
        priority=priority_class(role.priority, before.rank, wished.replicas),
        envs={**job.spec.envs, **told},
        injection=injection,
        torchrun_ours=annotations_of(job).get(identity.TORCHRUN) == "brain",
        gate=not by_volcano(job, house) and gang_size(job, document) > 1,
        volcano=by_volcano(job, house) and gang_size(job, document) > 1,
        brain_url=house.brain_url,
        accelerator=document.accelerator_of(group)
        or ("gpu" if document.allocation.of(group).gpus else "cpu"),
        checkpoint=wire.plain(_with_grace(document.checkpoint)),
        epoch=epoch,
        place=place,
        agent_port=host_ports[0] if host else AGENT_PORT,
        host_ports=_declared(host_ports, before.rank) if host else (),
        master_port=crowd.master_port if host else None,
        reserves=wanted or document.allocation.of(group),
        requests=of_main(template, wanted) if wanted else {},
        memory_bytes=memory_after(template, before.kills),
        avoid=before.avoid,
        nearest=nearest,
        only_there=only_there,
        spares=spares > 0,
        written_at=now,
    )


def _planned(wish: DesiredJob, group: str) -> Resources | None:
    """Return the amounts that a plan gave each replica of a group; None for its template's."""
    if not wish.wish.roles:
        return wish.wish.resources
    wanted = amounts_of(wish, group)
    return None if wanted == document_of(wish).allocation.of(group) else wanted


def group_sizes(job: ElasticJob, view: JobView | None) -> Mapping[str, int]:
    """Return the number of replicas that each group should have: the planned one, else the declared
    one.
    """
    groups = view.groups if view is not None else ()
    wished = {one.name: one.replicas_wished for one in groups if one.name != identity.WORKER}
    return wished if any(wished.values()) else {n: one.replicas for n, one in job.groups.items()}


def specimens(job: ElasticJob, size: int, groups: Mapping[str, int]) -> dict[str, list[Object]]:
    """Return, by group, the pods that ``specimen`` builds for a job of ``size`` replicas.

    At least one replica is outside the groups. So if the groups would fill the size, they get fewer
    pods.
    """
    fitting = clip_groups(groups, size - 1)
    counts = {**fitting, identity.WORKER: max(0, size - sum(fitting.values()))}
    return {name: [specimen(job, name)] * count for name, count in counts.items() if count}


def specimen(job: ElasticJob, group: str = identity.WORKER) -> Object:
    """Build an example pod of the scaled role, with only the fields that affect its placement."""
    template = job.template_of(group)
    own: Mapping[str, Any] = template.get("metadata") or {}
    name, uid = job.metadata.name, job.metadata.uid
    ours = identity.labels(name, uid, job.scaled, 0, rank=0, relaunches=0)
    if group != identity.WORKER:
        ours[identity.GROUP] = group
    labels = {**job.metadata.labels, **(own.get("labels") or {}), **ours}
    metadata = {"namespace": job.metadata.namespace, "labels": labels}
    return {"metadata": metadata, "spec": template.get("spec") or {}}


def _with_grace(checkpoint: Checkpoint) -> Checkpoint:
    """Set the pod's actual grace in the checkpoint settings that the agent gets."""
    said = checkpoint.grace_seconds
    return replace(checkpoint, grace_seconds=GRACE_SECONDS if said is None else said)


def _declared(host_ports: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the host ports of a pod: its agent's, and that of rank 0 if it has rank 0."""
    return host_ports if rank == 0 else host_ports[:1]


def gang_size(job: ElasticJob, document: JobDocument) -> int:
    """Return the number of pods that must start together: the smallest size of the job."""
    return document.replicas.min


def alone(job: ElasticJob, document: JobDocument) -> bool:
    """True if the job never has a second pod that would look for the first by name."""
    return document.replicas.max == 1 and len(job.spec.replica_specs) == 1


def by_volcano(job: ElasticJob, house: Installation) -> bool:
    """True if Volcano admits the gang: it is installed, and the job does not choose the operator's
    gates.
    """
    said = job.spec.replica_specs[job.scaled].batch_scheduler
    return house.volcano and said is not BatchScheduler.DEFAULT


def spares_of(job: ElasticJob, document: JobDocument) -> int:
    """Return the number of replicas that form no whole unit: with unit 4, 28 of 31 run and 3 wait
    outside the world.
    """
    asked = job.spec.replica_specs[job.scaled].replicas or 0
    first, unit = document.replicas.first, document.replicas.unit
    return min(asked - first, unit - 1) if unit > 1 and asked > first else 0


def elastic(job: ElasticJob, house: Installation) -> bool:
    """True if Brain's agent runs the job's workers, so that worlds may change their size."""
    role = job.spec.replica_specs[job.scaled]
    ours = annotations_of(job).get(identity.TORCHRUN) == "brain"
    return agent_runs(command_of(role.template or {}), ours, injected(job, house))


def injected(job: ElasticJob, house: Installation) -> bool:
    """True if Brain's agent is injected into the job's containers.

    The agent is not injected if the operator writes ``TF_CONFIG``, because TensorFlow's processes
    form no world.
    """
    wanted = annotations_of(job).get(identity.INJECT) != "off"
    return house.injection is not None and wanted and not job.configured_here


def opaque(job: ElasticJob) -> bool:
    """True if the program that the containers start is unknown."""
    role = job.spec.replica_specs[job.scaled]
    return command_of(role.template or {}).entry is ContainerEntry.OPAQUE


def master_name(job: ElasticJob) -> str:
    """Return the address of rank 0: a service that selects the label of that rank."""
    return f"{identity.service_name(job.metadata.name, job.scaled)}-0.{job.metadata.namespace}"


def owner_of(job: ElasticJob) -> str:
    """Return the job's owner: the person that its annotation names, else its namespace."""
    return job.metadata.annotations.get(identity.OWNER, job.metadata.namespace)


def annotations_of(job: ElasticJob) -> Mapping[str, str]:
    """Return the annotations of the job that its pods get, too."""
    return {
        name: value
        for name, value in job.metadata.annotations.items()
        if not name.startswith("kubectl.kubernetes.io/")
    }


def priority_class(said: str | None, rank: int, size: int) -> str | None:
    """Return the PriorityClass of one replica.

    If ``said`` is a number, this share of the ranks gets ``high``, and the other ranks ``low``.

    >>> [priority_class("0.5", rank, 4) for rank in range(4)]
    ['high', 'high', 'low', 'low']
    """
    if said is None:
        return None
    try:
        share = float(said)
    except ValueError:
        return said
    return "high" if rank < round(share * size) else "low"


def exhausted(pods: Sequence[Object], limit: int | None, *, crashes: bool = False) -> str | None:
    """Return why a rank gets no further replica: its replicas failed too often. Else None."""
    if limit is None:
        return None
    before = past(pods, crashes=crashes)
    if before.relaunches <= limit:
        return None
    return (
        f"rank {before.rank} failed {before.relaunches} times through its own fault, more than "
        f"restartCount {limit}; raise the limit, or read the output of the last replica"
    )


def tensorflow_config(
    job: ElasticJob, role: str, rank: int, sizes: Mapping[str, int]
) -> dict[str, dict[str, str]]:
    """Build ``TF_CONFIG`` of one process, if the job's strategy needs it.

    If the number of workers may change, no process is informed of the number, so workers can come
    and go without a restart of the others.
    """
    task = Task(role, rank)
    if not job.configured_here or task not in tensorflow.tasks(sizes):
        return {}
    bounds = job_document(job).replicas
    varies = job.scaled == ReplicaType.WORKER and bounds.max > bounds.min
    metadata = job.metadata
    most = bounds.max if varies else None
    config = tensorflow.config_of(metadata.name, metadata.namespace, sizes, task, most=most)
    return {tensorflow.VARIABLE: {"value": config}}


def sizes_of(job: ElasticJob, scaled: int = 0) -> dict[str, int]:
    """Return the number of replicas of each role in the object; ``scaled`` is the planned number of
    the scaled role, or 0 if there is no plan.
    """
    found = {
        role: spec.replicas
        for role, spec in job.spec.replica_specs.items()
        if role != ReplicaType.MASTER
    }
    return found | ({job.scaled: scaled} if scaled else {})


def _with_policy(template: Mapping[str, Any], role: ReplicaSpec) -> Mapping[str, Any]:
    """Return the template with the role's ``restartPolicy``, which takes precedence."""
    if role.restart_policy is None:
        return template
    spec = {**(template.get("spec") or {}), "restartPolicy": str(role.restart_policy)}
    return {**template, "spec": spec}


def memory_after(template: Mapping[str, Any], kills: int) -> int | None:
    """Return the least memory in bytes for the main container after ``kills`` OOM kills.

    None means that the container keeps its own request.
    """
    said = requests_of(main_container(template)).get("memory")
    if not kills or said is None:
        return None
    return raised(int(quantity(said, "resources.memory")), kills)


def _over(pod: Object) -> bool:
    return _phase(pod) in _OVER


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _label(pod: Object, name: str) -> int:
    said = (pod["metadata"].get("labels") or {}).get(name, "")
    return int(said) if said.isdecimal() else 0
