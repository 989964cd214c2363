"""Replicas of roles whose size no plan changes: parameter servers, chief, evaluator.

Each rank has one living pod. A failed pod is replaced in its rank, unless its kind of failure or
the job's ``restartCount`` forbids that.
"""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

from brain import wire
from brain.types.job import JobDocument
from brain.types.roles import CHIEF, PS
from brain.types.world import ReplicaEnd, ReplicaExit
from scaler.kubernetes.dependents.upkeep import AGAIN, Upkeep
from scaler.kubernetes.kinds import ElasticJob, ReplicaType
from scaler.kubernetes.pods import identity, tensorflow
from scaler.kubernetes.pods.environment import Crowd
from scaler.kubernetes.pods.failures import Remedy, failure, terminated
from scaler.kubernetes.pods.manifest import PodOrder, manifest
from scaler.kubernetes.pods.orders import (
    alone,
    annotations_of,
    exhausted,
    master_name,
    past,
    priority_class,
    sizes_of,
    tensorflow_config,
)
from scaler.kubernetes.pods.sight import ended_by_deletion, relaunched
from scaler.kubernetes.runtime.cluster import SERVICE, Object
from scaler.kubernetes.runtime.status import read_instant
from scaler.kubernetes.runtime.store import Store

log = logging.getLogger(__name__)

_OVER = ("Succeeded", "Failed")


class Roles:
    """Keeps one living pod for each rank of the roles whose size no plan changes."""

    def __init__(self, upkeep: Upkeep, pods: Store) -> None:
        self._upkeep, self._pods = upkeep, pods
        self._pods.index("owner", _owner_uid)
        #: Generation of each job's object whose services this operator made, and when it did.
        self._named: dict[str, tuple[int, datetime]] = {}

    def pods_of(self, job: ElasticJob) -> list[Object]:
        found = self._pods.by("owner", job.metadata.uid)
        return [
            pod for pod in found if (identity.replica_of(pod) or (job.scaled, 0))[0] != job.scaled
        ]

    def keep(self, job: ElasticJob, wished: int, now: datetime) -> None:
        """Keep one living pod for each rank, and end each process that was started with outdated
        addresses of parameter servers.

        If the number of servers changes, every process restarts; if the number of workers changes,
        only the chief restarts. ``wished`` is the desired number of workers. While the job stops or
        waits, ``wished`` is 0: then no pod is created, and the pods of these roles end after the
        last worker.
        """
        pods = self._pods.by("owner", job.metadata.uid)
        if (ending := chiefs_end(job, pods, wished)) is not None:
            self._record(job, pods, ending)
        elif wished:
            self._fill(job, pods, wished, now)
        for pod in () if wished else unwanted(job, pods):
            self._upkeep.replace(pod)

    def _record(self, job: ElasticJob, pods: Sequence[Object], ending: ReplicaEnd) -> None:
        """Record a job's end on the pods that Brain knows, and end them."""
        said = {"metadata": {"annotations": {identity.ENDING: wire.encode(ending).decode()}}}
        for pod in pods:
            if _role(pod) == job.scaled and _stays(pod):
                self._upkeep.patch(pod, said)
                self._upkeep.replace(pod)

    def _fill(self, job: ElasticJob, pods: Sequence[Object], wished: int, now: datetime) -> None:
        for pod in pods:
            if surplus(job, pod) or misled(job, pod, wished):
                self._upkeep.replace(pod)
        for role in fixed(job):
            for pod in missing(job, role, pods, wished, now):
                self._upkeep.create(pod)

    def name(self, job: ElasticJob, document: JobDocument, now: datetime, *, rigid: bool) -> None:
        """Create the services of roles: after each edit of the object, once in each operator
        process, and from time to time, because somebody may have deleted them.

        The object's status does not show if the services exist, because the operator also writes
        the status while Brain is unreachable or nodes are missing.
        """
        id, generation = job.metadata.uid, job.metadata.generation
        known = self._named.get(id)
        if known is not None and known[0] == generation and now - known[1] < AGAIN:
            return
        for pod in self._pods.by("owner", id):
            if _role(pod) and _stays(pod) and identity.OBJECT not in pod["metadata"]["labels"]:
                # An operator of the previous release made the pod, and the services select it by
                # this label from now on.
                self._upkeep.patch(pod, {"metadata": {"labels": {identity.OBJECT: id}}})
        if rigid and not alone(job, document):
            self._upkeep.services(job)
        for service in processes(job, document):
            self._upkeep.apply(SERVICE, service)
        self._named[id] = generation, now

    def forget(self, job: str) -> None:
        """Forget that the services of a job were made."""
        self._named.pop(job, None)

    def end(self, job: ElasticJob) -> None:
        """End the remaining pods of the roles whose size no plan changes; the job has ended."""
        self.forget(job.metadata.uid)
        for pod in self.pods_of(job):
            if _stays(pod):
                self._upkeep.replace(pod)


def fixed(job: ElasticJob) -> Iterator[str]:
    """Return the roles whose size no plan changes."""
    for role in job.spec.replica_specs:
        if role not in (job.scaled, ReplicaType.MASTER):
            yield role


def processes(job: ElasticJob, document: JobDocument) -> Iterator[dict[str, object]]:
    """Return each process that ``TF_CONFIG`` may name, including those that plans may add."""
    if not job.configured_here:
        return
    here = sizes_of(job)
    most = max(here.get(job.scaled, 0), document.replicas.max)
    for task in tensorflow.tasks(here | {job.scaled: most}):
        yield tensorflow.service(job.metadata.name, job.metadata.uid, job.metadata.namespace, task)


def unwanted(job: ElasticJob, pods: Sequence[Object]) -> Iterator[Object]:
    """Return the pods to end in a job that should have no pods, so that a resume starts with new
    pods.

    A worker that leaves may still write a checkpoint with its servers, so the servers stay until
    the last worker has ended. A failed pod is ended immediately.
    """
    served = any(_role(pod) == job.scaled and _phase(pod) not in _OVER for pod in pods)
    for pod in pods:
        if _role(pod) in ("", job.scaled) or "deletionTimestamp" in pod["metadata"]:
            continue
        if _phase(pod) == "Failed" or (_stays(pod) and not served):
            yield pod


def chiefs_end(job: ElasticJob, pods: Sequence[Object], wished: int) -> ReplicaEnd | None:
    """Return the end of a job whose chief has ended for good; None while the job continues.

    If the chief fails while its workers leave (``wished`` is 0), the job does not fail.

    With parameter servers, the chief coordinates: servers and workers wait for its requests and
    never end. In other jobs, the end of a chief says nothing about the other replicas.
    """
    if job.scaled == CHIEF or not job.configured_here:
        return None
    for pod in pods:
        phase = _phase(pod)
        if _role(pod) != CHIEF or phase not in _OVER or ended_by_deletion(pod):
            continue
        at = read_instant((terminated(pod) or {}).get("finishedAt"))
        if phase == "Succeeded":
            said = "the chief exited with code 0"
            return ReplicaEnd(exit=ReplicaExit.SUCCEEDED, exit_code=0, detail=said, at=at)
        if wished and (why := _given_up(job, pod, pods)):
            said, code = f"the chief ended the job: {why}", failure(pod).exit_code
            return ReplicaEnd(exit=ReplicaExit.FAILED, exit_code=code, detail=said, at=at)
    return None


def surplus(job: ElasticJob, pod: Object) -> bool:
    """True if no plan changes the size of the pod's role, and the object no longer has the pod's
    rank.
    """
    role = _role(pod)
    scaled = role == job.scaled or role not in sizes_of(job)
    return _stays(pod) and not scaled and _rank(pod) >= sizes_of(job)[role]


def misled(job: ElasticJob, pod: Object, wished: int) -> bool:
    """True if a process was started with addresses of parameter servers that are outdated.

    This also applies to a chief that was started with outdated addresses of workers.
    """
    if not job.configured_here or not _stays(pod) or not wished:
        return False
    role, here = _role(pod), sizes_of(job, wished)
    wide = here | {role: max(here.get(role, 0), _rank(pod) + 1)}
    told = tensorflow_config(job, role, _rank(pod), wide).get(tensorflow.VARIABLE)
    return told is not None and tensorflow.outdated(pod, told["value"])


def missing(
    job: ElasticJob, role: str, pods: Sequence[Object], wished: int, now: datetime
) -> Iterator[dict[str, object]]:
    """Return the pods to create so that every rank of a role has one; ``pods`` are the job's
    pods.
    """
    spec, mine = job.spec.replica_specs[role], [pod for pod in pods if _role(pod) == role]
    next_id = max((_id(pod) for pod in mine), default=-1) + 1
    alive = sum(_phase(pod) not in _OVER for pod in mine)
    done = sum(_phase(pod) == "Succeeded" for pod in mine)
    if any(_final(pod) and not bereft(job, pod, pods) for pod in mine):
        return
    for id in range(next_id, next_id + max(0, sizes_of(job)[role] - alive - done)):
        if exhausted(mine, spec.restart_count, crashes=True):
            return
        pod = manifest(_order(job, role, id, mine, wished, now))
        mine.append(pod)
        yield pod


def _order(
    job: ElasticJob, role: str, id: int, mine: Sequence[Object], wished: int, now: datetime
) -> PodOrder:
    before, spec = past(mine, crashes=True), job.spec.replica_specs[role]
    size = sizes_of(job)[role]
    crowd = Crowd(
        job=job.metadata.name,
        uid=job.metadata.uid,
        type=role,
        id=id,
        rank=before.rank,
        size=size,
        least=size,
        most=size,
        processes=1,
        restarts=spec.restart_count or 0,
        master=master_name(job),
    )
    template = spec.template or {}
    if spec.restart_policy is not None:
        policy = {"restartPolicy": str(spec.restart_policy)}
        template = {**template, "spec": {**(template.get("spec") or {}), **policy}}
    return PodOrder(
        namespace=job.metadata.namespace,
        labels=job.metadata.labels,
        annotations=annotations_of(job),
        crowd=crowd,
        scaled=False,
        relaunches=before.relaunches,
        template=template,
        priority=priority_class(spec.priority, before.rank, size),
        envs={**job.spec.envs, **tensorflow_config(job, role, before.rank, sizes_of(job, wished))},
        avoid=before.avoid,
        written_at=now,
    )


def _given_up(job: ElasticJob, pod: Object, pods: Sequence[Object]) -> str | None:
    """Return why no other pod replaces a failed chief; None if one does."""
    if _final(pod) and not bereft(job, pod, pods):
        return failure(pod).detail
    return _spent(job, CHIEF, pods)


def bereft(job: ElasticJob, pod: Object, pods: Sequence[Object]) -> bool:
    """True if a chief failed because it lost a server; a new chief may then succeed.

    The script of such a chief exits with code 1. A server is lost if it is missing, or if it
    started after the chief. If a lost server will not be replaced, the result is False.
    """
    spec = job.spec.replica_specs.get(PS)
    if spec is None or _role(pod) != CHIEF or not relaunched(pod):
        return False
    servers = [each for each in pods if _role(each) == PS]
    gone = any(_final(each) and not ended_by_deletion(each) for each in servers)
    if gone or _spent(job, PS, pods):
        return False
    staying = [each for each in servers if _stays(each)]
    began = read_instant((terminated(pod) or {}).get("startedAt"))
    return len(staying) < spec.replicas or any(_younger(each, began) for each in staying)


def _younger(pod: Object, instant: datetime | None) -> bool:
    created = read_instant(pod["metadata"].get("creationTimestamp"))
    return created is not None and instant is not None and created > instant


def _spent(job: ElasticJob, role: str, pods: Sequence[Object]) -> str | None:
    """Return why a role gets no further pod: its ``restartCount`` is used up."""
    spec = job.spec.replica_specs.get(role)
    mine = [pod for pod in pods if _role(pod) == role]
    return exhausted(mine, spec.restart_count, crashes=True) if spec else None


def _final(pod: Object) -> bool:
    """True if a pod failed in a way that another pod would repeat."""
    if _phase(pod) != "Failed":
        return False
    return failure(pod).remedy is Remedy.FATAL or not relaunched(pod)


def _owner_uid(pod: Object) -> tuple[str, ...]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return tuple(str(each.get("uid")) for each in owners if each.get("kind") == identity.KIND)


def _stays(pod: Object) -> bool:
    return _phase(pod) not in _OVER and "deletionTimestamp" not in pod["metadata"]


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _rank(pod: Object) -> int:
    said = (pod["metadata"].get("labels") or {}).get(identity.RANK, "")
    return int(said) if said.isdecimal() else 0


def _role(pod: Object) -> str:
    return (identity.replica_of(pod) or ("", 0))[0]


def _id(pod: Object) -> int:
    return (identity.replica_of(pod) or ("", 0))[1]
