"""Gangs: the pods of a job's smallest size start together, and reserve nothing until then.

If Volcano's PodGroup is installed, Volcano admits gangs. Elsewhere the operator creates pods with a
scheduling gate. A pod behind its gate reserves nothing; the operator opens the gates of a gang
together when there is capacity for all its pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from scaler.kubernetes.kinds.documents.templates import pod_requests
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.neighbours import domains_near
from scaler.kubernetes.pods.placement import Capacity, after, placed
from scaler.kubernetes.runtime.cluster.kind import Kind, Object
from scaler.kubernetes.runtime.status import read_instant

POD_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
GATE = f"{identity.DOMAIN}/gang"
#: Annotation by which Volcano finds a pod's group.
GROUP = "scheduling.k8s.io/group-name"


def pod_group(
    *,
    namespace: str,
    job: str,
    uid: str,
    least: int,
    priority: str | None,
    alike: Mapping[str, Sequence[Object]],
) -> dict[str, Any]:
    """Build Volcano's PodGroup for a job.

    The PodGroup requests the smallest size that can run; more pods may come one by one. ``alike``
    has, by group, example pods for the job's smallest size.
    """
    total: dict[str, Decimal] = {}
    for pods in alike.values():
        for name, amount in pod_requests(pods[0]["spec"]).items():
            total[name] = total.get(name, Decimal(0)) + amount * len(pods)
    least_amounts = {name: f"{amount:f}" for name, amount in total.items()}
    named = {"priorityClassName": priority} if priority else {}
    return {
        "apiVersion": POD_GROUP.api_version,
        "kind": POD_GROUP.kind,
        "metadata": {
            "name": identity.service_name(job, identity.WORKER),
            "namespace": namespace,
            "labels": identity.selector(job) | {identity.UID: uid},
            "ownerReferences": [identity.owner(job, uid)],
        },
        "spec": {"minMember": least, "minResources": least_amounts} | named,
    }


def gated(pod: Object) -> bool:
    """True if the operator's gate keeps a pod from being scheduled."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == GATE for gate in gates)


def begun(pods: Iterable[Object]) -> list[Object]:
    """Return the pods of a job that are not behind the operator's gate, have not ended, and are not
    being deleted.
    """
    return [pod for pod in pods if not gated(pod) and stays(pod)]


def stays(pod: Object) -> bool:
    """True if a pod has not ended and is not being deleted."""
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not over and "deletionTimestamp" not in pod["metadata"]


def holding(pods: Iterable[Object]) -> list[Object]:
    """Return the pods of a job that have a node, have not ended, and are not being deleted."""
    return [pod for pod in pods if stays(pod) and (pod.get("spec") or {}).get("nodeName")]


def bound_at(pod: Object) -> datetime | None:
    """Return the time at which a pod got its node, if its status has it."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if (each.get("type"), each.get("status")) == ("PodScheduled", "True"):
            return read_instant(each.get("lastTransitionTime"))
    return None


def opened(pod: Object, near: Mapping[str, str]) -> dict[str, Any]:
    """Build the merge patch that removes the operator's gate from a pod and keeps other gates.

    ``near`` has labels of the nodes on which the gang fits, if its pods must be near each other.
    Without these labels, the first pod could go to a node near which the others find no capacity.
    """
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    held = {"nodeSelector": dict(near)} if near else {}
    left = [gate for gate in gates if gate.get("name") != GATE]
    return {"spec": {"schedulingGates": left} | held}


@dataclass(frozen=True, slots=True)
class Admission:
    """Pods that may start now, lowest id first."""

    pods: Sequence[Object] = ()
    #: Labels of nodes that hold the pods, if these want to be near each other.
    near: Mapping[str, str] = field(default_factory=dict)
    #: For each node, why it takes no further pod.
    refusals: Mapping[str, str] = field(default_factory=dict)


def fitting_first(waiting: Sequence[Object], capacity: Capacity) -> list[Object]:
    """Order pods so that the pods of a group without capacity do not delay another group."""
    first, rest = list[Object](), list[Object]()
    for name in sorted({identity.group_of(pod) for pod in waiting}):
        alike = [pod for pod in waiting if identity.group_of(pod) == name]
        fits = len(placed(alike, capacity).nodes)
        capacity = after(alike[:fits], capacity)
        first += alike[:fits]
        rest += alike[fits:]
    return [*first, *rest]


def admitted(
    waiting: Sequence[Object], begun: int, *, least: int, unit: int, capacity: Capacity
) -> Admission:
    """Return the gated pods of a job that may start now.

    ``begun`` is the number of the job's pods that no longer have a gate. The first pods to start
    raise this number to ``least``; later pods start in units. Neither the first pods nor a unit
    start unless all their pods find capacity.
    """
    found = placed(waiting, capacity)
    fits, refusals = len(found.nodes), found.refusals or {}
    first = max(0, least - begun)
    if fits < first:
        return Admission(refusals=refusals)
    whole = (begun + fits) // max(1, unit) * max(1, unit) - begun
    # A job whose least size is no multiple of its unit keeps the rest as spares.
    count = max(first, whole, 0)
    begins = waiting[: count if fits < len(waiting) else len(waiting)]
    domains = [domains_near(begins[0], capacity.nodes[name]) for name in found.nodes[: len(begins)]]
    return Admission(begins, _common(domains), refusals)


def _common(domains: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return labels that all nodes share: pods that may go to several domains are held to none."""
    first = domains[0] if domains else {}
    return dict(item for item in first.items() if all(item in each.items() for each in domains))
