"""Counts the resources that pods of jobs can still get in the whole cluster."""

from collections.abc import Callable, Iterable

from brain.types.resources import Resources
from scaler.kubernetes.kinds.documents.templates import reserved
from scaler.kubernetes.pods import places
from scaler.kubernetes.pods.asking import asking_index
from scaler.kubernetes.pods.sight import node_of
from scaler.kubernetes.replicas.cache import Sent
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.store import Store
from scaler.ports import NOTHING

_OVER = ("Succeeded", "Failed")


class FreeResources:
    """The free resources of the nodes that Brain counts as room, from sums that stores keep."""

    def __init__(self, nodes: Store, pods: Store, borne: Callable[[], Iterable[str]]) -> None:
        """``borne`` returns tolerations in the form of ``places.tolerations_in``."""
        self._nodes, self._pods, self._borne = nodes, pods, borne
        self._offered = nodes.sum("offers", places.offers, NOTHING)
        self._reserved = pods.sum("reserves", reserves, NOTHING)
        self._reserved_on = pods.sums("reserves on", reserves, lambda pod: node_of(pod) or "")
        # Few nodes: control planes, cordoned and silent nodes.
        nodes.index("closed", lambda node: () if places.usable(node) else ("",))

    def beside(self, sent: Iterable[Sent]) -> Resources:
        """Return the resources that no pod reserves; ``sent`` are requested pods."""
        # In this order a pod that is reflected meanwhile counts twice for a moment, and never zero
        # times.
        coming = [each for each in sent if each.key not in self._pods]
        used = sum((each.reserves for each in coming), self._reserved())
        free = self._offered() - used
        for node in places.closed(self._nodes.by("closed", ""), self._borne()):
            free -= places.offers(node) - self._reserved_on.get(node["metadata"]["name"], NOTHING)
        return free


def reserves(pod: Object) -> Resources:
    """Return the resources that other pods cannot use because of this pod; none once it has ended.

    A pod that requests a node which does not exist yet reserves no resources.
    """
    over = (pod.get("status") or {}).get("phase") in _OVER
    asks = asking_index(pod) and not (pod.get("spec") or {}).get("nodeName")
    return NOTHING if over or asks else reserved(pod)
