"""The predicates of kube-scheduler, apart from the operator's: whether a node takes a pod."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.quantities import parsed

Amounts = dict[str, Decimal]

#: Label of each namespace that says its name.
_NAMESPACE = "kubernetes.io/metadata.name"
_EVERY_ADDRESS = "0.0.0.0"
#: The taint that stands for what is said of a node's condition ``Ready``.
_SILENCES = {
    "False": "node.kubernetes.io/not-ready",
    "Unknown": "node.kubernetes.io/unreachable",
}


def labels_of(obj: Json) -> Mapping[str, str]:
    """Return the labels of a node or pod."""
    return obj["metadata"].get("labels") or {}


def requests_of(pod: Mapping[str, Any]) -> Amounts:
    """Return what a pod needs of a node: the most that it has at any moment of its life.

    Init containers run one after the other, beside the sidecars that were started before them.
    """
    spec = pod["spec"]
    names = {name for one in _every_container(spec) for name in _requested(one)}
    total = {name: max(_moments(spec, name)) for name in names}
    # A pod may say it as a whole.
    total |= {name: parsed(amount) for name, amount in _requested(spec).items()}
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, Decimal(0)) + parsed(amount)
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

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the node's labels."""
        return labels_of(self.node)

    def lacks(self, wanted: Amounts) -> list[str]:
        """Return the resources that do not suffice."""
        left = self.free
        return [name for name, n in wanted.items() if n and n > left.get(name, Decimal(0))]

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
            self.free[name] = self.free.get(name, Decimal(0)) - sign * amount


def place_of(node: Json, used: Iterable[Amounts]) -> Place:
    """Return a node with what ``used`` leaves of it."""
    status = node.get("status") or {}
    have = status.get("allocatable") or status.get("capacity") or {}
    place = Place(node, {name: parsed(amount) for name, amount in have.items()})
    place.free.setdefault("pods", Decimal(110))
    for amounts in used:
        place.take(amounts)
    return place


def occupied(nodes: Sequence[Json], pods: Sequence[Json]) -> list[Place]:
    """Return nodes with the pods that are on them and have not ended."""
    places = {node["metadata"]["name"]: place_of(node, ()) for node in nodes}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            places[pod["spec"]["nodeName"]].take(requests_of(pod))
            places[pod["spec"]["nodeName"]].host(pod)
    return list(places.values())


def refuses(node: Json, pod: Mapping[str, Any]) -> str | None:
    """Return why a node takes no such pod, whatever is free; None: it may."""
    for taint in _taints(node):
        if _repels(taint, pod["spec"]):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    if not _attracted(node, pod["spec"]):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def _attracted(node: Json, spec: Mapping[str, Any]) -> bool:
    labels = labels_of(node)
    chosen = all(
        labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items()
    )
    return chosen and _affine(spec.get("affinity") or {}, node, labels)


def _repels(taint: Json, spec: Mapping[str, Any]) -> bool:
    return taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerated(taint, spec)


def _taints(node: Json) -> list[Json]:
    spec = node.get("spec") or {}
    taints = list(spec.get("taints") or ())
    if spec.get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] in _SILENCES:
            taints.append({"key": _SILENCES[condition["status"]], "effect": "NoSchedule"})
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
_SPREAD = "node(s) didn't match pod topology spread constraints"
_OTHERS_ANTI = "node(s) didn't satisfy existing pods anti-affinity rules"


def _parts(
    place: Place, pod: Json, places: Sequence[Place], averse: Sequence[tuple[Place, Json]]
) -> str | None:
    """Return why other pods keep a pod from a place; None: they do not.

    ``InterPodAffinity`` of kube-scheduler: a domain are the places that share a label's value.
    """
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
    if any(term["topologyKey"] not in place.labels for term in terms):
        return _AFFINITY
    friends = [
        (other, term)
        for other in places
        for one in other.pods
        if all(_about(each, pod, one) for each in terms)
        for term in terms
        if term["topologyKey"] in other.labels
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
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _about(term: Json, owner: Json, other: Json) -> bool:
    """Return whether a term, or a constraint, of one pod is about another."""
    where = other["metadata"].get("namespace", "")
    spaces, chosen = term.get("namespaces") or [], term.get("namespaceSelector")
    if not spaces and chosen is None:
        spaces = [owner["metadata"].get("namespace", "")]
    if where not in spaces and not _selected(chosen, {_NAMESPACE: where}):
        return False
    own, labels = labels_of(owner), labels_of(other)
    alike = [key for key in term.get("matchLabelKeys") or () if key in own]
    return all(labels.get(key) == own[key] for key in alike) and _selected(
        term.get("labelSelector"), labels
    )


def _selected(selector: Json | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    equal = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    return equal and all(_expressed(e, labels) for e in selector.get("matchExpressions") or ())


def _ports(pod: Json) -> set[tuple[int, str, str]]:
    """Return number, protocol and address of each port of the host that a pod holds."""
    spec = pod["spec"]
    beside = [
        one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"
    ]
    return {
        (port["hostPort"], port.get("protocol", "TCP"), port.get("hostIP") or _EVERY_ADDRESS)
        for one in (*spec["containers"], *beside)
        for port in one.get("ports") or ()
        if port.get("hostPort")
    }


def _clash(one: tuple[int, str, str], other: tuple[int, str, str]) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or _EVERY_ADDRESS in (one[2], other[2]))


class _Spread:
    """``PodTopologySpread``: how many pods like it each domain has already."""

    def __init__(self, pod: Json, places: Sequence[Place]) -> None:
        constraints = [
            one
            for one in pod["spec"].get("topologySpreadConstraints") or ()
            if one["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = {one["topologyKey"] for one in constraints}
        counted = [place for place in places if keys <= place.labels.keys()]
        self._pod = pod
        self._counts = [(one, self._counted(one, counted)) for one in constraints]

    def _counted(self, constraint: Json, places: Sequence[Place]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for place in places:
            if self._counts_in(constraint, place.node):
                like = sum(self._like(constraint, one) for one in place.pods)
                counts[place.labels[constraint["topologyKey"]]] += like
        return counts

    def _counts_in(self, constraint: Json, node: Json) -> bool:
        spec = self._pod["spec"]
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not _attracted(node, spec):
            return False
        taints = (node.get("spec") or {}).get("taints") or ()
        honors = constraint.get("nodeTaintsPolicy") == "Honor"
        return not (honors and any(_repels(taint, spec) for taint in taints))

    def _like(self, constraint: Json, other: Json) -> bool:
        """Return whether a pod counts; by an empty selector none does."""
        said = constraint.get("labelSelector") or {}
        same = [
            key for key in constraint.get("matchLabelKeys") or () if key in labels_of(self._pod)
        ]
        asks = bool(same or said.get("matchLabels") or said.get("matchExpressions"))
        leaves = "deletionTimestamp" in other["metadata"]
        return asks and not leaves and _about(constraint, self._pod, other)

    def refuses(self, place: Place) -> str | None:
        """Return why a place would make domains too unequal; None: it would not."""
        for constraint, counts in self._counts:
            domain = place.labels.get(constraint["topologyKey"])
            if domain is None:
                return f"{_SPREAD} (missing required label)"
            enough = len(counts) >= constraint.get("minDomains", 1)
            least = min(counts.values()) if enough else 0
            coming = _about(constraint, self._pod, self._pod)
            if counts[domain] + coming - least > constraint["maxSkew"]:
                return _SPREAD
        return None


class Filters:
    """The predicates for one pod, among these places."""

    def __init__(self, pod: Json, places: Sequence[Place]) -> None:
        self.wanted = requests_of(pod)
        self._pod, self._places, self._ports = pod, places, _ports(pod)
        self._spread = _Spread(pod, places)
        self._averse = [(place, one) for place in places for one in place.averse]

    def hindrances(self, place: Place) -> list[str]:
        """Return why a place does not take the pod; none: it does."""
        if reason := refuses(place.node, self._pod):
            return [reason]
        if self._ports and any(
            _clash(one, other) for pod in place.pods for other in _ports(pod) for one in self._ports
        ):
            return ["node(s) didn't have free ports for the requested pod ports"]
        if lacks := place.lacks(self.wanted):
            return [f"Insufficient {name}" for name in lacks]
        reason = self._spread.refuses(place) or _parts(place, self._pod, self._places, self._averse)
        return [reason] if reason else []
