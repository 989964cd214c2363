"""All or nothing: the pods that a job needs at least begin together, or none holds anything.

Where Volcano's PodGroup is installed it does the admission. Elsewhere pods are made with a
scheduling gate, hold nothing while it is closed, and it is opened for all of a gang at once when
there is room for all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.kubernetes.machinery.cluster.kind import Kind, Object
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.fitting import Amounts, needs, placed

POD_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
GATE = f"{identity.DOMAIN}/gang"
#: Annotation by which Volcano knows a pod's group.
GROUP = "scheduling.k8s.io/group-name"


def pod_group(
    *, namespace: str, job: str, uid: str, least: int, priority: str | None, spec: Mapping[str, Any]
) -> dict[str, Any]:
    """Volcano's object for a job. It asks for the least that can run: more may come one by one."""
    total = {name: f"{amount * least:f}" for name, amount in needs(spec).items() if name != "pods"}
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
        "spec": {"minMember": least, "minResources": total} | named,
    }


def gated(pod: Object) -> bool:
    """Whether our gate keeps a pod from being scheduled."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == GATE for gate in gates)


def opened(pod: Object) -> dict[str, Any]:
    """The merge patch that takes our gate from a pod and leaves those of others."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return {"spec": {"schedulingGates": [gate for gate in gates if gate.get("name") != GATE]}}


def admitted(
    waiting: Sequence[Object], begun: int, *, least: int, unit: int, free: Mapping[str, Amounts]
) -> Sequence[Object]:
    """Which of a job's gated pods may begin now, lowest id first.

    ``begun`` of the job's pods have no gate any more. With them the first to begin make ``least``;
    what comes later comes in units. None begin where not all of such a group find room.
    """
    fits = placed([needs(pod["spec"]) for pod in waiting], free)
    first = max(0, least - begun)
    if fits < first:
        return ()
    whole = (begun + fits) // max(1, unit) * max(1, unit) - begun
    # A job whose least size is no multiple of its unit keeps what does not make one as spares.
    count = max(first, whole, 0)
    return waiting[: count if fits < len(waiting) else len(waiting)]
