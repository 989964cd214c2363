"""Kubelets for a test's cluster. ``FakeKubelet`` plays pods; a test says what befalls them."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Protocol

from tests.kubernetes import kubelet_status as podstatus
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Key
from tests.kubernetes.apiserver.hands import NODES, PODS, Hands, Heard, key_of
from tests.kubernetes.apiserver.objects.quantities import parsed

#: What tests may write on a pod: ``0``, ``3``, ``OOMKilled``, ``Evicted``.
EXIT_ANNOTATION = "fake.kubelet/exit"
_UNREACHABLE = "node.kubernetes.io/unreachable"


class Handed(Protocol):
    """A cluster that hands can be laid on."""

    hands: Hands


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
            "conditions": [ready_condition(True)],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def ready_condition(ready: bool) -> Json:
    """Return what a node says of itself, or what is said of one that nobody has heard of."""
    status, reason, message = (
        ("True", "KubeletReady", "kubelet is posting ready status")
        if ready
        else ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    )
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def set_ready(hands: Hands, name: str, ready: bool) -> None:
    """Say of a node that it is there or that nobody has heard of it; taint it accordingly."""
    told = ready_condition(ready) | {"lastTransitionTime": hands.now()}
    since = {"timeAdded": hands.now()}
    lost = [] if ready else [{"key": _UNREACHABLE, "effect": "NoSchedule"} | since,
                             {"key": _UNREACHABLE, "effect": "NoExecute"} | since]  # fmt: skip
    hands.write_taints(name, lambda had: [t for t in had if t["key"] != _UNREACHABLE] + lost)
    hands.write_status(NODES, ("", name), lambda node: {**node["status"], "conditions": [told]})


class FakeKubelet:
    """The kubelets of all nodes: pods that have a node run, until a test says otherwise.

    ``start_seconds`` and ``end_seconds``: how long starting and, within the grace, ending takes.
    ``beat_seconds``: how often leases of nodes are renewed; 0: never, nobody looks at them.
    ``resizes``: pods get the amounts that their specs say while they run, where the node has them.
    All methods may be called from any thread; they return when the API server knows.
    """

    def __init__(
        self,
        cluster: Handed,
        *,
        start_seconds: float = 0.0,
        end_seconds: float = 0.0,
        beat_seconds: float = 0.0,
        resizes: bool = True,
    ) -> None:
        self._hands = cluster.hands
        self._beat_seconds, self._closed = beat_seconds, False
        self._resizes = resizes
        self._start_seconds = start_seconds
        self._end_seconds = end_seconds
        self._lost: set[str] = set()
        self._bad_images: set[str] = set()
        self._held = False
        self._seen: dict[Key, str] = {}
        self._ending: set[Key] = set()
        self._addresses = 0
        #: With which code the containers of a deleted pod end; None: nothing is said of their end.
        self.sigterm_code: int | None = None
        self._unlisten = self._hands.listen(self._hear)
        if beat_seconds:
            self._hands.call(self._beat)

    def close(self) -> None:
        """Touch no pod any more."""
        self._closed = True
        self._unlisten()

    # Nodes.

    def add_nodes(self, *names: str, **what: Any) -> None:
        """Register nodes; ``what``: as for ``node``."""
        for name in names:
            self._hands.create(NODES, node(name, **what))

    def silence(self, name: str) -> None:
        """Cut a node off without a word: who looks at leases finds out."""
        self._hands.call(lambda: self._lost.add(name))

    def lose_node(self, name: str) -> None:
        """Cut a node off: it is told as unknown, its pods as not ready; nothing ends there."""
        self._hands.call(lambda: self._lose(name))

    def evict_lost(self, name: str) -> None:
        """Delete the pods of a node as the taint manager does after its patience ran out."""
        self._hands.call(lambda: self._taint_evict(name))

    def forget_pods(self, name: str) -> None:
        """Let the pods of a lost node that are to go be gone, as the garbage collector does."""
        self._hands.call(lambda: self._collect(name))

    def find_node(self, name: str) -> None:
        """Bring a lost node back; what was deleted there meanwhile ends now."""
        self._hands.call(lambda: self._find(name))

    def remove_node(self, name: str) -> None:
        """Delete a node for good, and its pods with it."""
        self._hands.call(lambda: self._remove_node(name))

    # Pods.

    def hold(self, held: bool = True) -> None:
        """Start no pods (or start those that waited)."""
        self._hands.call(lambda: self._hold(held))

    def exit(self, name: str, code: int = 0, *, reason: str = "", namespace: str = "") -> None:
        """Let a pod's containers end."""
        self._hands.call(lambda: self._exit(self._key(name, namespace), code, reason))

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
        self._hands.call(
            lambda: self._write(
                self._key(name, namespace),
                lambda pod: podstatus.evicted(pod, self._hands.now(), message),
            )
        )

    def preempt(self, name: str, *, namespace: str = "") -> None:
        """Delete a pod for one of higher priority, as the scheduler does."""
        self._hands.call(
            lambda: self._disrupt(self._key(name, namespace), "PreemptionByScheduler", "preempted")
        )

    def break_image(self, image: str) -> None:
        """Let an image be unobtainable from now on."""
        self._hands.call(lambda: self._bad_images.add(image))

    def pods(self, namespace: str = "") -> list[Json]:
        """Return every pod."""
        found = self._hands.all_of(PODS)
        return [pod for pod in found if namespace in ("", pod["metadata"]["namespace"])]

    # On the server's thread.

    def _key(self, name: str, namespace: str) -> Key:
        if namespace:
            return (namespace, name)
        found = [key_of(pod) for pod in self.pods() if pod["metadata"]["name"] == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} pods are called {name}")
        return found[0]

    def _write(self, key: Key, status: Callable[[Json], Json]) -> None:
        self._hands.write_status(PODS, key, status)

    def _hear(self, heard: Heard) -> None:
        if heard.resource != PODS:
            return
        if heard.gone:
            self._seen.pop(key_of(heard.obj), None)
            self._ending.discard(key_of(heard.obj))
        else:
            self._look(heard.obj)

    def _look(self, pod: Json) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        where = pod["spec"].get("nodeName")
        if not where or where in self._lost:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if key not in self._ending:
                self._ending.add(key)
                grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
                seconds = min(self._end_seconds, grace)
                self._hands.soon(lambda: self._end(key, uid), seconds)
        elif (pod.get("status") or {}).get("phase") == "Running" and podstatus.unresized(pod):
            self._hands.soon(lambda: self._resize(key, uid))
        elif self._seen.get(key) != uid and not self._held:
            self._seen[key] = uid
            self._hands.soon(lambda: self._start(key, uid), self._start_seconds)

    def _same(self, key: Key, uid: str) -> Json | None:
        pod = self._hands.find(PODS, key)
        if pod is None or pod["metadata"]["uid"] != uid or pod["spec"]["nodeName"] in self._lost:
            return None
        return pod

    def _start(self, key: Key, uid: str) -> None:
        pod = self._same(key, uid)
        if pod is None or (pod.get("status") or {}).get("phase") != "Pending":
            return
        if "deletionTimestamp" in pod["metadata"]:
            return
        every = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        missing = [one["image"] for one in every if one["image"] in self._bad_images]
        if missing:
            self._write(
                key, lambda pod: podstatus.image_missing(pod, self._hands.now(), missing[0])
            )
            return
        self._addresses += 1
        address = (
            f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"
        )
        if pod["spec"].get("hostNetwork"):
            address = "192.168.0.1"
        self._write(
            key, lambda pod: podstatus.running(pod, self._hands.now(), address, "192.168.0.1")
        )
        wanted = (pod["metadata"].get("annotations") or {}).get(EXIT_ANNOTATION)
        if wanted is not None:
            self._wanted_exit(key, wanted)

    def _resize(self, key: Key, uid: str) -> None:
        """Hold a pod to what its spec says, where the node has that."""
        pod = self._same(key, uid)
        if pod is None or not self._resizes or not podstatus.unresized(pod):
            return
        where = pod["spec"]["nodeName"]
        node = self._hands.find(NODES, ("", where)) or {}
        most = parsed(node["status"]["allocatable"]["memory"])
        there = (one for one in self._on(where) if key_of(one) != key and not _over(one))
        others = sum(map(_memory, there), Decimal(0))
        if _memory(pod) > most:
            told = f"Node didn't have enough capacity: memory, requested: {_memory(pod)}"
            self._put_off(key, pod, "Infeasible", f"{told}, capacity: {most}")
        elif _memory(pod) + others > most:
            self._put_off(key, pod, "Deferred", "Node didn't have enough resource: memory")
        else:
            self._write(key, podstatus.resized)

    def _put_off(self, key: Key, pod: Json, reason: str, message: str) -> None:
        known = pod["status"].get("conditions") or ()
        if any((c["type"], c.get("reason")) == (podstatus.PENDING, reason) for c in known):
            return
        now = self._hands.now()
        self._write(key, lambda pod: podstatus.resize_pending(pod, now, reason, message))

    def _wanted_exit(self, key: Key, wanted: str) -> None:
        if wanted == "OOMKilled":
            self._exit(key, 137, "OOMKilled")
        elif wanted == "Evicted":
            self._write(
                key,
                lambda pod: podstatus.evicted(
                    pod, self._hands.now(), "The node was low on memory."
                ),
            )
        else:
            self._exit(key, int(wanted), "")

    def _exit(self, key: Key, code: int, reason: str) -> None:
        pod = self._hands.find(PODS, key)
        if pod is None:
            raise LookupError(f"no pod {key}")
        policy = pod["spec"].get("restartPolicy", "Always")
        again = policy == "Always" or (policy == "OnFailure" and code != 0)
        running = pod["status"].get("containerStatuses")
        if again and running and "deletionTimestamp" not in pod["metadata"]:
            self._write(key, lambda pod: podstatus.restarted(pod, self._hands.now(), code, reason))
            return
        codes = {container["name"]: code for container in pod["spec"]["containers"]}
        self._write(key, lambda pod: podstatus.ended(pod, self._hands.now(), codes, reason))

    def _end(self, key: Key, uid: str) -> None:
        """Let a deleted pod's containers end on SIGTERM, and confirm."""
        if self._same(key, uid) is not None:
            if self.sigterm_code is not None:
                self._exit(key, self.sigterm_code, "")
            self._remove(key)

    def _remove(self, key: Key) -> None:
        """Confirm that a pod is gone; somebody else may remove it at any moment."""
        with suppress(LookupError):
            self._hands.delete(PODS, key, grace_seconds=0)

    def _disrupt(self, key: Key, reason: str, message: str) -> None:
        """Say on a pod who ends it, and delete it."""
        target = podstatus.condition("DisruptionTarget", True, self._hands.now(), reason, message)
        self._condition(key, target)
        self._hands.delete(PODS, key)

    def _condition(self, key: Key, new: Json) -> None:
        def status(pod: Json) -> Json:
            known = pod["status"].get("conditions") or []
            return {**pod["status"], "conditions": podstatus.with_condition(known, new)}

        self._write(key, status)

    def _hold(self, held: bool) -> None:
        self._held = held
        if not held:
            for pod in self.pods():
                self._look(pod)

    def _on(self, name: str) -> list[Json]:
        return [pod for pod in self.pods() if pod["spec"].get("nodeName") == name]

    def _beat(self) -> None:
        if self._closed:
            return
        for node in self._hands.all_of(NODES):
            name, conditions = node["metadata"]["name"], node["status"].get("conditions") or ()
            if name in self._lost:
                continue
            self._hands.renew(name)
            # A kubelet says that it is well again if its lease was late, and taken for silence.
            if any((one["type"], one["status"]) == ("Ready", "Unknown") for one in conditions):
                set_ready(self._hands, name, True)
        self._hands.soon(self._beat, self._beat_seconds)

    def _lose(self, name: str) -> None:
        self._lost.add(name)
        set_ready(self._hands, name, False)
        for pod in self._on(name):
            if (pod.get("status") or {}).get("phase") == "Running":
                lost = podstatus.condition("Ready", False, self._hands.now(), "NodeStatusUnknown")
                self._condition(key_of(pod), lost)

    def _taint_evict(self, name: str) -> None:
        for pod in self._on(name):
            self._disrupt(key_of(pod), "DeletionByTaintManager", "node is lost")

    def _collect(self, name: str) -> None:
        for pod in self._on(name):
            if "deletionTimestamp" in pod["metadata"]:
                self._remove(key_of(pod))

    def _find(self, name: str) -> None:
        self._lost.discard(name)
        if self._beat_seconds:
            self._hands.renew(name)
        set_ready(self._hands, name, True)
        for pod in self._on(name):
            running = (pod.get("status") or {}).get("phase") == "Running"
            if running and "deletionTimestamp" not in pod["metadata"]:
                back = podstatus.condition("Ready", True, self._hands.now())
                self._condition(key_of(pod), back)
            self._look(pod)

    def _remove_node(self, name: str) -> None:
        pods = self._on(name)
        self._hands.delete(NODES, ("", name))
        for pod in pods:
            self._remove(key_of(pod))
        self._lost.discard(name)


def _over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _memory(pod: Json) -> Decimal:
    """The memory that a pod reserves."""
    amounts = (
        (one.get("resources") or {}).get("requests") or {} for one in pod["spec"]["containers"]
    )
    return sum((parsed(each.get("memory", "0")) for each in amounts), Decimal(0))
