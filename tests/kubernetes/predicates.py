"""The predicates of kube-scheduler, apart from the operator's: whether a node takes a pod."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.quantities import parsed

Amounts = dict[str, Decimal]

#: Ports of a host are counted as resources of which each node has one.
_PORT = "port "


def requests_of(pod: Mapping[str, Any]) -> Amounts:
    """Return what a pod needs of a node: the most that it has at any moment of its life.

    Init containers run one after the other, beside the sidecars that were started before them.
    """
    spec = pod["spec"]
    names = {name for one in _every_container(spec) for name in _requested(one)}
    total = {name: max(_moments(spec, name)) for name in names}
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, Decimal(0)) + parsed(amount)
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                total[f"{_PORT}{port['hostPort']}"] = Decimal(1)
    return {**total, "pods": Decimal(1)}


def _every_container(spec: Mapping[str, Any]) -> list[Json]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _moments(spec: Mapping[str, Any], name: str) -> Iterator[Decimal]:
    """Yield how much of a resource is taken while each init container runs, and afterwards."""
    running = Decimal(0)
    for container in spec.get("initContainers") or ():
        amount = parsed(_requested(container).get(name, "0"))
        yield running + amount
        if container.get("restartPolicy") == "Always":
            running += amount
    for container in spec.get("containers") or ():
        running += parsed(_requested(container).get(name, "0"))
    yield running


def _requested(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


@dataclass(slots=True)
class Place:
    """One node and what is left of it."""

    node: Json
    free: Amounts
    #: Pods that are there, and those of them that keep others off.
    pods: list[Json] = field(default_factory=list)
    averse: list[Json] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the node's name."""
        name: str = self.node["metadata"]["name"]
        return name

    def lacks(self, wanted: Amounts) -> list[str]:
        """Return the resources that do not suffice."""
        return [name for name, amount in wanted.items() if amount and amount > self._left(name)]

    def _left(self, name: str) -> Decimal:
        return self.free.get(name, Decimal(name.startswith(_PORT)))

    def host(self, pod: Json) -> None:
        """Have a pod there."""
        self.pods.append(pod)
        if _required(pod, "podAntiAffinity"):
            self.averse.append(pod)

    def dismiss(self, pod: Json) -> None:
        """Have it no more."""
        self.pods = [one for one in self.pods if one is not pod]
        self.averse = [one for one in self.averse if one is not pod]

    def take(self, wanted: Amounts, sign: int = 1) -> None:
        """Use up what a pod needs; ``sign`` -1 gives it back."""
        for name, amount in wanted.items():
            self.free[name] = self._left(name) - sign * amount


def place_of(node: Json, used: Iterable[Amounts]) -> Place:
    """Return a node with what ``used`` leaves of it."""
    status = node.get("status") or {}
    have = status.get("allocatable") or status.get("capacity") or {}
    place = Place(node, {name: parsed(amount) for name, amount in have.items()})
    place.free.setdefault("pods", Decimal(110))
    for amounts in used:
        place.take(amounts)
    return place


def refuses(node: Json, pod: Mapping[str, Any]) -> str | None:
    """Return why a node takes no such pod, whatever is free; None: it may."""
    spec = pod["spec"]
    for taint in _taints(node):
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, spec):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    if not _affine(spec.get("affinity") or {}, node, labels):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def _taints(node: Json) -> list[Json]:
    spec = node.get("spec") or {}
    taints = list(spec.get("taints") or ())
    if spec.get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] != "True":
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    return taints


def _tolerated(taint: Json, spec: Mapping[str, Any]) -> bool:
    def bears(one: Json) -> bool:
        if one.get("operator") == "Exists":
            return one.get("key", taint["key"]) == taint["key"]
        return (one.get("key"), one.get("value", "")) == (taint["key"], taint.get("value", ""))

    tolerations = spec.get("tolerations") or ()
    return any(one.get("effect", taint["effect"]) == taint["effect"] and bears(one)
               for one in tolerations)  # fmt: skip


def _affine(affinity: Json, node: Json, labels: Mapping[str, str]) -> bool:
    wanted = (affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if wanted is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_expressed(one, labels) for one in term.get("matchExpressions") or ())
        and all(_expressed(one, fields) for one in term.get("matchFields") or ())
        for term in wanted["nodeSelectorTerms"]
    )


def _expressed(expression: Json, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case sign:
            number = labels.get(key, "")
            if not re.fullmatch(r"-?\d+", number):
                return False
            return int(number) > int(values[0]) if sign == "Gt" else int(number) < int(values[0])


_IN_TIME = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = "node(s) didn't match pod affinity rules"
_ANTI = "node(s) didn't match pod anti-affinity rules"
_OTHERS_ANTI = "node(s) didn't satisfy existing pods anti-affinity rules"


def _parts(
    place: Place, pod: Json, places: Sequence[Place], averse: Sequence[tuple[Place, Json]]
) -> str | None:
    """Return why other pods keep a pod from a place; None: they do not.

    ``InterPodAffinity`` of kube-scheduler: a domain are the places that share a label's value.
    """
    at = place.node["metadata"].get("labels") or {}
    for other, one in averse:
        for term in _required(one, "podAntiAffinity"):
            if _together(term, place, other) and _about(term, one, pod):
                return _OTHERS_ANTI
    for term in _required(pod, "podAntiAffinity"):
        domain = [other for other in places if _together(term, place, other)]
        if any(_about(term, pod, one) for other in domain for one in other.pods):
            return _ANTI
    terms = _required(pod, "podAffinity")
    if not terms:
        return None
    if any(term["topologyKey"] not in at for term in terms):
        return _AFFINITY
    friends = [
        (other, term)
        for other in places
        for one in other.pods
        if all(_about(each, pod, one) for each in terms)
        for term in terms
        if term["topologyKey"] in (other.node["metadata"].get("labels") or {})
    ]
    if not friends and all(_about(term, pod, pod) for term in terms):
        return None
    met = all(any(each == term and _together(term, place, other) for other, each in friends)
              for term in terms)  # fmt: skip
    return None if met else _AFFINITY


def _required(pod: Json, which: str) -> list[Json]:
    found: list[Json] = ((pod["spec"].get("affinity") or {}).get(which) or {}).get(_IN_TIME) or []
    return found


def _together(term: Json, one: Place, other: Place) -> bool:
    key = term["topologyKey"]
    here, there = ((each.node["metadata"].get("labels") or {}).get(key) for each in (one, other))
    return here is not None and here == there


def _about(term: Json, owner: Json, other: Json) -> bool:
    """Return whether a term of one pod is about another."""
    where = other["metadata"].get("namespace")
    spaces = term.get("namespaces") or []
    everywhere = term.get("namespaceSelector") == {}
    if not spaces and "namespaceSelector" not in term:
        spaces = [owner["metadata"].get("namespace")]
    selector = term.get("labelSelector")
    if selector is None or not (everywhere or where in spaces):
        return False
    labels = other["metadata"].get("labels") or {}
    equal = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    return equal and all(_expressed(e, labels) for e in selector.get("matchExpressions") or ())


class Filters:
    """The predicates for one pod, among these places."""

    def __init__(self, pod: Json, places: Sequence[Place]) -> None:
        self.wanted = requests_of(pod)
        self._pod, self._places = pod, places
        self._averse = [(place, one) for place in places for one in place.averse]

    def hindrances(self, place: Place) -> list[str]:
        """Return why a place does not take the pod; none: it does."""
        pod = self._pod
        reason = refuses(place.node, pod) or _parts(place, pod, self._places, self._averse)
        return [reason] if reason else sorted({*map(_lacking, place.lacks(self.wanted))})


def _lacking(name: str) -> str:
    if name.startswith(_PORT):
        return "node(s) didn't have free ports for the requested pod ports"
    return f"Insufficient {name}"
