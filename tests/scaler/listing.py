"""``Sources`` that ask the API server each time, in place of the operator's reflected stores."""

from collections.abc import Iterable, Sequence

from brain.errors import NotFound
from brain.types.resources import Resources
from scaler.adapters.sources import reserves
from scaler.adapters.training import ForeignKind
from scaler.kubernetes.runtime.cluster import NODE, POD, Cluster, Kind, Object
from scaler.ports import NOTHING


class ListedJobs:
    def __init__(self, cluster: Cluster, namespaces: Sequence[str] = ()) -> None:
        self._cluster, self._namespaces = cluster, tuple(namespaces) or ("",)

    def jobs(self, kind: Kind) -> Iterable[Object]:
        return [each for where in self._namespaces for each in self._all(kind, where)]

    def job(self, kind: Kind, uid: str) -> Object | None:
        return next((each for each in self.jobs(kind) if each["metadata"]["uid"] == uid), None)

    def beside(self, kind: ForeignKind, namespace: str) -> Sequence[Object]:
        """Return the objects of a namespace that the kind reads beside its jobs."""
        read, selector = kind.beside
        return self._all(read, namespace, label_selector=selector)

    def pods(self, label: str, namespace: str, job: str) -> Sequence[Object]:
        """Return pods whose label names a job."""
        return self._all(POD, namespace, label_selector=f"{label}={job}")

    def nodes(self) -> Iterable[Object]:
        return self._all(NODE, "")

    def borne(self) -> Iterable[str]:
        """Return nothing: tests of taints use reflected stores."""
        return ()

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
