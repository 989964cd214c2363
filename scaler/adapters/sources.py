"""Facts about other projects' jobs, from stores that follow the API server."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from brain.types.resources import Resources
from scaler.adapters.training import ForeignKind
from scaler.kubernetes.kinds.documents import reserved
from scaler.kubernetes.pods import places
from scaler.kubernetes.runtime import Manager, served
from scaler.kubernetes.runtime.cluster import NODE, POD, Key, Kind, Object, key_of
from scaler.kubernetes.runtime.store import Store
from scaler.ports import NOTHING

_OVER = ("Succeeded", "Failed")


class Sources(Protocol):
    """Objects as last seen at the API server; callers must not change them."""

    def jobs(self, kind: Kind) -> Iterable[Object]:
        """Return all jobs of a kind."""

    def job(self, kind: Kind, uid: str) -> Object | None:
        """Return one job of a kind."""

    def beside(self, kind: ForeignKind, namespace: str) -> Sequence[Object]:
        """Return the objects of a namespace that the kind reads in addition to its jobs."""

    def pods(self, label: str, namespace: str, job: str) -> Sequence[Object]:
        """Return pods whose label names a job."""

    def nodes(self) -> Iterable[Object]:
        """Return all nodes."""

    def borne(self) -> Iterable[str]:
        """Return the tolerations of all jobs' pods, in the form of ``places.tolerations_in``."""

    def used(self) -> Resources:
        """Return the sum of the resources that pods reserve; pods that have ended do not count."""


class Reflected:
    """``Sources`` that reads stores which follow the API server, and sends no requests."""

    def __init__(
        self, manager: Manager, kinds: Sequence[ForeignKind], namespaces: Sequence[str]
    ) -> None:
        """``kinds``: those that are served and may be read; ``namespaces``: as the manager's."""
        found = {"uid": _uid, "tolerations": places.tolerations_in}
        self._jobs = {k.kind: manager.store(k.kind, indexes=found) for k in kinds}
        index = {k.label: _named_by(k.label) for k in kinds}
        self._pods = manager.store(POD, indexes=index)
        self._nodes = manager.store(NODE)
        self._beside = {k.kind: _store_beside(manager, k, namespaces) for k in kinds}
        self._used = self._pods.sum("reserves", reserves, NOTHING)

    def jobs(self, kind: Kind) -> Iterable[Object]:
        return self._jobs[kind]

    def job(self, kind: Kind, uid: str) -> Object | None:
        return next(iter(self._jobs[kind].by("uid", uid)), None)

    def beside(self, kind: ForeignKind, namespace: str) -> Sequence[Object]:
        """Return the objects of a namespace that the kind reads in addition to its jobs."""
        return [each for each in self._beside[kind.kind] if key_of(each).namespace == namespace]

    def pods(self, label: str, namespace: str, job: str) -> Sequence[Object]:
        """Return pods whose label names a job."""
        return self._pods.by(label, str(Key(namespace, job)))

    def nodes(self) -> Iterable[Object]:
        return self._nodes

    def borne(self) -> Iterable[str]:
        """Return the tolerations of all jobs' pods, in the form of ``places.tolerations_in``."""
        return {each for store in self._jobs.values() for each in store.values("tolerations")}

    def used(self) -> Resources:
        """Return the sum of the resources that pods reserve; pods that have ended do not count."""
        return self._used()


def reserves(pod: Object) -> Resources:
    """Return the resources that a pod occupies; none once the pod has ended."""
    over = (pod.get("status") or {}).get("phase") in _OVER
    return NOTHING if over else reserved(pod)


def _uid(obj: Object) -> tuple[str, ...]:
    return (str(obj["metadata"].get("uid") or ""),)


def _named_by(label: str) -> Callable[[Object], tuple[str, ...]]:
    def name(pod: Object) -> tuple[str, ...]:
        metadata = pod["metadata"]
        job = (metadata.get("labels") or {}).get(label)
        return (str(Key(metadata.get("namespace", ""), job)),) if job else ()

    return name


def _store_beside(manager: Manager, kind: ForeignKind, namespaces: Sequence[str]) -> Store:
    read, selector = kind.beside
    if not served(manager.cluster, read, namespaces):
        return Store()
    return manager.store(read, label_selector=selector)
