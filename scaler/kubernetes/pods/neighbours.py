"""The predicates of kube-scheduler that depend on other pods: affinity and spread constraints."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scaler.kubernetes.pods.predicates import labels_of, repelled, selected, unselected
from scaler.kubernetes.runtime.cluster.kind import Object

#: A label of nodes and its value: the nodes that have both are one topology domain.
Domain = tuple[str, str]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Label of each namespace that has its name.
_NAMESPACE = "kubernetes.io/metadata.name"


def neighbourly(pod: Object) -> bool:
    """True if other pods near a node decide whether a pod may run there."""
    return bool(terms(pod, "podAffinity") or terms(pod, "podAntiAffinity") or _spreads(pod))


def averse(pod: Object) -> bool:
    """True if a pod keeps other pods away from the nodes near it."""
    return bool(terms(pod, "podAntiAffinity"))


def matter_to(pods: Iterable[Object]) -> Callable[[Object], bool]:
    """Return a test that says if another pod can affect the placement of ``pods``."""
    pods = list(pods)
    found: dict[str, tuple[Mapping[str, Any], Object]] = {}
    for pod in pods:
        wanted = (*terms(pod, "podAffinity"), *terms(pod, "podAntiAffinity"), *_spreads(pod))
        for term in wanted:
            found.setdefault(f"{pod['metadata'].get('namespace')} {term}", (term, pod))
    known: dict[str, bool] = {}

    def keeps_off(other: Object, term: Mapping[str, Any]) -> bool:
        # A controller's pods have one term: many of them cost what one does.
        labels = labels_of(other) if term.get("matchLabelKeys") else ""
        key = f"{other['metadata'].get('namespace')} {labels} {term}"
        if key not in known:
            known[key] = any(_selects(term, other, pod) for pod in pods)
        return known[key]

    return lambda other: (
        any(keeps_off(other, term) for term in terms(other, "podAntiAffinity"))
        or any(_selects(term, owner, other) for term, owner in found.values())
    )


def without_others(pod: Object) -> Object:
    """Return the pod without its affinity to other pods, except affinity to pods like itself.

    The result also has no spread constraints, because other pods may even out a skew that this pod
    alone cannot.
    """
    affinity = pod["spec"].get("affinity") or {}
    own = [term for term in terms(pod, "podAffinity") if _selects(term, pod, pod)]
    near = {**(affinity.get("podAffinity") or {}), _REQUIRED: own}
    alone = {"affinity": {**affinity, "podAffinity": near}, "topologySpreadConstraints": []}
    return {**pod, "spec": {**pod["spec"], **alone}}


def domains_near(pod: Object, node: Object) -> dict[str, str]:
    """Return the labels of ``node`` that name the domains in which a pod wants its neighbours."""
    labels = labels_of(node)
    keys = (term.get("topologyKey", "") for term in terms(pod, "podAffinity"))
    return {key: labels[key] for key in keys if key in labels}


class Neighbours:
    """The topology domains in which a pod may run.

    They follow from the affinity terms of the pod and of other pods, and from spread constraints.
    """

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
        #: True if no wanted neighbour exists yet, but the pod itself is one.
        self.first = not self._near and all(_selects(term, pod, pod) for term in wanted)
        self._spreads = [_Spread(each, pod, nodes, there) for each in _spreads(pod)]
        self.matter = bool(wanted or shunned or self._blocked or self._spreads)

    def refusal(self, labels: Mapping[str, str]) -> str:
        """Return why a node with these labels cannot run the pod; empty if it can."""
        if self._blocked & labels.items():
            return "is kept free by pod anti-affinity"
        for key in self._keys:
            if key not in labels or not (self.first or (key, labels[key]) in self._near):
                return "is excluded by pod affinity"
        return next(filter(None, (each.refusal(labels) for each in self._spreads)), "")


class _Spread:
    """One topology spread constraint, and the number of pods that it counts in each domain."""

    def __init__(
        self,
        constraint: Mapping[str, Any],
        pod: Object,
        nodes: Mapping[str, Object],
        there: Sequence[Object],
    ) -> None:
        self._constraint, self._key = constraint, constraint["topologyKey"]
        #: A node has a domain for every constraint, or counts for none.
        keys = {each["topologyKey"] for each in _spreads(pod)}
        domains = {
            name: labels_of(node)[self._key]
            for name, node in nodes.items()
            if keys <= labels_of(node).keys() and self._counts_on(pod, node)
        }
        self._counts = Counter(dict.fromkeys(domains.values(), 0))
        # kube-scheduler counts no pod for an empty selector, although each pod matches it.
        self._counts.update(
            domains[other["spec"]["nodeName"]]
            for other in there
            if other["spec"]["nodeName"] in domains
            and _says(constraint, pod)
            and "deletionTimestamp" not in other["metadata"]
            and _selects(constraint, pod, other)
        )
        enough = len(self._counts) >= constraint.get("minDomains", 1)
        #: Pods that come too many by one that comes, but for those that are in its domain.
        self._over = int(_selects(constraint, pod, pod)) - (
            min(self._counts.values(), default=0) if enough else 0
        )

    def refusal(self, labels: Mapping[str, str]) -> str:
        """Return why a node of these labels cannot take the pod; empty if it can."""
        skew = self._counts[labels.get(self._key, "")] + self._over
        if self._key in labels and skew <= self._constraint["maxSkew"]:
            return ""
        return f"is excluded by topologySpreadConstraints of {self._key}"

    def _counts_on(self, pod: Object, node: Object) -> bool:
        """True if a node's pods count, by the constraint's policies for affinity and taints."""
        affinity, taints = (
            self._constraint.get(f"node{each}Policy") for each in ("Affinity", "Taints")
        )
        if affinity != "Ignore" and unselected(pod, node):
            return False
        return not (taints == "Honor" and repelled(pod, node))


def _says(constraint: Mapping[str, Any], pod: Object) -> bool:
    """True if the selector of a constraint names any label."""
    keys = labels_of(pod).keys() & set(constraint.get("matchLabelKeys") or ())
    return bool(keys or any((constraint.get("labelSelector") or {}).values()))


def _spreads(pod: Object) -> list[Mapping[str, Any]]:
    """Return topology spread constraints that keep a pod from nodes."""
    said = (pod.get("spec") or {}).get("topologySpreadConstraints") or ()
    return [each for each in said if each.get("whenUnsatisfiable") == "DoNotSchedule"]


def _domains(terms: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> set[Domain]:
    keys = (term.get("topologyKey", "") for term in terms)
    return {(key, labels[key]) for key in keys if key in labels}


def _selects(term: Mapping[str, Any], owner: Object, other: Object) -> bool:
    """True if an affinity term of ``owner``, or a spread constraint, selects ``other``."""
    home, there = (each["metadata"].get("namespace", "") for each in (owner, other))
    spaces, chosen = term.get("namespaces") or [], term.get("namespaceSelector")
    if not spaces and chosen is None:
        spaces = [home]
    # Other labels of namespaces are not known here.
    if there not in spaces and not selected(chosen, {_NAMESPACE: there}):
        return False
    own, labels = labels_of(owner), labels_of(other)
    alike = [key for key in term.get("matchLabelKeys") or () if key in own]
    if any(labels.get(key) != own[key] for key in alike):
        return False
    return selected(term.get("labelSelector"), labels)


def terms(pod: Object, kind: str) -> Sequence[Mapping[str, Any]]:
    """Return the required terms of a pod's ``podAffinity`` or ``podAntiAffinity``."""
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    return (affinity.get(kind) or {}).get(_REQUIRED) or ()
