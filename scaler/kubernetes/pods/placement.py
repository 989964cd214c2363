"""Choose nodes for a pod, by the predicates of kube-scheduler.

Gate and forecast both ask ``placed``: selector, required node affinity, taints, required pod
affinity and anti-affinity, and free resources. Preferences are ignored: any node that may take a
pod is good enough to begin on.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from scaler.kubernetes.kinds.documents.templates import pod_requests
from scaler.kubernetes.kinds.quantities import is_accelerator
from scaler.kubernetes.runtime.cluster.kind import Object

#: Amounts by resource name.
Amounts = Mapping[str, Decimal]
#: A label of nodes and its value: the nodes that have both are one domain.
Domain = tuple[str, str]
_NONE, _ONE = Decimal(0), Decimal(1)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KEEP_OFF = ("NoSchedule", "NoExecute")
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
#: Label of each namespace that says its name.
_NAMESPACE = "kubernetes.io/metadata.name"
#: Ports of a host are amounts of which each node has one.
_PORT = "port "


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The nodes that pods may come to, and their free resources."""

    #: All nodes by name.
    nodes: Mapping[str, Object]
    #: What is free on each of them.
    free: Mapping[str, Amounts]
    #: Pods with a node that affinity may ask about.
    pods: Sequence[Object] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlacement:
    """Nodes of the first pods that find room together."""

    nodes: tuple[str, ...] = ()
    #: Node -> why it does not take the next pod; None: all pods have a node.
    refusals: Mapping[str, str] | None = None


def needs(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the amounts that a pod of this spec takes of its node: resources, ports, one pod."""
    return {"pods": _ONE} | pod_requests(spec) | {name: _ONE for name in _host_ports(spec)}


def offers(amounts: Amounts, name: str) -> Decimal:
    """Return the amount of a resource among those a node has, or has left."""
    return amounts.get(name, _ONE if name.startswith(_PORT) else _NONE)


def placed(pods: Sequence[Object], capacity: Capacity) -> PodPlacement:
    """Place ``pods`` together, in this order, each on the fullest node that has room.

    Pods that want to be near each other begin in the domain that holds most of them.
    """
    best: PodPlacement | None = None
    for near in _beginnings(pods, capacity):
        found = _settled(pods, capacity, near)
        if found.refusals is None:
            return found
        if best is None or len(found.nodes) > len(best.nodes):
            best = found
    return best or PodPlacement()


def after(pods: Sequence[Object], capacity: Capacity) -> Capacity:
    """Return the capacity that is left once each of ``pods`` that finds a node is on it."""
    left = _Left(capacity)
    for pod in pods:
        left.settle(pod)
    return Capacity(nodes=capacity.nodes, free=left.free, pods=left.pods)


def may_come(pod: Object, node: Object) -> bool:
    """True if a node would take a pod if it were empty and alone."""
    return not _dislike(pod, node)


def neighbourly(pod: Object) -> bool:
    """True if it matters to a pod which others are near its node."""
    return bool(_terms(pod, "podAffinity") or _terms(pod, "podAntiAffinity"))


def averse(pod: Object) -> bool:
    """True if a pod keeps others from coming near."""
    return bool(_terms(pod, "podAntiAffinity"))


def matter_to(pods: Iterable[Object]) -> Callable[[Object], bool]:
    """Tells of another pod if it can matter to where ``pods`` come."""
    found: dict[str, tuple[Mapping[str, Any], Object]] = {}
    for pod in pods:
        for term in (*_terms(pod, "podAffinity"), *_terms(pod, "podAntiAffinity")):
            found.setdefault(f"{pod['metadata'].get('namespace')} {term}", (term, pod))
    return lambda other: (
        averse(other) or any(_selects(term, owner, other) for term, owner in found.values())
    )


def without_others(pod: Object) -> Object:
    """A pod that wants none near it but such as itself."""
    affinity = pod["spec"].get("affinity") or {}
    own = [term for term in _terms(pod, "podAffinity") if _selects(term, pod, pod)]
    near = {**(affinity.get("podAffinity") or {}), _REQUIRED: own}
    return {**pod, "spec": {**pod["spec"], "affinity": {**affinity, "podAffinity": near}}}


def domains_near(pod: Object, node: Object) -> dict[str, str]:
    """Labels of ``node`` that hold whoever is to be near a pod there."""
    labels = _labels(node)
    keys = (term.get("topologyKey", "") for term in _terms(pod, "podAffinity"))
    return {key: labels[key] for key in keys if key in labels}


def _beginnings(pods: Sequence[Object], capacity: Capacity) -> Iterator[Collection[Domain]]:
    """Domains to which the first pod is held in turn; an empty collection: it may be anywhere."""
    seen: dict[tuple[Domain, ...], None] = {}
    for name in capacity.free if pods and _terms(pods[0], "podAffinity") else ():
        seen.setdefault(tuple(domains_near(pods[0], capacity.nodes[name]).items()))
    yield from seen or ((),)


def _settled(pods: Sequence[Object], capacity: Capacity, near: Collection[Domain]) -> PodPlacement:
    left, found = _Left(capacity), list[str]()
    for pod in pods:
        node = left.settle(pod, () if found else near)
        if node is None:
            return PodPlacement(nodes=tuple(found), refusals=left.refusals(pod))
        found.append(node)
    return PodPlacement(nodes=tuple(found))


class _Left:
    """The remaining capacity while pods come to it, one after the other."""

    def __init__(self, capacity: Capacity) -> None:
        self._nodes = capacity.nodes
        self.free = {name: dict(amounts) for name, amounts in capacity.free.items()}
        self.pods = list(capacity.pods)
        #: Nodes that take pods such as the last one, the fullest last: it stays that until it is
        #: full.
        self._order: list[str] = []
        self._last: object = None

    def settle(self, pod: Object, near: Collection[Domain] = ()) -> str | None:
        """The node that a pod comes to, in the domains ``near``; None: it finds none."""
        wanted, neighbours = needs(pod["spec"]), _Neighbours(pod, self._nodes, self.pods)
        alike = (_constraints(pod), wanted)
        if alike != self._last or neighbours.matter or near:
            self._order = [
                name
                for name in sorted(self.free, key=lambda each: (-self._spare(each, wanted), each))
                if not _refusal(pod, self._nodes[name], neighbours)
                and _labels(self._nodes[name]).items() >= set(near)
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
        """Why each node does not take a pod that found none."""
        wanted, neighbours = needs(pod["spec"]), _Neighbours(pod, self._nodes, self.pods)
        return {
            name: _refusal(pod, self._nodes[name], neighbours) or _lacks(left, wanted)
            for name, left in self.free.items()
        }

    def _spare(self, name: str, wanted: Amounts) -> Decimal:
        """Return the free amount of the scarcest resource wanted: small nodes fill up first."""
        scarce = next((each for each in wanted if is_accelerator(each)), "cpu")
        return self.free[name].get(scarce, _NONE)


def _constraints(pod: Object) -> tuple[object, ...]:
    return tuple(pod["spec"].get(each) for each in ("nodeSelector", "affinity", "tolerations"))


def _refusal(pod: Object, node: Object, neighbours: "_Neighbours") -> str:
    """Why a node does not take a pod, whatever is free; empty: it may."""
    return _dislike(pod, node) or neighbours.refusal(_labels(node))


def _dislike(pod: Object, node: Object) -> str:
    """Why a node does not take a pod, whoever else is there; empty: it may."""
    spec, labels = pod["spec"], _labels(node)
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    if not selector.items() <= labels.items():
        missing = ", ".join(f"{key}={value}" for key, value in selector.items())
        return f"lacks labels of nodeSelector {missing}"
    if not _attracts(spec.get("affinity") or {}, node):
        return "is excluded by nodeAffinity"
    for taint in _taints(node):
        if taint.get("effect") in _KEEP_OFF and not _tolerated(taint, spec):
            return f"has taint {said_taint(taint)} that is not tolerated"
    return ""


def _taints(node: Object) -> Iterator[Mapping[str, Any]]:
    """A node's taints, and those that a cordon and a silent kubelet stand for."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    yield from spec.get("taints") or ()
    if spec.get("unschedulable"):
        yield _CORDON
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            yield _NOT_READY


def said_taint(taint: Mapping[str, Any]) -> str:
    """Write a taint as kubectl does.

    >>> said_taint({"key": "team", "value": "a", "effect": "NoSchedule"})
    'team=a:NoSchedule'
    """
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def _tolerated(taint: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    for each in spec.get("tolerations") or ():
        if each.get("effect") and each["effect"] != taint.get("effect"):
            continue
        if each.get("key") and each["key"] != taint.get("key"):
            continue
        if each.get("operator") == "Exists":
            return True
        if each.get("key") and (each.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _attracts(affinity: Mapping[str, Any], node: Object) -> bool:
    """True if required node affinity lets a pod come: one term of several holds whole."""
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    labels, fields = _labels(node), {"metadata.name": node["metadata"]["name"]}
    for term in required.get("nodeSelectorTerms") or ():
        by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
        # A term that asks for nothing selects nothing.
        if (by_label or by_field) and all(
            (*(_holds(each, labels) for each in by_label), *(_holds(e, fields) for e in by_field))
        ):
            return True
    return False


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.get("key", "")), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                difference = int(value or "") - int(values[0])
            except (ValueError, TypeError, IndexError):
                return False
            return difference > 0 if operator == "Gt" else difference < 0
        case _:
            return False


class _Neighbours:
    """The domains that other pods, and what a pod wants of them, leave to it."""

    def __init__(self, pod: Object, nodes: Mapping[str, Object], there: Sequence[Object]) -> None:
        self._near, self._blocked = set[Domain](), set[Domain]()
        wanted, shunned = _terms(pod, "podAffinity"), _terms(pod, "podAntiAffinity")
        self._keys = [term.get("topologyKey", "") for term in wanted]
        for other in there:
            labels = _labels(nodes.get(other["spec"]["nodeName"], {}))
            blocking = [term for term in shunned if _selects(term, pod, other)]
            blocking += [t for t in _terms(other, "podAntiAffinity") if _selects(t, other, pod)]
            self._blocked |= _domains(blocking, labels)
            if wanted and all(_selects(term, pod, other) for term in wanted):
                self._near |= _domains(wanted, labels)
        #: Nobody whom it wants to be near is there yet, but it is one of them.
        self._first = not self._near and all(_selects(term, pod, pod) for term in wanted)
        self.matter = bool(wanted or shunned or self._blocked)

    def refusal(self, labels: Mapping[str, str]) -> str:
        """Why a node of these labels is no place; empty: it is one."""
        if self._blocked & labels.items():
            return "is kept free by pod anti-affinity"
        for key in self._keys:
            if key not in labels or not (self._first or (key, labels[key]) in self._near):
                return "is excluded by pod affinity"
        return ""


def _domains(terms: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> set[Domain]:
    keys = (term.get("topologyKey", "") for term in terms)
    return {(key, labels[key]) for key in keys if key in labels}


def _selects(term: Mapping[str, Any], owner: Object, other: Object) -> bool:
    """True if an affinity term of ``owner`` is about ``other``."""
    home, there = (each["metadata"].get("namespace", "") for each in (owner, other))
    spaces, chosen = term.get("namespaces") or [], term.get("namespaceSelector")
    if not spaces and chosen is None:
        spaces = [home]
    # Other labels of namespaces are not known here.
    if there not in spaces and not _selected(chosen, {_NAMESPACE: there}):
        return False
    return _selected(term.get("labelSelector"), other["metadata"].get("labels") or {})


def _selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    equal: Mapping[str, str] = selector.get("matchLabels") or {}
    if not equal.items() <= labels.items():
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _terms(pod: Object, kind: str) -> Sequence[Mapping[str, Any]]:
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    return (affinity.get(kind) or {}).get(_REQUIRED) or ()


def _lacks(free: Amounts, wanted: Amounts) -> str:
    short = [name for name, amount in wanted.items() if amount and offers(free, name) < amount]
    return f"has too little {', '.join(short)}" if short else ""


def _take(left: dict[str, Decimal], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        left[name] = offers(left, name) - amount


def _host_ports(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (spec.get("hostNetwork") and port.get("containerPort"))
            if number:
                yield f"{_PORT}{number}/{port.get('protocol') or 'TCP'}"


def _labels(node: Object) -> Mapping[str, str]:
    return (node.get("metadata") or {}).get("labels") or {}
