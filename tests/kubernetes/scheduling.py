"""A scheduler for tests: first fit by priority; a gang is placed as a whole or not at all.

``placed`` decides, purely. ``Scheduler`` carries it out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.kubernetes import kubelet_status
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Key
from tests.kubernetes.apiserver.hands import PODS, Heard, key_of
from tests.kubernetes.apiserver.objects.quantities import parsed
from tests.kubernetes.kubelet import Handed

Amounts = dict[str, Decimal]

#: Volcano's, on pods.
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
_POD_GROUPS = ("scheduling.volcano.sh", "podgroups")
#: Pods that appear together are placed together.
_GATHER_SECONDS = 0.002
#: A gang whose group is not there yet is looked at again after so long.
_AGAIN_SECONDS = 0.2
#: More than ever come: what a gang needs whose group is not there.
_NEVER = 2**31
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


@dataclass(frozen=True, slots=True)
class Placement:
    """What to do with the waiting pods."""

    #: pod -> node
    bound: dict[Key, str] = field(default_factory=dict)
    #: pod -> why it waits
    waiting: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together or not at all."""

    name: str
    least: int
    #: How many have a node already.
    bound: int = 0


def placed(
    pods: Sequence[tuple[Key, Json]],
    places: Sequence[Place],
    gangs: Mapping[Key, Gang] | None = None,
) -> Placement:
    """Return where the waiting ``pods`` go.

    ``gangs``: pod -> its gang. Pods go by priority, then by age; each to the first node by name
    that fits. A gang of which fewer than ``least`` fit gives back all that it took.
    """
    result = Placement()
    gangs = gangs or {}
    groups: dict[tuple[str, str], list[tuple[Key, Json]]] = {}
    for key, pod in sorted(pods, key=_turn):
        gang = gangs.get(key)
        group = ("gang", f"{key[0]}/{gang.name}") if gang else ("pod", "/".join(key))
        groups.setdefault(group, []).append((key, pod))
    for members in groups.values():
        _place_group(members, places, gangs.get(members[0][0]), result)
    return result


def _turn(item: tuple[Key, Json]) -> tuple[int, str, Key]:
    key, pod = item
    return (-pod["spec"].get("priority", 0), pod["metadata"].get("creationTimestamp", ""), key)


def _place_group(
    members: Sequence[tuple[Key, Json]],
    places: Sequence[Place],
    gang: Gang | None,
    result: Placement,
) -> None:
    taken: list[tuple[Key, Json, Place, Amounts]] = []
    for key, pod in members:
        wanted = requests_of(pod)
        why: Counter[str] = Counter()
        averse = [(place, one) for place in places for one in place.averse]
        for place in places:
            reason = refuses(place.node, pod) or _parts(place, pod, places, averse)
            if reason is None:
                lacks = place.lacks(wanted)
                if not lacks:
                    place.take(wanted)
                    place.host(pod)
                    taken.append((key, pod, place, wanted))
                    break
                why.update({_lacking(name) for name in lacks})
            else:
                why[reason] += 1
        else:
            result.waiting[key] = _told(len(places), why)
    if gang is not None and gang.bound + len(taken) < gang.least:
        for key, pod, place, wanted in taken:
            place.take(wanted, -1)
            place.dismiss(pod)
            found = gang.bound + len(taken)
            result.waiting[key] = f"gang {gang.name} needs {gang.least} pods, {found} fit"
        return
    result.bound.update({key: place.name for key, _, place, _ in taken})


def _lacking(name: str) -> str:
    if name.startswith(_PORT):
        return "node(s) didn't have free ports for the requested pod ports"
    return f"Insufficient {name}"


def _told(nodes: int, why: Counter[str]) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
    return f"0/{nodes} nodes are available: {reasons}."


class Scheduler:
    """Places pods as soon as they appear or room comes free."""

    def __init__(self, cluster: Handed, *, names: Iterable[str] | None = None) -> None:
        self._hands = cluster.hands
        #: The schedulers it plays, by ``schedulerName``; None: all.
        self._names = set(names) if names is not None else None
        self._pending: dict[Key, Json] = {}
        #: pod -> (its node, what it uses there)
        self._bound: dict[Key, tuple[str, Amounts]] = {}
        #: Those of them that have not ended.
        self._running: dict[Key, Json] = {}
        self._places: dict[str, Place] = {}
        #: (namespace, group) -> members that have a node
        self._members: Counter[Key] = Counter()
        self._told: dict[Key, str] = {}
        self._due = False
        self._unlisten = self._hands.listen(self._hear)

    def close(self) -> None:
        """Place nothing more."""
        self._unlisten()

    def _hear(self, heard: Heard) -> None:
        obj = None if heard.gone else heard.obj
        if heard.resource == PODS:
            if self._note_pod(key_of(heard.obj), obj):
                self._wake()
        else:
            self._note_node(heard.obj["metadata"]["name"], obj)
            self._wake()

    def _note_node(self, name: str, node: Json | None) -> None:
        self._places.pop(name, None)
        if node is not None and "deletionTimestamp" not in node["metadata"]:
            used = [amounts for where, amounts in self._bound.values() if where == name]
            self._places[name] = place_of(node, used)

    def _note_pod(self, key: Key, pod: Json | None) -> bool:
        """Keep the books on one pod; returns whether there is something new to place."""
        over = pod is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        node = "" if pod is None or over else pod["spec"].get("nodeName", "")
        freed = False
        had = self._bound.get(key)
        if had is not None and had[0] != node:
            del self._bound[key]
            self._running.pop(key, None)
            if had[0] in self._places:
                self._places[had[0]].take(had[1], -1)
            freed = True
        if pod is not None and node and key not in self._bound:
            self._bound[key] = (node, requests_of(pod))
            self._running[key] = pod
            if node in self._places:
                self._places[node].take(self._bound[key][1])
            self._count(key, pod, 1)
        elif freed and pod is not None:
            self._count(key, pod, -1)
        if pod is None or over or node or not self._waits(pod):
            self._pending.pop(key, None)
            self._told.pop(key, None)
            return freed
        new = key not in self._pending
        self._pending[key] = pod
        return new or freed

    def _waits(self, pod: Json) -> bool:
        return (
            not pod["spec"].get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and (self._names is None or pod["spec"].get("schedulerName") in self._names)
        )

    def _count(self, key: Key, pod: Json, step: int) -> None:
        group = (pod["metadata"].get("annotations") or {}).get(GROUP_ANNOTATION)
        if group:
            self._members[key[0], group] += step

    def _wake(self) -> None:
        if not self._due and self._pending:
            self._due = True
            self._hands.soon(self._turn, _GATHER_SECONDS)

    def _turn(self) -> None:
        """Place what waits."""
        self._due = False
        places = [Place(place.node, dict(place.free)) for _, place in sorted(self._places.items())]
        there = {place.name: place for place in places}
        for key, (name, _) in self._bound.items():
            if name in there:
                there[name].host(self._running[key])
        gangs = self._gangs()
        placement = placed(list(self._pending.items()), places, gangs)
        if any(gang.least == _NEVER for gang in gangs.values()):
            self._hands.soon(self._wake, _AGAIN_SECONDS)
        for key, node in placement.bound.items():
            self._hands.bind(self._pending[key], node)
        for key, why in placement.waiting.items():
            if self._told.get(key) != why:
                self._told[key] = why
                self._tell(key, why)

    def _gangs(self) -> dict[Key, Gang]:
        """Return the gang of each waiting pod that has one: Volcano's PodGroups."""
        found: dict[Key, Gang] = {}
        for key, pod in self._pending.items():
            name = (pod["metadata"].get("annotations") or {}).get(GROUP_ANNOTATION)
            if name is None:
                continue
            group = self._hands.find(_POD_GROUPS, (key[0], name))
            # Without its group a pod of a gang waits for ever, as under Volcano.
            least = group["spec"].get("minMember", 1) if group else _NEVER
            found[key] = Gang(name, least, self._members[key[0], name])
        return found

    def _tell(self, key: Key, why: str) -> None:
        """Say on a pod why it waits."""
        new = kubelet_status.condition(
            "PodScheduled", False, self._hands.now(), "Unschedulable", why
        )

        def status(pod: Json) -> Json:
            known = (pod.get("status") or {}).get("conditions") or []
            return {
                **(pod.get("status") or {}),
                "conditions": kubelet_status.with_condition(known, new),
            }

        self._hands.write_status(PODS, key, status)
