"""Chooses nodes for a pod, by the predicates of kube-scheduler.

The operator calls ``placed`` both to start pods and to forecast if a job can ever run. It checks
selector, required node affinity, taints, required pod affinity and anti-affinity, spread
constraints, and free resources. It ignores preferences, because a job may start on any node that
accepts its pods.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from scaler.kubernetes.kinds.documents.templates import pod_requests
from scaler.kubernetes.kinds.quantities import is_accelerator
from scaler.kubernetes.pods.neighbours import Domain, Neighbours, domains_near, neighbourly, terms
from scaler.kubernetes.pods.predicates import dislike, labels_of, may_come
from scaler.kubernetes.runtime.cluster.kind import Object

#: Amounts by resource name.
Amounts = Mapping[str, Decimal]
_NONE, _TRIFLE, _ONE = Decimal(0), Decimal("0.001"), Decimal(1)
_EVERY_ADDRESS = "0.0.0.0"
#: Ports of a host are resources of which each node has one.
_PORT = "port "


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The nodes on which pods may run, and their free resources."""

    #: All nodes by name.
    nodes: Mapping[str, Object]
    #: Free amounts of each node.
    free: Mapping[str, Amounts]
    #: Pods with a node that affinity may depend on.
    pods: Sequence[Object] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlacement:
    """The nodes for the first pods that fit together."""

    nodes: tuple[str, ...] = ()
    #: For each node, why it does not take the next pod; None if all pods have a node.
    refusals: Mapping[str, str] | None = None


def needs(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a pod of this spec uses on its node: resources, ports, one pod."""
    return {"pods": _ONE} | pod_requests(spec) | dict(_host_ports(spec))


def offers(amounts: Amounts, name: str) -> Decimal:
    """Return the amount of a resource in ``amounts``, which are a node's total or free
    resources.
    """
    return amounts.get(name, _ONE if name.startswith(_PORT) else _NONE)


def placed(pods: Sequence[Object], capacity: Capacity) -> PodPlacement:
    """Place ``pods`` together, in this order, each on the fullest node with capacity for it.

    Pods that must be near each other start in the domain that can hold most of them.
    """
    best: PodPlacement | None = None
    for near, most in _beginnings(pods, capacity):
        if best is not None and most <= len(best.nodes):
            break
        found = _settled(pods, capacity, near)
        if found.refusals is None:
            return found
        if best is None or len(found.nodes) > len(best.nodes):
            best = found
    return best or PodPlacement()


def after(pods: Sequence[Object], capacity: Capacity) -> Capacity:
    """Return the remaining capacity once each of ``pods`` that finds a node runs there."""
    left = _Left(capacity)
    for pod in pods:
        left.settle(pod)
    return Capacity(nodes=capacity.nodes, free=left.free, pods=left.pods)


def _beginnings(
    pods: Sequence[Object], capacity: Capacity
) -> Sequence[tuple[Collection[Domain], int]]:
    """Return the domains to hold the first pod to, in turn, and the most pods that each may hold.

    Domains that may hold all pods come first. An empty collection means anywhere.
    """
    if not pods or not terms(pods[0], "podAffinity"):
        return [((), len(pods))]
    neighbours = Neighbours(pods[0], capacity.nodes, capacity.pods)
    # Pods of other wishes, or near some that are there, need not be where the first one is.
    alike = neighbours.first and all(_wishes(pod) == _wishes(pods[0]) for pod in pods)
    room = Counter[Collection[Domain]]()
    for name, free in capacity.free.items():
        if not _refusal(pods[0], capacity.nodes[name], neighbours):
            near = tuple(domains_near(pods[0], capacity.nodes[name]).items())
            room[near] += _times(needs(pods[0]["spec"]), free) if alike else len(pods)
    most = {near: min(len(pods), count) for near, count in room.items()}
    return sorted(most.items(), key=lambda each: -each[1]) or [((), len(pods))]


def _wishes(pod: Object) -> tuple[object, ...]:
    return terms(pod, "podAffinity"), needs(pod["spec"])


def _times(wanted: Amounts, free: Amounts) -> int:
    """Return how many times a node has ``wanted`` free."""
    return max(0, min(int(offers(free, name) // each) for name, each in wanted.items() if each))


def _settled(pods: Sequence[Object], capacity: Capacity, near: Collection[Domain]) -> PodPlacement:
    left, found = _Left(capacity), list[str]()
    for pod in pods:
        node = left.settle(pod, () if found else near)
        if node is None:
            return PodPlacement(nodes=tuple(found), refusals=left.refusals(pod))
        found.append(node)
    return PodPlacement(nodes=tuple(found))


class _Left:
    """The remaining capacity while pods are placed, one after the other."""

    def __init__(self, capacity: Capacity) -> None:
        self._nodes = capacity.nodes
        self.free = {name: dict(amounts) for name, amounts in capacity.free.items()}
        self.pods = list(capacity.pods)
        #: Nodes that may take pods with the last pod's constraints, whatever pods they have.
        self._takers: list[str] = []
        self._constraints: object = None
        #: Those that take pods such as the last one, the fullest last: it stays that until it is
        #: full.
        self._order: list[str] = []
        self._last: object = None

    def settle(self, pod: Object, near: Collection[Domain] = ()) -> str | None:
        """Return the node for a pod in the domains ``near``; None if no node takes the pod."""
        wanted, neighbours = needs(pod["spec"]), Neighbours(pod, self._nodes, self.pods)
        constraints = _constraints(pod)
        if constraints != self._constraints:
            self._constraints = constraints
            self._takers = [name for name in self.free if may_come(pod, self._nodes[name])]
        alike = (constraints, wanted)
        if alike != self._last or neighbours.matter or near:
            scarce = next((each for each in wanted if is_accelerator(each)), "cpu")
            # Small nodes fill up first.
            spare = {name: self.free[name].get(scarce, _NONE) for name in self._takers}
            self._order = [
                name
                for name in sorted(spare, key=lambda each: (-spare[each], each))
                if not neighbours.refusal(labels_of(self._nodes[name]))
                and labels_of(self._nodes[name]).items() >= set(near)
            ]
            self._last = None if near else alike
        while self._order and _lacks(self.free[self._order[-1]], wanted):
            self._order.pop()
        if not self._order:
            return None
        chosen = self._order[-1]
        _take(self.free[chosen], wanted)
        if neighbourly(pod):
            self.pods.append({**pod, "spec": {**pod["spec"], "nodeName": chosen}})
        return chosen

    def refusals(self, pod: Object) -> Mapping[str, str]:
        """Return why each node does not take a rejected pod."""
        wanted, neighbours = needs(pod["spec"]), Neighbours(pod, self._nodes, self.pods)
        return {
            name: _refusal(pod, self._nodes[name], neighbours) or _lacks(left, wanted)
            for name, left in self.free.items()
        }


def _constraints(pod: Object) -> tuple[object, ...]:
    return tuple(pod["spec"].get(each) for each in ("nodeSelector", "affinity", "tolerations"))


def _refusal(pod: Object, node: Object, neighbours: Neighbours) -> str:
    """Return why a node does not take a pod, whatever is free; empty if it may."""
    return dislike(pod, node) or neighbours.refusal(labels_of(node))


def _lacks(free: Amounts, wanted: Amounts) -> str:
    short = [name for name, amount in wanted.items() if amount and offers(free, name) < amount]
    return f"has too little {', '.join(short)}" if short else ""


def _take(left: dict[str, Decimal], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        left[name] = offers(left, name) - amount


def _host_ports(spec: Mapping[str, Any]) -> Iterator[tuple[str, Decimal]]:
    """Return a port's amounts: all of the port on its own address, and a tiny part on every
    address.
    """
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (spec.get("hostNetwork") and port.get("containerPort"))
            if number:
                name = f"{_PORT}{number}/{port.get('protocol') or 'TCP'}"
                address = port.get("hostIP") or _EVERY_ADDRESS
                yield name, _ONE if address == _EVERY_ADDRESS else _TRIFLE
                if address != _EVERY_ADDRESS:
                    yield f"{name} of {address}", _ONE
