"""The cells that ``kubectl get`` prints of built-in kinds and cannot read at a path."""

from collections.abc import Mapping
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Column, Json

_AGE = Column("Age", type="date", path=".metadata.creationTimestamp")
_NAME = Column("Name", format="name", path=".metadata.name")


def _statuses(pod: Mapping[str, Any]) -> list[Json]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _ready(pod: Json) -> str:
    ready = sum(bool(one.get("ready")) for one in _statuses(pod))
    return f"{ready}/{len(pod['spec']['containers'])}"


def _restarts(pod: Json) -> str:
    return str(sum(one.get("restartCount", 0) for one in _statuses(pod)))


def _pod_status(pod: Json) -> str:
    """Return the one word that people look at."""
    status = pod.get("status") or {}
    reason: str = status.get("reason") or status.get("phase", "")
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for one in reversed(_statuses(pod)):
        state = one.get("state") or {}
        for kind in ("waiting", "terminated"):
            if (state.get(kind) or {}).get("reason") and not status.get("reason"):
                reason = state[kind]["reason"]
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else reason


def _or_none(path: str) -> Any:
    def value(obj: Json) -> str:
        found: Any = obj
        for part in path.split("."):
            found = (found or {}).get(part)
        return str(found or "<none>")

    return value


def _gates(pod: Json) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    return str(len(gates)) if gates else "<none>"


PODS = (
    _NAME,
    Column("Ready", cell=_ready),
    Column("Status", cell=_pod_status),
    Column("Restarts", cell=_restarts),
    _AGE,
    Column("IP", cell=_or_none("status.podIP"), priority=1),
    Column("Node", cell=_or_none("spec.nodeName"), priority=1),
    Column("Nominated Node", cell=_or_none("status.nominatedNodeName"), priority=1),
    Column("Readiness Gates", cell=_gates, priority=1),
)


def _node_status(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    told = "Ready" if ready else "NotReady"
    return f"{told},SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else told


def _roles(node: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return (
        ",".join(key.removeprefix(prefix) for key in labels if key.startswith(prefix)) or "<none>"
    )


NODES = (
    _NAME,
    Column("Status", cell=_node_status),
    Column("Roles", cell=_roles),
    _AGE,
    Column("Version", path=".status.nodeInfo.kubeletVersion"),
)
NAMESPACES = (_NAME, Column("Status", path=".status.phase"), _AGE)


def _involved(event: Json) -> str:
    what = event.get("involvedObject") or {}
    return f"{what.get('kind', '').lower()}/{what.get('name', '')}"


def _last_seen(event: Json) -> str | None:
    return event.get("lastTimestamp") or event.get("eventTime")


EVENTS = (
    Column("Last Seen", type="date", cell=_last_seen),
    Column("Type", path=".type"),
    Column("Reason", path=".reason"),
    Column("Object", cell=_involved),
    Column("Message", path=".message"),
    Column("Count", path=".count", priority=1, type="integer"),
    Column("Name", path=".metadata.name", format="name", priority=1),
)
LEASES = (_NAME, Column("Holder", path=".spec.holderIdentity"), _AGE)
DEFINITIONS = (
    _NAME,
    Column("Created At", path=".metadata.creationTimestamp"),
)

BY_KIND: Mapping[str, tuple[Column, ...]] = {
    "pods": PODS,
    "nodes": NODES,
    "namespaces": NAMESPACES,
    "events": EVENTS,
    "leases": LEASES,
    "customresourcedefinitions": DEFINITIONS,
}
