"""Kubelets for the emulator. ``FakeKubelet`` plays pods; a test says what befalls them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.kubernetes import kubelet_status as podstatus
from tests.kubernetes.apiserver import Server
from tests.kubernetes.apiserver.core.api import Ask
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.core.removal import Deletion, delete
from tests.kubernetes.apiserver.core.store import Change, Key, Stored
from tests.kubernetes.apiserver.objects.errors import Refused

_PODS, _NODES = ("", "pods"), ("", "nodes")
#: What tests may write on a pod: ``0``, ``3``, ``OOMKilled``, ``Evicted``.
EXIT_ANNOTATION = "fake.kubelet/exit"


def node(
    name: str,
    *,
    cpu: str = "64",
    memory: str = "256Gi",
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Json] = (),
    more: Mapping[str, str] | None = None,
) -> Json:
    """Return a node that is ready."""
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", **(more or {})}
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_ready("True", "KubeletReady", "kubelet is posting ready status")],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def _ready(status: str, reason: str, message: str) -> Json:
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


class Hands:
    """What every kubelet does through the API server. To be used on the server's thread."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.api = server.api

    def kind(self, plural: str) -> Kind:
        """Return a kind of the core group."""
        found = self.api.kinds.find("", "v1", plural)
        assert found is not None
        return found

    def pod(self, key: Key) -> Stored | None:
        """Return a pod."""
        return self.api.store.find(_PODS, key)

    def write_status(self, key: Key, status: Callable[[Json], Json]) -> None:
        """Write the status that ``status`` makes of a pod that is still there."""
        stored = self.pod(key)
        if stored is not None:
            obj = {**stored.obj, "status": status(stored.obj)}
            self.api.write(self.kind("pods"), stored, obj, Ask(manager="kubelet"), "status")

    def remove(self, key: Key) -> None:
        """Confirm that a pod is gone."""
        if self.pod(key) is not None:
            delete(self.api, self.kind("pods"), *key, Deletion(grace_seconds=0))

    def add_node(self, made: Json) -> None:
        """Register a node."""
        name = made["metadata"]["name"]
        stored = self.api.create(self.kind("nodes"), "", made, Ask(manager="kubelet"))
        obj = {**stored.obj, "status": made["status"]}
        self.api.write(self.kind("nodes"), stored, obj, Ask(manager="kubelet"), "status")
        assert self.api.store.find(_NODES, ("", name)) is not None

    def set_ready(self, name: str, ready: bool) -> None:
        """Say of a node that it is there or that nobody has heard of it; taint it accordingly."""
        stored = self.api.store.find(_NODES, ("", name))
        if stored is None:
            return
        told = (
            _ready("True", "KubeletReady", "kubelet is posting ready status")
            if ready
            else _ready("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        )
        told["lastTransitionTime"] = self.api.timestamp()
        spec = {k: v for k, v in (stored.obj.get("spec") or {}).items()}
        taints = [t for t in spec.get("taints") or () if t["key"] != _UNREACHABLE]
        if not ready:
            taints += [{"key": _UNREACHABLE, "effect": e} for e in ("NoSchedule", "NoExecute")]
        status = {**stored.obj["status"], "conditions": [told]}
        obj = {**stored.obj, "spec": {**spec, "taints": taints}, "status": status}
        self.api.store.put(_NODES, stored.key, obj)


_UNREACHABLE = "node.kubernetes.io/unreachable"


class FakeKubelet:
    """The kubelets of all nodes: pods that have a node run, until a test says otherwise.

    ``start_seconds`` and ``end_seconds``: how long starting and, within the grace, ending takes.
    All methods may be called from any thread; they return when the API server knows.
    """

    def __init__(
        self, server: Server, *, start_seconds: float = 0.0, end_seconds: float = 0.0
    ) -> None:
        self._hands = Hands(server)
        self._server = server
        self._start_seconds = start_seconds
        self._end_seconds = end_seconds
        self._lost: set[str] = set()
        self._bad_images: set[str] = set()
        self._held = False
        self._seen: dict[Key, str] = {}
        self._ending: set[Key] = set()
        self._addresses = 0
        self._unlisten = server.call(self._begin)

    def _begin(self) -> Callable[[], None]:
        for stored in self._server.api.store.all_of(_PODS):
            self._look(stored)
        return self._server.api.store.listen(self._hear)

    def close(self) -> None:
        """Touch no pod any more."""
        self._server.call(self._unlisten)

    # Nodes.

    def add_nodes(self, *names: str, **what: Any) -> None:
        """Register nodes; ``what``: as for ``node``."""
        for name in names:
            self._server.call(lambda name=name: self._hands.add_node(node(name, **what)))

    def lose_node(self, name: str) -> None:
        """Cut a node off: it is told as unknown, its pods as not ready; nothing ends there."""
        self._server.call(lambda: self._lose(name))

    def evict_lost(self, name: str) -> None:
        """Delete the pods of a node as the taint manager does after its patience ran out."""
        self._server.call(lambda: self._taint_evict(name))

    def find_node(self, name: str) -> None:
        """Bring a lost node back; what was deleted there meanwhile ends now."""
        self._server.call(lambda: self._find(name))

    def remove_node(self, name: str) -> None:
        """Delete a node for good, and its pods with it."""
        self._server.call(lambda: self._remove_node(name))

    # Pods.

    def hold(self, held: bool = True) -> None:
        """Start no pods (or start those that waited)."""
        self._server.call(lambda: self._hold(held))

    def exit(self, name: str, code: int = 0, *, reason: str = "", namespace: str = "") -> None:
        """Let a pod's containers end."""
        self._server.call(lambda: self._exit(self._key(name, namespace), code, reason))

    def kill_for_memory(self, name: str, *, namespace: str = "") -> None:
        """Let the kernel kill a pod's containers for memory."""
        self.exit(name, 137, reason="OOMKilled", namespace=namespace)

    def evict(
        self,
        name: str,
        message: str = "The node was low on resource: memory.",
        *,
        namespace: str = "",
    ) -> None:
        """Throw a pod out because its node runs short."""
        self._server.call(
            lambda: self._hands.write_status(
                self._key(name, namespace),
                lambda pod: podstatus.evicted(pod, self._now(), message),
            )
        )

    def preempt(self, name: str, *, namespace: str = "") -> None:
        """Delete a pod for one of higher priority, as the scheduler does."""
        self._server.call(lambda: self._preempt(self._key(name, namespace)))

    def break_image(self, image: str) -> None:
        """Let an image be unobtainable from now on."""
        self._server.call(lambda: self._bad_images.add(image))

    def mend_image(self, image: str) -> None:
        """Let it be pulled again; pods that wait for it start."""
        self._server.call(lambda: self._mend(image))

    def pods(self, namespace: str = "") -> list[Json]:
        """Return every pod."""
        return self._server.objects("pods", namespace=namespace)

    # On the server's thread.

    def _now(self) -> str:
        return self._server.api.timestamp()

    def _key(self, name: str, namespace: str) -> Key:
        if namespace:
            return (namespace, name)
        found = [one.key for one in self._server.api.store.all_of(_PODS) if one.key[1] == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} pods are called {name}")
        return found[0]

    def _hear(self, change: Change) -> None:
        if change.resource != _PODS:
            return
        if change.type == "DELETED":
            self._seen.pop(change.new.key, None)
            self._ending.discard(change.new.key)
        else:
            self._look(change.new)

    def _look(self, stored: Stored) -> None:
        pod = stored.obj
        where = pod["spec"].get("nodeName")
        if not where or where in self._lost:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if stored.key not in self._ending:
                self._ending.add(stored.key)
                grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
                seconds = min(self._end_seconds, grace)
                self._server.soon(lambda: self._end(stored.key, stored.uid), seconds)
        elif self._seen.get(stored.key) != stored.uid and not self._held:
            self._seen[stored.key] = stored.uid
            self._server.soon(lambda: self._start(stored.key, stored.uid), self._start_seconds)

    def _same(self, key: Key, uid: str) -> Json | None:
        stored = self._hands.pod(key)
        if stored is None or stored.uid != uid or stored.obj["spec"]["nodeName"] in self._lost:
            return None
        return stored.obj

    def _start(self, key: Key, uid: str) -> None:
        pod = self._same(key, uid)
        if pod is None or (pod.get("status") or {}).get("phase") != "Pending":
            return
        if "deletionTimestamp" in pod["metadata"]:
            return
        every = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        missing = [one["image"] for one in every if one["image"] in self._bad_images]
        if missing:
            self._hands.write_status(
                key, lambda pod: podstatus.image_missing(pod, self._now(), missing[0])
            )
            return
        self._addresses += 1
        address = (
            f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"
        )
        if pod["spec"].get("hostNetwork"):
            address = "192.168.0.1"
        self._hands.write_status(
            key, lambda pod: podstatus.running(pod, self._now(), address, "192.168.0.1")
        )
        wanted = (pod["metadata"].get("annotations") or {}).get(EXIT_ANNOTATION)
        if wanted is not None:
            self._wanted_exit(key, wanted)

    def _wanted_exit(self, key: Key, wanted: str) -> None:
        if wanted == "OOMKilled":
            self._exit(key, 137, "OOMKilled")
        elif wanted == "Evicted":
            self._hands.write_status(
                key, lambda pod: podstatus.evicted(pod, self._now(), "The node was low on memory.")
            )
        else:
            self._exit(key, int(wanted), "")

    def _exit(self, key: Key, code: int, reason: str) -> None:
        stored = self._hands.pod(key)
        if stored is None:
            raise LookupError(f"no pod {key}")
        policy = stored.obj["spec"].get("restartPolicy", "Always")
        again = policy == "Always" or (policy == "OnFailure" and code != 0)
        running = stored.obj["status"].get("containerStatuses")
        if again and running and "deletionTimestamp" not in stored.obj["metadata"]:
            self._hands.write_status(
                key, lambda pod: podstatus.restarted(pod, self._now(), code, reason)
            )
            return
        codes = {container["name"]: code for container in stored.obj["spec"]["containers"]}
        self._hands.write_status(key, lambda pod: podstatus.ended(pod, self._now(), codes, reason))

    def _end(self, key: Key, uid: str) -> None:
        """Let a deleted pod's containers end on SIGTERM, and confirm."""
        if self._same(key, uid) is not None:
            self._hands.remove(key)

    def _preempt(self, key: Key) -> None:
        target = podstatus.condition(
            "DisruptionTarget", True, self._now(), "PreemptionByScheduler", "preempted"
        )
        self._hands.write_status(
            key,
            lambda pod: {
                **pod["status"],
                "conditions": podstatus.with_condition(
                    pod["status"].get("conditions") or [], target
                ),
            },
        )
        delete(self._server.api, self._hands.kind("pods"), *key, Deletion())

    def _hold(self, held: bool) -> None:
        self._held = held
        if not held:
            for stored in list(self._server.api.store.all_of(_PODS)):
                self._look(stored)

    def _mend(self, image: str) -> None:
        self._bad_images.discard(image)
        for stored in list(self._server.api.store.all_of(_PODS)):
            if (stored.obj.get("status") or {}).get("phase") == "Pending":
                self._seen.pop(stored.key, None)
                self._look(stored)

    def _on(self, name: str) -> list[Stored]:
        return [
            stored
            for stored in self._server.api.store.all_of(_PODS)
            if stored.obj["spec"].get("nodeName") == name
        ]

    def _lose(self, name: str) -> None:
        self._lost.add(name)
        self._hands.set_ready(name, False)
        for stored in self._on(name):
            status = stored.obj.get("status") or {}
            if status.get("phase") != "Running":
                continue
            lost = podstatus.condition("Ready", False, self._now(), "NodeStatusUnknown")
            conditions = podstatus.with_condition(status.get("conditions") or [], lost)
            self._hands.write_status(
                stored.key, lambda pod, c=conditions: {**pod["status"], "conditions": c}
            )

    def _taint_evict(self, name: str) -> None:
        for stored in self._on(name):
            target = podstatus.condition(
                "DisruptionTarget", True, self._now(), "DeletionByTaintManager", "node is lost"
            )
            self._hands.write_status(
                stored.key,
                lambda pod, t=target: {
                    **pod["status"],
                    "conditions": podstatus.with_condition(
                        pod["status"].get("conditions") or [], t
                    ),
                },
            )
            delete(self._server.api, self._hands.kind("pods"), *stored.key, Deletion())

    def _find(self, name: str) -> None:
        self._lost.discard(name)
        self._hands.set_ready(name, True)
        for stored in self._on(name):
            status = stored.obj.get("status") or {}
            if (
                status.get("phase") == "Running"
                and "deletionTimestamp" not in stored.obj["metadata"]
            ):
                back = podstatus.condition("Ready", True, self._now())
                conditions = podstatus.with_condition(status.get("conditions") or [], back)
                self._hands.write_status(
                    stored.key, lambda pod, c=conditions: {**pod["status"], "conditions": c}
                )
            self._look(stored)

    def _remove_node(self, name: str) -> None:
        pods = self._on(name)
        try:
            delete(self._server.api, self._hands.kind("nodes"), "", name, Deletion())
        except Refused as refused:
            raise LookupError(refused.message) from refused
        for stored in pods:
            self._hands.remove(stored.key)
        self._lost.discard(name)
