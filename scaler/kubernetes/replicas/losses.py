"""Handle the replicas of a node that is lost, or about to be.

A *silent* node (nobody has heard its kubelet) may be cut off and still be running its pods. Other
pods are started in their place after a while, and nothing is claimed of the old ones: agents form
the next world by majority, so the cut-off part of a job cannot go on beside it. Only a node that is
*out* proves the end of what was on it: its object is deleted, or somebody put the taint
``out-of-service`` on it, which Kubernetes takes for that word. From a node that *drains*, replicas
leave by themselves once they are told to; others are made ready before. A *cordoned* node goes on
for as long as somebody likes; jobs that want it leave it in time.
"""

import threading
from datetime import datetime, timedelta
from enum import StrEnum

from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.kubernetes.runtime.store import StoreChange

#: A node that is not ready for so long is taken to be lost.
PATIENCE = timedelta(seconds=30)
_OUT = "node.kubernetes.io/out-of-service"
#: Nodes that are gone and are remembered.
_REMEMBERED = 10_000
#: Taints by which somebody tells that a node will be gone in a few minutes.
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
    """The loss of a node."""

    SILENT = "its node is silent"
    DRAINING = "its node is being drained"
    CORDONED = "its node is cordoned"
    OUT = "its node is out of service"


class NodeLosses:
    """Told of every change of a node; asked about the node of a pod. By many threads."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        #: Since when each node is silent, on this process's clock: theirs are not compared.
        self._silent: dict[str, datetime] = {}
        self._out: dict[str, None] = {}
        self._draining: set[str] = set()
        #: Since when each node is cordoned, on this process's clock.
        self._cordoned: dict[str, datetime] = {}

    def changed(self, change: StoreChange, now: datetime) -> bool:
        """A node came, changed or went; return True if its pods should be looked at."""
        name, node = change.key.name, change.new
        with self._lock:
            before = self._announced(name)
            self._out.pop(name, None)
            self._draining.discard(name)
            if node is None:
                # It was there and is deleted: one that was never seen is not yet known.
                self._mark_out(name)
                self._silent.pop(name, None)
                self._cordoned.pop(name, None)
                return True
            if ready(node):
                self._silent.pop(name, None)
            else:
                self._silent.setdefault(name, now)
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

    def cordoned_since(self, node: str | None, now: datetime) -> datetime:
        """Return the time at which a node was first seen cordoned; ``now`` if it is not."""
        return self._cordoned.get(node or "", now)

    def _announced(self, name: str) -> tuple[bool, bool]:
        return name in self._draining, name in self._cordoned

    def _mark_out(self, name: str) -> None:
        self._out[name] = None
        if len(self._out) > _REMEMBERED:
            # Names of clusters that make and delete nodes all day are never used again.
            del self._out[next(iter(self._out))]

    def of(self, node: str | None, now: datetime) -> NodeLoss | None:
        """Return the loss of a node; None where it is not lost, or there is none."""
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


def ready(node: Object) -> bool:
    """True if a node's kubelet is heard; one of which nothing is said yet is taken to be."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return bool(each.get("status") == "True")
    return True
