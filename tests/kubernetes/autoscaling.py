"""A cluster autoscaler, played: nodes of one kind come for pods of which the scheduler despairs."""

from itertools import count
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Key
from tests.kubernetes.apiserver.hands import NODES, PODS, Heard, key_of
from tests.kubernetes.kubelet import Handed, node
from tests.kubernetes.predicates import Place, place_of
from tests.kubernetes.scheduling import placed

_GATHER_SECONDS = 0.05


class Autoscaler:
    """Makes up to ``most`` nodes like ``what``, as ``node`` takes it.

    As Cluster Autoscaler does, it looks at pods that the scheduler told to be unschedulable, never
    at those behind a gate, and tries them on a node that it could make.
    """

    def __init__(self, cluster: Handed, name: str, *, most: int, **what: Any) -> None:
        self._hands, self._name, self._most, self._what = cluster.hands, name, most, what
        self._numbers, self._seen, self._due = count(), set[str](), False
        self._pending: dict[Key, Json] = {}
        self.made: list[str] = []
        self._unlisten = self._hands.listen(self._hear)

    def close(self) -> None:
        """Make no more, and take away what was made."""
        self._unlisten()
        for name in self.made:
            self._hands.delete(NODES, ("", name))

    def _hear(self, heard: Heard) -> None:
        if heard.resource != PODS:
            return
        key, pod = key_of(heard.obj), heard.obj
        self._pending.pop(key, None)
        if not heard.gone and _despaired_of(pod) and pod["metadata"]["uid"] not in self._seen:
            self._pending[key] = pod
            if not self._due:
                self._due = True
                self._hands.soon(self._turn, _GATHER_SECONDS)

    def _turn(self) -> None:
        self._due = False
        coming: list[Place] = []
        for key, pod in sorted(self._pending.items()):
            if placed([(key, pod)], coming).bound:
                self._seen.add(pod["metadata"]["uid"])
            elif len(self.made) + len(coming) < self._most:
                fresh = place_of(node(f"{self._name}-{next(self._numbers)}", **self._what), [])
                if placed([(key, pod)], [fresh]).bound:
                    self._seen.add(pod["metadata"]["uid"])
                    coming.append(fresh)
        for each in coming:
            self.made.append(each.name)
            self._hands.create(NODES, each.node)
        self._pending.clear()


def _despaired_of(pod: Json) -> bool:
    said = (pod.get("status") or {}).get("conditions") or ()
    unschedulable = ("PodScheduled", "False", "Unschedulable")
    return any((c["type"], c["status"], c.get("reason")) == unschedulable for c in said)
