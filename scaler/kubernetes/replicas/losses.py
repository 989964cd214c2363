"""Handles the replicas of nodes that are lost or will be.

A *silent* node (whose kubelet no longer reports) may be cut off from the network and still run its
pods. After a while the scaler starts replacements, but does not assume that the old pods have
ended. This is safe, because agents form the next world only by majority, so the replicas on the
silent node cannot continue beside that world. Only a node that is *out* proves the end of its pods:
its object was deleted, or it has the taint ``out-of-service``, which Kubernetes takes as proof.
From a node that *drains*, replicas leave once their replacements are ready. A *cordoned* node may
stay cordoned for any time; its replicas leave if their job allows it.
"""

import threading
from datetime import datetime, timedelta
from enum import StrEnum

from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.kubernetes.runtime.status import read_instant
from scaler.kubernetes.runtime.store import StoreChange

#: Seconds after which a node that is not ready counts as lost.
PATIENCE = timedelta(seconds=30)
_OUT = "node.kubernetes.io/out-of-service"
#: Number of deleted nodes that are remembered.
_REMEMBERED = 10_000
#: Taints that announce the end of a node within minutes.
_NOTICES = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
    }
)


class NodeLoss(StrEnum):
    SILENT = "its node stopped reporting"
    DRAINING = "its node is being drained"
    CORDONED = "its node is cordoned"
    OUT = "its node is out of service"


class NodeLosses:
    """Tracks changes to nodes, and reports if a pod's node is lost or soon will be. Thread-safe."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        #: When each node became silent, on this process's clock; the API server's time counts only
        #: for nodes that were silent before this process began.
        self._silent: dict[str, datetime] = {}
        self._out: dict[str, None] = {}
        self._draining: set[str] = set()
        #: When each node was first seen cordoned, on this process's clock.
        self._cordoned: dict[str, datetime] = {}

    def changed(self, change: StoreChange, now: datetime) -> bool:
        """Record that a node was added, changed or deleted; return True if its pods must be
        checked.
        """
        name, node = change.key.name, change.new
        with self._lock:
            before = self._announced(name)
            self._out.pop(name, None)
            self._draining.discard(name)
            if node is None:
                # The node was there and is deleted; a node that was never seen is merely unknown.
                self._mark_out(name)
                self._silent.pop(name, None)
                self._cordoned.pop(name, None)
                return True
            if ready(node):
                self._silent.pop(name, None)
            else:
                self._silent.setdefault(name, now if change.old else _silent_since(node, now))
            taints = {each.get("key") for each in (node.get("spec") or {}).get("taints") or ()}
            if _OUT in taints:
                self._mark_out(name)
            if taints & _NOTICES or "deletionTimestamp" in node["metadata"]:
                self._draining.add(name)
            if (node.get("spec") or {}).get("unschedulable"):
                self._cordoned.setdefault(name, now)
            else:
                self._cordoned.pop(name, None)
            return self._announced(name) != before

    def suspected(self, node: str | None) -> bool:
        """True if a node is not ready; if this lasts, the node is lost."""
        return node in self._silent

    def cordoned_since(self, node: str | None, now: datetime) -> datetime:
        """Return the time at which a node was first seen cordoned; ``now`` if the node is not
        cordoned.
        """
        return self._cordoned.get(node or "", now)

    def _announced(self, name: str) -> tuple[bool, ...]:
        return tuple(name in each for each in (self._draining, self._cordoned, self._silent))

    def _mark_out(self, name: str) -> None:
        self._out[name] = None
        if len(self._out) > _REMEMBERED:
            # Clusters that make and delete nodes all day never use their names again.
            del self._out[next(iter(self._out))]

    def of(self, node: str | None, now: datetime) -> NodeLoss | None:
        """Return the state of a node that is lost, drains or is cordoned; None for any other
        node.
        """
        if node is None:
            return None
        with self._lock:
            if node in self._out:
                return NodeLoss.OUT
            since = self._silent.get(node)
            if since is not None and now - since >= self._patience:
                return NodeLoss.SILENT
            if node in self._draining:
                return NodeLoss.DRAINING
            return NodeLoss.CORDONED if node in self._cordoned else None


def _silent_since(node: Object, now: datetime) -> datetime:
    """Return when a node became silent, at the latest ``now``."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return min(read_instant(each.get("lastTransitionTime")) or now, now)
    return now


def ready(node: Object) -> bool:
    """True if a node's kubelet reports; a node without the condition Ready counts as ready."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return bool(each.get("status") == "True")
    return True
