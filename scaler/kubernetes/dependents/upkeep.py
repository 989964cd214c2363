"""Keeps a job's services, PodGroup and disruption budget, and the data that its agents read."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from brain.errors import NotFound
from brain.types.job import JobDocument
from scaler.kubernetes.kinds import ElasticJob, ReplicaType
from scaler.kubernetes.pods import gang, identity, places
from scaler.kubernetes.pods.manifest import AGENT_PORT
from scaler.kubernetes.pods.orders import gang_size, group_sizes, priority_class, specimens
from scaler.kubernetes.runtime.cluster import (
    POD,
    SERVICE,
    AlreadyExists,
    Cluster,
    Key,
    Kind,
    Object,
)
from scaler.kubernetes.runtime.store import Store

log = logging.getLogger(__name__)

BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_OVER = ("Succeeded", "Failed")
#: Time after which an object is applied again, because somebody may have deleted or changed it.
AGAIN = timedelta(minutes=10)
#: Most replicas of a job that needs the cluster's word on a loss; larger jobs prove it by majority.
_FEW = 16


class Upkeep:
    """Keeps a job's dependents up to date."""

    def __init__(self, cluster: Cluster, pods: Store, nodes: Store) -> None:
        self._cluster, self._pods, self._nodes = cluster, pods, nodes
        #: The number of pods that each job's disruption budget keeps, as this operator last wrote
        #: it, and the time of that write.
        self._kept: dict[str, tuple[int, datetime]] = {}

    def services(self, job: ElasticJob) -> None:
        """Give the pods of each role a common DNS name, and the pod of rank 0 a name of its own."""
        for obj in services(job):
            self._cluster.apply(SERVICE, obj)

    def pod_group(self, job: ElasticJob, document: JobDocument) -> None:
        """Apply Volcano's PodGroup, if Volcano admits gangs."""
        role = job.spec.replica_specs[job.scaled]
        obj = gang.pod_group(
            namespace=job.metadata.namespace,
            job=job.metadata.name,
            uid=job.metadata.uid,
            least=gang_size(job, document),
            alike=specimens(job, gang_size(job, document), group_sizes(job, None)),
            # A share makes the lowest ranks high, so a gang has the class of its first rank.
            priority=priority_class(role.priority, 0, document.replicas.first),
        )
        self._cluster.apply(gang.POD_GROUP, obj)

    def keep_budget(self, job: ElasticJob, count: int, now: datetime) -> None:
        """Protect ``count`` of the job's pods from eviction."""
        known = self._kept.get(job.metadata.uid)
        if known is None or known[0] != count or now - known[1] >= AGAIN:
            self._cluster.apply(BUDGET, budget(job, count))
            self._kept[job.metadata.uid] = count, now

    def release(self, obj: Object) -> None:
        """Allow evictions of a deleted object's pods, which no operator replaces any more."""
        metadata, zero = obj["metadata"], {"spec": {"minAvailable": 0}}
        name = identity.budget_name(metadata["name"])
        try:
            self._cluster.merge(BUDGET, metadata["namespace"], name, zero)
        except NotFound:
            log.debug("%s has no budget", metadata["name"])
        self.forget(metadata["uid"])

    def forget(self, job: str) -> None:
        self._kept.pop(job, None)

    def tell_places(
        self,
        mine: Sequence[Object],
        lost: Sequence[int],
        cut_off: Collection[int] = (),
        members: Collection[int] = (),
    ) -> None:
        """Inform each pod's agent of the endpoint of the job's agents, of the pod's location, and
        of the replicas that have ended.

        ``cut_off`` has the ids of replicas on nodes whose kubelet does not report. ``members`` has
        the ids of the replicas in the last world.
        """
        endpoint = endpoint_of(mine, cut_off, members)
        alive = [pod for pod in mine if _alive(pod)]
        for pod in alive:
            place = place_of(pod, endpoint, self._labels(pod), lost if len(alive) <= _FEW else ())
            if place is not None and place != identity.place_of(pod):
                self.patch(pod, {"metadata": {"annotations": {identity.PLACE: json.dumps(place)}}})

    def late(self, job: ElasticJob, mine: Sequence[Object], now_seconds: float) -> Iterator[Object]:
        """Return restarted pods that take longer to be ready than ``restartTimeout`` allows."""
        for pod, left in _left(job, mine, now_seconds):
            if left < 0:
                yield pod

    def patience(self, job: ElasticJob, mine: Sequence[Object], now_seconds: float) -> float | None:
        """Return the seconds (at least 1) until the next restarted pod exceeds ``restartTimeout``.

        None if no restarted pod is pending.
        """
        left = (left for _, left in _left(job, mine, now_seconds))
        return min((max(1.0, each) for each in left), default=None)

    def replace(self, pod: Object) -> None:
        """Delete a pod if it still exists; a replacement follows if the job still needs one."""
        metadata = pod["metadata"]
        try:
            self._cluster.delete(
                POD, metadata["namespace"], metadata["name"], uid=metadata.get("uid")
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])

    def create(self, pod: Object) -> None:
        """Create a pod unless it exists."""
        try:
            self._cluster.create(POD, pod)
        except AlreadyExists:
            log.debug("%s exists already", pod["metadata"]["name"])

    def apply(self, kind: Kind, obj: Object) -> None:
        self._cluster.apply(kind, obj)

    def _labels(self, pod: Object) -> Mapping[str, str]:
        node = self._nodes.get(Key("", (pod.get("spec") or {}).get("nodeName") or ""))
        return (node["metadata"].get("labels") or {}) if node is not None else {}

    def patch(self, pod: Object, patch: Mapping[str, Any]) -> None:
        """Apply a merge patch to a pod, if the pod still exists."""
        metadata = pod["metadata"]
        try:
            self._pods.learn(
                self._cluster.merge(POD, metadata["namespace"], metadata["name"], patch)
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])


def _left(
    job: ElasticJob, mine: Sequence[Object], now_seconds: float
) -> Iterator[tuple[Object, float]]:
    """Return relaunched pods that are not ready, and the seconds left of ``restartTimeout``."""
    limit = job.spec.replica_specs[job.scaled].restart_timeout
    for pod in mine if limit else ():
        labels = pod["metadata"].get("labels") or {}
        pending = _phase(pod) in ("", "Pending") and not gang.gated(pod)
        created = _seconds(pod["metadata"].get("creationTimestamp"))
        relaunched = labels.get(identity.RELAUNCHES, "0") != "0"
        if limit and pending and relaunched and created is not None:
            yield pod, created + limit - now_seconds


def services(job: ElasticJob) -> Iterator[dict[str, Any]]:
    """Build headless services, which give pods DNS names even if they are not ready."""
    for role in job.spec.replica_specs:
        if role == ReplicaType.MASTER:
            continue
        name = identity.service_name(job.metadata.name, role)
        chosen = identity.selector(job.metadata.name) | {identity.TYPE: role}
        # Pods of an earlier job of this name may still leave.
        chosen[identity.OBJECT] = job.metadata.uid
        yield _service(job, name, chosen)
        # TensorFlow's processes have a service for each rank, with a port.
        if not job.configured_here:
            yield _service(job, f"{name}-0", chosen | {identity.RANK: "0"})


def budget(job: ElasticJob, count: int) -> dict[str, Any]:
    """Build a PodDisruptionBudget that keeps ``count`` of the pods whose number plans change.

    The budget is a number and not a percentage, because the disruption controller may not know how
    many pods there should be. Pods that are not ready may always be evicted, because they do not
    train.
    """
    return {
        "metadata": {
            "name": identity.budget_name(job.metadata.name),
            "namespace": job.metadata.namespace,
            "labels": identity.selector(job.metadata.name),
            "ownerReferences": [identity.owner(job.metadata.name, job.metadata.uid)],
        },
        "spec": {
            "minAvailable": count,
            "selector": {"matchLabels": {identity.UID: job.metadata.uid}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def endpoint_of(
    mine: Sequence[Object], cut_off: Collection[int] = (), members: Collection[int] = ()
) -> str:
    """Return the endpoint (host:port) of the agent that forms the first world, or knows the
    coordinator.

    The result is empty if no pod has an address. The endpoint stays the same pod while that pod
    lives, because two endpoints could form two worlds. If the pod is cut off, it may still be
    alive. Then the endpoint moves to another pod in ``members``, because the agent of a member
    forms no world without the majority of the old world. The endpoint never moves to a newcomer,
    because a newcomer would form a world alone.
    """
    found: dict[str, Object] = {}
    alive = sorted((pod for pod in mine if _alive(pod)), key=_index)
    for pod in alive:
        address = (pod.get("status") or {}).get("podIP")
        if address:
            host = f"[{address}]" if ":" in address else address
            found.setdefault(f"{host}:{agent_port(pod)}", pod)
    named = (_endpoint_told(pod) for pod in alive)
    told = next((each for each in named if each in found), next(iter(found), ""))
    if told and _index(found[told]) in cut_off:
        reached = {where: _index(pod) for where, pod in found.items()}
        others = (w for w, id in reached.items() if id in members and id not in cut_off)
        return next(others, told)
    return told


def _endpoint_told(pod: Object) -> str:
    return str(identity.place_of(pod).get("endpoint", ""))


def agent_port(pod: Object) -> int:
    """Return the port of a pod's agent, from the variable ``BRAIN_POD`` of the pod's containers."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == "BRAIN_POD":
                return int(json.loads(variable["value"]).get("port", AGENT_PORT))
    return AGENT_PORT


def place_of(
    pod: Object, endpoint: str, labels: Mapping[str, str], lost: Sequence[int]
) -> dict[str, Any] | None:
    """Return the data that a pod's agent needs: the endpoint of the job's agents, the location of
    the pod's node, and the replicas in ``lost``.

    None if the endpoint is unknown, or the pod has no node.
    """
    if not endpoint or not (pod.get("spec") or {}).get("nodeName"):
        return None
    found: dict[str, Any] = {"endpoint": endpoint}
    if topology := places.told(labels):
        found["topology"] = topology
    if lost:
        found["gone"] = sorted(lost)
    return found


def _service(job: ElasticJob, name: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": identity.selector(job.metadata.name),
            "ownerReferences": [identity.owner(job.metadata.name, job.metadata.uid)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(chosen),
        },
    }


def _alive(pod: Object) -> bool:
    return _phase(pod) not in _OVER


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _index(pod: Object) -> int:
    found = identity.replica_of(pod)
    return found[1] if found else 0


def _seconds(said: object) -> float | None:
    if not isinstance(said, str):
        return None
    return datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp()
