"""A scheduler for tests: first fit by priority; a gang is placed as a whole or not at all.

``placed`` decides, purely. ``Scheduler`` carries it out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.kubernetes import kubelet_status
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Key
from tests.kubernetes.apiserver.hands import PODS, Heard, key_of
from tests.kubernetes.kubelet import Handed
from tests.kubernetes.predicates import Amounts, Filters, Place, place_of, requests_of

#: Volcano's, on pods.
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
_POD_GROUPS = ("scheduling.volcano.sh", "podgroups")
#: Pods that appear together are placed together.
_GATHER_SECONDS = 0.002
#: A gang whose group is not there yet is looked at again after so long.
_AGAIN_SECONDS = 0.2
#: More than ever come: what a gang needs whose group is not there.
_NEVER = 2**31


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
        filters = Filters(pod, places)
        why: Counter[str] = Counter()
        for place in places:
            hindered = filters.hindrances(place)
            if not hindered:
                place.take(filters.wanted)
                place.host(pod)
                taken.append((key, pod, place, filters.wanted))
                break
            why.update(hindered)
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
