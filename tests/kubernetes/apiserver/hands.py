"""What kubelets and schedulers do to a cluster, and how they do it to an emulator in this process.

``tests/kubernetes/real`` does the same through HTTP.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from tests.kubernetes.apiserver.core.api import Ask
from tests.kubernetes.apiserver.core.doors import bind
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.core.removal import Deletion, delete
from tests.kubernetes.apiserver.core.store import Change, Key, Resource, Stored
from tests.kubernetes.apiserver.objects.errors import Refused

if TYPE_CHECKING:
    from tests.kubernetes.apiserver.server import Server

T = TypeVar("T")

PODS: Resource = ("", "pods")
NODES: Resource = ("", "nodes")
LEASES: Resource = ("coordination.k8s.io", "leases")


def key_of(obj: Mapping[str, Json]) -> Key:
    """Return an object's namespace and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def lease_spec(name: str) -> Json:
    """Return what a node's lease says now."""
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}


@dataclass(frozen=True, slots=True)
class Heard:
    """What happened to a pod or a node."""

    resource: Resource
    obj: Json
    #: It is no more; ``obj`` is what it was last.
    gone: bool = False


class Hands(Protocol):
    """A cluster as kubelets and schedulers hold it. Listeners run on the thread of ``call``."""

    def call(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the hands' one thread; returns its result."""

    def soon(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Do ``work`` there later."""

    def now(self) -> str:
        """Return the time as objects tell it."""

    def find(self, resource: Resource, key: Key) -> Json | None:
        """Return an object as it is."""

    def all_of(self, resource: Resource) -> list[Json]:
        """Return all pods or nodes that these hands may touch."""

    def listen(self, hear: Callable[[Heard], None]) -> Callable[[], None]:
        """Have ``hear`` called with what there is and what happens to it; returns what ends it."""

    def write_status(self, resource: Resource, key: Key, status: Callable[[Json], Json]) -> None:
        """Write the status that ``status`` makes of an object, if it is there."""

    def write_taints(self, name: str, taints: Callable[[list[Json]], list[Json]]) -> None:
        """Write the taints that ``taints`` makes of a node's."""

    def renew(self, name: str) -> None:
        """Renew a node's lease, as its kubelet does while it is well."""

    def create(self, resource: Resource, obj: Json) -> None:
        """Make an object."""

    def delete(self, resource: Resource, key: Key, grace_seconds: int | None = None) -> None:
        """Delete an object; raises LookupError where it is not there."""

    def bind(self, pod: Json, node: str) -> None:
        """Give a pod its node, unless it has gone meanwhile."""

    def serve_logs(self, logs: Callable[[str, str, str], bytes | None]) -> None:
        """Let the logs of pods be read there, where that can be."""


class Inside:
    """Hands on an emulator of this process: nothing goes over a network, all is done at once."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    def call(self, work: Callable[[], T]) -> T:
        """Do it on the server's thread."""
        return self._server.call(work)

    def soon(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Do it there later."""
        self._server.soon(work, seconds)

    def now(self) -> str:
        """Return the server's time."""
        return self._server.api.timestamp()

    def find(self, resource: Resource, key: Key) -> Json | None:
        """Return what is kept."""
        found = self.call(lambda: self._server.api.store.find(resource, key))
        return found.obj if found is not None else None

    def all_of(self, resource: Resource) -> list[Json]:
        """Return what is kept."""
        return self._server.objects(resource[1], resource[0])

    def listen(self, hear: Callable[[Heard], None]) -> Callable[[], None]:
        """Hear every write within it."""

        def told(change: Change) -> None:
            if change.resource in (PODS, NODES):
                hear(Heard(change.resource, change.new.obj, change.type == "DELETED"))

        def begin() -> Callable[[], None]:
            for resource in (NODES, PODS):
                for obj in self.all_of(resource):
                    hear(Heard(resource, obj))
            return self._server.api.store.listen(told)

        end = self.call(begin)
        return lambda: self.call(end)

    def write_status(self, resource: Resource, key: Key, status: Callable[[Json], Json]) -> None:
        """Write through the door of statuses."""

        def write(stored: Stored) -> None:
            obj = {**stored.obj, "status": status(stored.obj)}
            self._server.api.write(
                self._kind(resource), stored, obj, Ask(manager="kubelet"), "status"
            )

        self._with(resource, key, write)

    def write_taints(self, name: str, taints: Callable[[list[Json]], list[Json]]) -> None:
        """Write a node's spec."""

        def write(stored: Stored) -> None:
            spec = dict(stored.obj.get("spec") or {})
            spec["taints"] = taints(list(spec.get("taints") or ()))
            self._server.api.store.put(NODES, stored.key, {**stored.obj, "spec": spec})

        self._with(NODES, ("", name), write)

    def renew(self, name: str) -> None:
        """Write the lease's time; it is made with the first."""
        spec = lease_spec(name)

        def write() -> None:
            api, key = self._server.api, ("kube-node-lease", name)
            stored = api.store.find(LEASES, key)
            if stored is not None:
                api.store.put(LEASES, key, {**stored.obj, "spec": spec})
            elif api.store.find(NODES, ("", name)) is not None:
                made = {"metadata": {"name": name}, "spec": spec}
                api.create(self._kind(LEASES), key[0], made, Ask(manager="kubelet"))

        self.call(write)

    def create(self, resource: Resource, obj: Json) -> None:
        """Make an object, its status included where a kubelet writes that."""
        kind, key = self._kind(resource), key_of(obj)
        self.call(lambda: self._server.api.create(kind, key[0], obj, Ask(manager="kubelet")))
        if obj.get("status"):
            self.write_status(resource, key, lambda _: obj["status"])

    def delete(self, resource: Resource, key: Key, grace_seconds: int | None = None) -> None:
        """Delete as anybody does."""
        how = Deletion(grace_seconds=grace_seconds)
        try:
            self.call(lambda: delete(self._server.api, self._kind(resource), *key, how))
        except Refused as refused:
            raise LookupError(refused.message) from refused

    def bind(self, pod: Json, node: str) -> None:
        """Write the node."""
        kind = self._kind(PODS)
        self._with(PODS, key_of(pod), lambda stored: bind(self._server.api, kind, stored, node))

    def serve_logs(self, logs: Callable[[str, str, str], bytes | None]) -> None:
        """Answer ``kubectl logs`` with them."""
        self._server.http.logs = logs

    def _kind(self, resource: Resource) -> Kind:
        return next(kind for kind in self._server.api.kinds.all() if kind.resource == resource)

    def _with(self, resource: Resource, key: Key, write: Callable[[Stored], object]) -> None:
        def run() -> None:
            stored = self._server.api.store.find(resource, key)
            if stored is not None:
                write(stored)

        self.call(run)
