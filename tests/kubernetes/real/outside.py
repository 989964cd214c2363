"""Hands on a cluster that is elsewhere: everything through its API."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import httpx2

from scaler.kubernetes.runtime import Manager, StoreChange
from scaler.kubernetes.runtime.cluster import NODE, POD, Cluster, connect
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Key, Resource
from tests.kubernetes.apiserver.hands import LEASES, NODES, PODS, Heard, lease_spec
from tests.kubernetes.apiserver.wire.listening import Turns
from tests.kubernetes.clusters import MARK, SCHEDULER, TAINT, client
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet import set_ready
from tests.kubernetes.real.output import Output, OutputDoor

T = TypeVar("T")

_MERGE = {"Content-Type": "application/merge-patch+json"}
#: A write that another one crossed is tried so often.
_TRIES = 20
#: As kubelets do; a node that is not heard of for 40 s is taken to be lost.
_BEAT_SECONDS = 8.0
_SYNC_SECONDS = 60.0
#: Versions of groups other than ``v1``.
_VERSIONS = {"elastic.iml.github.io": "v1alpha1", "scheduling.volcano.sh": "v1beta1"}


def path(resource: Resource, key: Key = ("", ""), door: str = "") -> str:
    """Return where an object lives, or without a name its collection."""
    group, plural = resource
    root = f"/apis/{group}/{_VERSIONS.get(group, 'v1')}" if group else "/api/v1"
    namespace = f"/namespaces/{key[0]}" if key[0] else ""
    return "/".join(part for part in (f"{root}{namespace}/{plural}", key[1], door) if part)


class Outside:
    """Sees pods of our scheduler and nodes of our own alone. Reads ask the server every time."""

    def __init__(
        self,
        kubeconfig: Path,
        *,
        controlled: bool,
        beat_seconds: float = _BEAT_SECONDS,
        scheduler: str = SCHEDULER,
        namespaces: Sequence[str] = (),
    ) -> None:
        """``controlled``: somebody takes silent nodes to be lost, and makes service accounts.

        ``scheduler``: of the pods that these hands touch; no ``namespaces``: in all of them.
        """
        self._controlled, self._beat_seconds = controlled, beat_seconds
        self._scheduler, self._namespaces = scheduler, namespaces
        #: Nodes that a test made silent.
        self._silent: set[str] = set()
        self._output: OutputDoor | None = None
        #: Hears of namespaces that are made.
        self.made: Callable[[str], None] = lambda _: None
        self._turns = Turns("kubelets")
        self._http = client(kubeconfig, "kubelets")
        self._door = Cluster(connect(kubeconfig=str(kubeconfig)))
        self._ending = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="heartbeats", daemon=True)
        if controlled:
            self._beating.start()

    def close(self) -> None:
        """Let go; nodes that were made go, too."""
        self._ending.set()
        if self._beating.is_alive():
            self._beating.join()
        for node in self.all_of(NODES):
            name = node["metadata"]["name"]
            self._http.delete(path(NODES, ("", name)))
            self._http.delete(path(LEASES, ("kube-node-lease", name)))
        if self._output is not None:
            self._output.close()
        self._turns.end()
        self._door.close()
        self._http.close()

    def call(self, work: Callable[[], T]) -> T:
        """Do it on a thread of these hands."""
        return self._turns.call(work)

    def soon(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Do it there later."""
        self._turns.soon(work, seconds)

    def now(self) -> str:
        """Return this machine's time."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def find(self, resource: Resource, key: Key) -> Json | None:
        """Ask for an object."""
        answer = self._http.get(path(resource, key))
        if answer.status_code == 404:
            return None
        return _good(answer)

    def all_of(self, resource: Resource) -> list[Json]:
        """List what is ours."""
        chosen = (
            {"labelSelector": MARK}
            if resource == NODES
            else {"fieldSelector": f"spec.schedulerName={self._scheduler}"}
        )
        every = self._namespaces if resource == PODS and self._namespaces else ("",)
        found: list[Json] = []
        for namespace in every:
            answer = self._http.get(path(resource, (namespace, "")), params=chosen)
            found += _good(answer)["items"]
        return found

    def listen(self, hear: Callable[[Heard], None]) -> Callable[[], None]:
        """Watch pods and nodes."""

        def told(resource: Resource, change: StoreChange) -> None:
            obj = dict(change.latest)
            if resource == NODES or obj["spec"].get("schedulerName") == self._scheduler:
                self.soon(lambda: hear(Heard(resource, obj, change.new is None)))

        manager = Manager(self._door, namespaces=self._namespaces)
        manager.listen(NODE, lambda change: told(NODES, change), label_selector=MARK)
        manager.listen(POD, lambda change: told(PODS, change))
        manager.start()
        assert manager.synced(_SYNC_SECONDS)
        return manager.stop

    def write_status(self, resource: Resource, key: Key, status: Callable[[Json], Json]) -> None:
        """Write through the door of statuses, again where somebody else wrote meanwhile."""
        if resource == NODES:
            status = self._noted(key[1], status)
        self._change(resource, key, "status", lambda obj: {"status": status(obj)})

    def _noted(self, name: str, status: Callable[[Json], Json]) -> Callable[[Json], Json]:
        """Note what a test says of a node, and when it is said: controllers look at the time."""

        def noted(node: Json) -> Json:
            made = status(node)
            well = _ready(made)
            (self._silent.discard if well else self._silent.add)(name)
            times = {"lastHeartbeatTime": self.now()} if well else {}
            return {**made, "conditions": [{**one, **times} for one in made["conditions"]]}

        return noted

    def write_taints(self, name: str, taints: Callable[[list[Json]], list[Json]]) -> None:
        """Write a node's spec."""
        self._change(
            NODES, ("", name), "", lambda node: {
                "spec": {"taints": taints((node.get("spec") or {}).get("taints") or [])}
            },
        )  # fmt: skip

    def create(self, resource: Resource, obj: Json) -> None:
        """Make an object; a node gets our mark, and what a killed run left of it goes first."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if resource == NODES:
            obj = _marked(obj)
            self._clear(key)
            # Before its node: who finds none, or one of an earlier node, takes the new one as lost.
            self._born(key[1])
        _good(self._http.post(path(resource, (key[0], "")), json=obj))
        if obj.get("status"):
            new = self._reached(obj["status"]) if resource == NODES else obj["status"]
            self.write_status(resource, key, lambda _: new)
        if resource == NODES:
            # Every new node has it, and whoever takes it away again is slow, or not there.
            self.write_taints(key[1], lambda had: [t for t in had if t["key"] != _NOT_READY])
        if resource == _NAMESPACES:
            self.made(key[1])
        if resource == _NAMESPACES and self._controlled:
            # Until somebody has made it, every pod is refused.
            eventually(lambda: self.find(_ACCOUNTS, (key[1], "default")))

    def delete(self, resource: Resource, key: Key, grace_seconds: int | None = None) -> None:
        """Delete as anybody does."""
        how = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        answer = self._http.request("DELETE", path(resource, key), json=how)
        if answer.status_code == 404:
            raise LookupError(f"there is no {resource[1]} {key}")
        _good(answer)

    def bind(self, pod: Json, node: str) -> None:
        """Give a pod its node; one that went or has another one by now is left alone."""
        metadata = pod["metadata"]
        body = {
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        key = (metadata["namespace"], metadata["name"])
        answer = self._http.post(path(PODS, key, "binding"), json=body)
        if answer.status_code not in (404, 409):
            _good(answer)

    def serve_logs(self, logs: Output) -> None:
        """Answer at the port that nodes of ours have from now on."""
        self._output = OutputDoor(logs, self._ended)

    def _ended(self, namespace: str, pod: str) -> bool:
        found = self.find(PODS, (namespace, pod))
        return found is None or found["status"].get("phase") in ("Succeeded", "Failed")

    def _reached(self, status: Json) -> Json:
        """Return a new node's status, which says where the API server finds its output."""
        if self._output is None:
            return status
        told = {"kubeletEndpoint": {"Port": self._output.port}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        return {**status, "addresses": addresses, "daemonEndpoints": told}

    def _clear(self, key: Key) -> None:
        """Delete a node of ours that was left; the cluster's own are never touched."""
        left = self.find(NODES, key)
        if left is not None:
            ours = MARK in (left["metadata"].get("labels") or {})
            assert ours, f"the cluster has a node {key[1]} of its own; tests need that name"
            self._http.delete(path(NODES, key))

    def _change(
        self, resource: Resource, key: Key, door: str, change: Callable[[Json], Json]
    ) -> None:
        for _ in range(_TRIES):
            known = self.find(resource, key)
            if known is None:
                return
            version = {"metadata": {"resourceVersion": known["metadata"]["resourceVersion"]}}
            answer = self._http.patch(
                path(resource, key, door), headers=_MERGE, json=version | change(known)
            )
            if answer.status_code == 404:
                return
            if answer.status_code != 409:
                _good(answer)
                return
        raise AssertionError(f"{key} is written by others all the time")

    def _beat(self) -> None:
        """Renew the leases of nodes that are well, without which they would be told as lost."""
        while not self._ending.wait(self._beat_seconds):
            for node in self.all_of(NODES):
                name = node["metadata"]["name"]
                if name in self._silent:
                    continue
                self.renew(name)
                if not _ready(node.get("status") or {}):
                    # A controller remembers an earlier node of the name; a kubelet speaks up, too.
                    set_ready(self, name, True)

    def _born(self, name: str) -> None:
        """Give a node that is about to be its lease."""
        key = ("kube-node-lease", name)
        self._http.delete(path(LEASES, key))
        body = {"metadata": {"name": name}, "spec": lease_spec(name)}
        self._http.post(path(LEASES, (key[0], "")), json=body)

    def renew(self, name: str) -> None:
        """Write the lease's time; it is made with the first, and goes with its node."""
        key, spec = ("kube-node-lease", name), lease_spec(name)
        answer = self._http.patch(path(LEASES, key), headers=_MERGE, json={"spec": spec})
        node = self.find(NODES, ("", name)) if answer.status_code == 404 else None
        if node is not None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name}
            owners = [owner | {"uid": node["metadata"]["uid"]}]
            body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
            self._http.post(path(LEASES, (key[0], "")), json=body)


_NAMESPACES: Resource = ("", "namespaces")
_ACCOUNTS: Resource = ("", "serviceaccounts")
#: Taint with which a node comes into being.
_NOT_READY = "node.kubernetes.io/not-ready"


def _ready(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _marked(node: Json) -> Json:
    """Return a node of ours, which pods of others do not come to."""
    metadata, spec = node["metadata"], dict(node.get("spec") or {})
    labels = {**(metadata.get("labels") or {}), MARK: "yes"}
    spec["taints"] = [*(spec.get("taints") or ()), TAINT]
    return {**node, "metadata": {**metadata, "labels": labels}, "spec": spec}


def _good(answer: httpx2.Response) -> Json:
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.text}"
    found: Json = answer.json()
    return found
