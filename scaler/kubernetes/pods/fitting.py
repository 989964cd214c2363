"""Decides if a job can ever run, and which of its waiting pods may start together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from scaler.kubernetes.kinds.documents.templates import pod_requests
from scaler.kubernetes.kinds.quantities import is_accelerator, quantity
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.failures import unschedulable
from scaler.kubernetes.pods.neighbours import averse, matter_to, neighbourly, without_others
from scaler.kubernetes.pods.placement import Amounts, Capacity, after, needs, offers, placed
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.kubernetes.runtime.store import Store

_OVER = ("Succeeded", "Failed")
_NONE = Decimal(0)
#: Resources that Kubernetes itself defines; all others are extended resources.
_NATIVE = "kubernetes.io/"
#: Prefixes of taints that describe a node's state, and taints of a cluster autoscaler.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")
_LEAVING = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")


class FittingTally(dict[str, Decimal]):
    """Amounts by resource, which can be added and subtracted."""

    def __add__(self, other: "FittingTally") -> "FittingTally":
        return FittingTally(
            {name: self.get(name, _NONE) + other.get(name, _NONE) for name in self | other}
        )

    def __sub__(self, other: "FittingTally") -> "FittingTally":
        return FittingTally(
            {name: self.get(name, _NONE) - other.get(name, _NONE) for name in self | other}
        )


class NodeCapacity:
    """Free resources of each node, from sums that stores keep.

    No call reads all pods, except one pass for pods with affinity or anti-affinity to other pods.
    """

    def __init__(self, nodes: Store, pods: Store) -> None:
        self._nodes, self._pods = nodes, pods
        self._held = pods.sums("held", _held, _place)
        pods.index("coming", lambda pod: ("",) if _comes(pod) else ())
        pods.index("averse", lambda pod: ("",) if _stays(pod) and averse(pod) else ())

    def capacity(self, wanted: Sequence[Object]) -> Capacity:
        """Return the capacity for the ``wanted`` pods.

        Brain's pods that may begin, but that the scheduler has not looked at yet, count as placed.
        Otherwise two gangs could get the same capacity, and each could hold a part of it.
        """
        coming = self._pods.by("coming", "")
        nodes = {node["metadata"]["name"]: node for node in self._nodes}
        free = {name: dict(_offers(node)) for name, node in nodes.items()}
        for name, left in free.items():
            for resource, amount in self._held.get(name, FittingTally()).items():
                left[resource] = offers(left, resource) - amount
        matters, near = matter_to((*wanted, *coming)), any(map(neighbourly, (*wanted, *coming)))
        others = filter(_stays, self._pods) if near else self._pods.by("averse", "")
        there = list(filter(matters, others))
        return after(coming, Capacity(nodes=nodes, free=free, pods=there))


def _stays(pod: Object) -> bool:
    """True if a pod has its node and has not ended."""
    return bool(_place(pod)) and (pod.get("status") or {}).get("phase") not in _OVER


def _held(pod: Object) -> FittingTally:
    return FittingTally(needs(pod["spec"])) if _stays(pod) else FittingTally()


def _place(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _comes(pod: Object) -> bool:
    """True if a pod of Brain's may still get a node: no gate holds it, no scheduler has rejected
    it.
    """
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if _place(pod) or (pod.get("status") or {}).get("phase") in _OVER:
        return False
    ours = (metadata.get("labels") or {}).get(identity.MANAGED_BY) == identity.MANAGER
    leaves = "deletionTimestamp" in metadata
    return ours and not leaves and not spec.get("schedulingGates") and not unschedulable(pod)


def infeasible(pods: Sequence[Object], nodes: Sequence[Object]) -> str | None:
    """Return why a job that needs all these ``pods`` can never run; None if it might run.

    The check assumes that nodes are empty and healthy, and that other pods that the job requires
    nearby will exist. Without nodes the answer is None, because an autoscaler may create some.
    """
    if not nodes:
        return None
    empty = _empty(nodes)
    found = placed(_alone(pods), empty)
    if found.refusals is None:
        return None
    least, pod = len(pods), pods[len(found.nodes)]
    if found.nodes:
        return (
            f"the job needs at least {least} replicas, but only {len(found.nodes)} fit on the "
            f"{len(nodes)} nodes, even when these are empty: {counted(found.refusals)}; lower "
            "minReplicas or the requests of a replica, or add nodes"
        )
    takers = [empty.free[name] for name, why in found.refusals.items() if why.startswith("has too")]
    for resource, amount in needs(pod["spec"]).items() if takers else ():
        most = max(offers(amounts, resource) for amounts in takers)
        if amount > most and resource != "pods":
            return (
                f"a replica needs {_shown(resource, amount)}, and no node that its pod may use "
                f"has more than {_shown(resource, most)}; lower the request, or add a larger "
                "node"
            )
    return (
        f"no node accepts a replica: {counted(found.refusals)}; change the template's "
        "constraints on nodes, or change the nodes"
    )


def takers(
    pod: Object, count: int, nodes: Sequence[Object], before: Sequence[Object] = ()
) -> tuple[int, list[Object]]:
    """Return how many copies of ``pod``, at most ``count``, the nodes can hold.

    The number assumes that the nodes are empty except for the pods ``before``. Also return the
    nodes that can hold one copy.
    """
    one, empty = _tolerant(without_others(pod)), after(_alone(before), _empty(nodes))
    holds = len(placed([one] * count, empty).nodes)
    return holds, [node for node in nodes if placed([one], _empty([node])).nodes] if holds else []


def _alone(pods: Sequence[Object]) -> list[Object]:
    """Return the pods as if no other pod mattered to them."""
    made = {id(pod): _tolerant(without_others(pod)) for pod in pods}
    return [made[id(pod)] for pod in pods]


def _empty(nodes: Sequence[Object]) -> Capacity:
    """Return the nodes as if they were empty and healthy."""
    well = {node["metadata"]["name"]: _well(node) for node in nodes}
    return Capacity(nodes=well, free={name: _offers(node) for name, node in well.items()})


def _tolerant(pod: Object) -> Object:
    """Return a pod as admission may leave it.

    ``ExtendedResourceToleration`` lets the pod tolerate taints of nodes that are kept for a
    resource that the pod requests (GKE taints its GPU nodes so).
    """
    spec: Mapping[str, Any] = pod["spec"]
    extended = (name for name in pod_requests(spec) if "/" in name and _NATIVE not in name)
    borne = [{"key": each, "operator": "Exists", "effect": "NoSchedule"} for each in extended]
    return {**pod, "spec": {**spec, "tolerations": [*(spec.get("tolerations") or ()), *borne]}}


def _well(node: Object) -> Object:
    """Return a node without temporary states: a cordon, and taints for its present state."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    lasting = [each for each in spec.get("taints") or () if not _passes(str(each.get("key")))]
    made = {**node, "spec": {**spec, "taints": lasting, "unschedulable": False}}
    return {**made, "status": {**(node.get("status") or {}), "conditions": []}}


def _passes(taint: str) -> bool:
    return taint in _LEAVING or taint.startswith(_PASSING) or taint.endswith("/agent-not-ready")


def counted(refusals: Mapping[str, str]) -> str:
    """Return a text with the number of nodes that refuse a pod, by reason."""
    counts = Counter(refusals.values())
    return ", ".join(f"{count} of {len(refusals)} {why}" for why, count in counts.most_common(4))


def excess(each: Amounts, replicas: int, limits: Mapping[str, Any]) -> str | None:
    """Return why ``replicas`` pods, each with these amounts, exceed the job's
    ``resourceLimits``.
    """
    for name, said in limits.items():
        limit = quantity(said, f"resourceLimits.{name}")
        wanted = each.get(_alias(name, each), Decimal(0)) * replicas
        if wanted > limit:
            return (
                f"{replicas} replicas need {_shown(name, wanted)}, but resourceLimits.{name} "
                f"is {_shown(name, limit)}; raise the limit, or ask for less"
            )
    return None


def allowed(each: Amounts, limits: Mapping[str, Any]) -> int | None:
    """Return the number of pods with these amounts that ``resourceLimits`` allows; None if
    unlimited.
    """
    most: list[int] = []
    for name, said in limits.items():
        one = each.get(_alias(name, each), Decimal(0))
        if one:
            most.append(int(quantity(said, f"resourceLimits.{name}") // one))
    return min(most, default=None)


def _alias(name: str, each: Amounts) -> str:
    """Return the accelerator that ``gpu`` stands for: the one that a replica requests."""
    if name != "gpu":
        return name
    return next((one for one in each if is_accelerator(one)), name)


def offered(node: Object) -> tuple[Mapping[str, str], Mapping[str, Decimal]]:
    """Return a node's labels and allocatable amounts."""
    return node["metadata"].get("labels") or {}, _offers(node)


def _offers(node: Object) -> dict[str, Decimal]:
    status: Mapping[str, Any] = node.get("status") or {}
    listed = status.get("allocatable") or status.get("capacity") or {}
    found = {name: quantity(said, f"allocatable.{name}") for name, said in listed.items()}
    return {"pods": Decimal(110)} | found


def _shown(name: str, amount: Decimal) -> str:
    if name in ("memory", "ephemeral-storage"):
        return f"{said_bytes(int(amount))} of {name}"
    return f"{amount.normalize():f} {name}"


def said_bytes(count: int) -> str:
    """Format memory for people, in the largest binary unit that divides it.

    >>> said_bytes(3 * 2**30), said_bytes(1536 * 2**20)
    ('3Gi', '1536Mi')
    """
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if count % 2**power == 0:
            return f"{count >> power}{unit}"
    return str(count)
