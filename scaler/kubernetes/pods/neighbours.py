"""The predicates of kube-scheduler by which other pods decide about a pod's node."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scaler.kubernetes.pods.predicates import labels_of, selected
from scaler.kubernetes.runtime.cluster.kind import Object

#: A label of nodes and its value: the nodes that have both are one domain.
Domain = tuple[str, str]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Label of each namespace that says its name.
_NAMESPACE = "kubernetes.io/metadata.name"


def neighbourly(pod: Object) -> bool:
    """True if it matters to a pod which others are near its node."""
    return bool(terms(pod, "podAffinity") or terms(pod, "podAntiAffinity"))


def averse(pod: Object) -> bool:
    """True if a pod keeps others from coming near."""
    return bool(terms(pod, "podAntiAffinity"))


def matter_to(pods: Iterable[Object]) -> Callable[[Object], bool]:
    """Tells of another pod if it can matter to where ``pods`` come."""
    found: dict[str, tuple[Mapping[str, Any], Object]] = {}
    for pod in pods:
        for term in (*terms(pod, "podAffinity"), *terms(pod, "podAntiAffinity")):
            found.setdefault(f"{pod['metadata'].get('namespace')} {term}", (term, pod))
    return lambda other: (
        averse(other) or any(_selects(term, owner, other) for term, owner in found.values())
    )


def without_others(pod: Object) -> Object:
    """A pod that wants none near it but such as itself."""
    affinity = pod["spec"].get("affinity") or {}
    own = [term for term in terms(pod, "podAffinity") if _selects(term, pod, pod)]
    near = {**(affinity.get("podAffinity") or {}), _REQUIRED: own}
    return {**pod, "spec": {**pod["spec"], "affinity": {**affinity, "podAffinity": near}}}


def domains_near(pod: Object, node: Object) -> dict[str, str]:
    """Labels of ``node`` that hold whoever is to be near a pod there."""
    labels = labels_of(node)
    keys = (term.get("topologyKey", "") for term in terms(pod, "podAffinity"))
    return {key: labels[key] for key in keys if key in labels}


class Neighbours:
    """The domains that other pods, and what a pod wants of them, leave to it."""

    def __init__(self, pod: Object, nodes: Mapping[str, Object], there: Sequence[Object]) -> None:
        self._near, self._blocked = set[Domain](), set[Domain]()
        wanted, shunned = terms(pod, "podAffinity"), terms(pod, "podAntiAffinity")
        self._keys = [term.get("topologyKey", "") for term in wanted]
        for other in there:
            labels = labels_of(nodes.get(other["spec"]["nodeName"], {}))
            blocking = [term for term in shunned if _selects(term, pod, other)]
            blocking += [t for t in terms(other, "podAntiAffinity") if _selects(t, other, pod)]
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
    if there not in spaces and not selected(chosen, {_NAMESPACE: there}):
        return False
    return selected(term.get("labelSelector"), other["metadata"].get("labels") or {})


def terms(pod: Object, kind: str) -> Sequence[Mapping[str, Any]]:
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    return (affinity.get(kind) or {}).get(_REQUIRED) or ()
