"""Sources of facts about other people's jobs: asked for each time, or reflected."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from brain.errors import NotFound
from brain.types.resources import Resources
from scaler.adapters.kubeflow import JOB_NAME, PYTORCHJOB
from scaler.kubernetes.kinds.documents import reserved
from scaler.kubernetes.runtime import Manager
from scaler.kubernetes.runtime.cluster import HPA, NODE, POD, Cluster, Key, Kind, Object, key_of
from scaler.kubernetes.runtime.store import Store
from scaler.ports import NOTHING

_OVER = ("Succeeded", "Failed")


class Sources(Protocol):
    """Objects as the API server last gave them; nobody changes them."""

    def jobs(self) -> Iterable[Object]:
        """Return all PyTorchJobs."""

    def job(self, uid: str) -> Object | None:
        """Return one PyTorchJob."""

    def autoscalers(self, namespace: str) -> Sequence[Object]:
        """Return HorizontalPodAutoscalers."""

    def pods(self, namespace: str, job: str) -> Sequence[Object]:
        """Return pods whose label names a job."""

    def nodes(self) -> Iterable[Object]:
        """Return all nodes."""

    def used(self) -> Resources:
        """Return the sum of the resources that pods reserve, except pods that are over."""


class Reflected:
    """Stores that follow the API server, so a look costs the API server nothing."""

    def __init__(self, manager: Manager, *, autoscalers: bool) -> None:
        """``autoscalers``: True if HorizontalPodAutoscalers are served and may be read."""
        self._jobs = manager.store(PYTORCHJOB, indexes={"uid": _uid})
        self._pods = manager.store(POD, indexes={"name of job": _name_of_job})
        self._nodes = manager.store(NODE)
        self._scalers = manager.store(HPA) if autoscalers else Store()
        self._used = self._pods.sum("reserves", reserves, NOTHING)

    def jobs(self) -> Iterable[Object]:
        """Return all PyTorchJobs."""
        return self._jobs

    def job(self, uid: str) -> Object | None:
        """Return one PyTorchJob."""
        return next(iter(self._jobs.by("uid", uid)), None)

    def autoscalers(self, namespace: str) -> Sequence[Object]:
        """Return HorizontalPodAutoscalers."""
        return [each for each in self._scalers if key_of(each).namespace == namespace]

    def pods(self, namespace: str, job: str) -> Sequence[Object]:
        """Return pods whose label names a job."""
        return self._pods.by("name of job", str(Key(namespace, job)))

    def nodes(self) -> Iterable[Object]:
        """Return all nodes."""
        return self._nodes

    def used(self) -> Resources:
        """Return the sum of the resources that pods reserve, except pods that are over."""
        return self._used()


class ListedJobs:
    """Asks the API server each time: for a single look, or without the right to watch."""

    def __init__(self, cluster: Cluster, namespaces: Sequence[str] = ()) -> None:
        self._cluster, self._namespaces = cluster, tuple(namespaces) or ("",)

    def jobs(self) -> Iterable[Object]:
        """Return all PyTorchJobs."""
        return [each for where in self._namespaces for each in self._all(PYTORCHJOB, where)]

    def job(self, uid: str) -> Object | None:
        """Return one PyTorchJob."""
        return next((each for each in self.jobs() if each["metadata"]["uid"] == uid), None)

    def autoscalers(self, namespace: str) -> Sequence[Object]:
        """Return HorizontalPodAutoscalers."""
        return self._all(HPA, namespace)

    def pods(self, namespace: str, job: str) -> Sequence[Object]:
        """Return pods whose label names a job."""
        return self._all(POD, namespace, label_selector=f"{JOB_NAME}={job}")

    def nodes(self) -> Iterable[Object]:
        """Return all nodes."""
        return self._all(NODE, "")

    def used(self) -> Resources:
        """Return the sum of the resources that pods reserve, except pods that are over."""
        pods = (pod for where in self._namespaces for pod in self._all(POD, where))
        return sum((reserves(pod) for pod in pods), NOTHING)

    def _all(self, kind: Kind, namespace: str, *, label_selector: str = "") -> list[Object]:
        found: list[Object] = []
        token = ""
        while True:
            try:
                page = self._cluster.list(
                    kind, namespace, continue_=token, label_selector=label_selector
                )
            except NotFound:
                # A kind that is not installed has no objects.
                return []
            found += page.items
            token = page.continue_
            if not token:
                return found


def reserves(pod: Object) -> Resources:
    """Return the resources that a pod keeps from others: none once the pod is over."""
    over = (pod.get("status") or {}).get("phase") in _OVER
    return NOTHING if over else reserved(pod)


def _uid(obj: Object) -> tuple[str, ...]:
    return (str(obj["metadata"].get("uid") or ""),)


def _name_of_job(pod: Object) -> tuple[str, ...]:
    metadata = pod["metadata"]
    name = (metadata.get("labels") or {}).get(JOB_NAME)
    return (str(Key(metadata.get("namespace", ""), name)),) if name else ()
