"""Puts random clusters before a real kube-scheduler and writes down its verdicts.

Nodes and pods are objects alone: no kubelet is needed. A pod is pinned to a node by a resource that
only this node has; a node selector would change how pods spread.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from brain.errors import BadInput
from scaler.kubernetes.pods import gang
from scaler.kubernetes.runtime.cluster import NAMESPACE, NODE, POD, AlreadyExists, Cluster, Kind
from tests.kubernetes.verdicts.drawing import HOME, OTHER, OVERHEAD, PRIORITY, RUNTIME, DrawnCluster
from tests.kubernetes.verdicts.golden import Json, Opened, Verdicts, admission, kept

_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount")
_RUNTIME = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
_PRIORITY = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
#: Label of the nodes.
_MARK = "brain-verdicts"
_PIN = "example.com/pin-"
_SPREAD = "topologySpreadConstraints"
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.004
#: In which the scheduler hears that a pod is gone.
_HEARING_SECONDS = 0.01


@contextlib.contextmanager
def recording(cluster: Cluster) -> Iterator["Recorder"]:
    """Make a cluster ready, and leave nothing in it but two empty namespaces.

    Raises:
        BadInput: it has nodes of its own.
    """
    _discard(cluster)
    if found := cluster.list(NODE).items:
        raise BadInput(
            f"the cluster has nodes, {found[0]['metadata']['name']} for one, and verdicts would "
            "depend on them; record on a control plane without nodes",
            field="kubeconfig",
        )
    for name in (HOME, OTHER):
        _ensure(cluster, NAMESPACE, {"metadata": {"name": name}})
        _ensure(cluster, _ACCOUNT, {"metadata": {"name": "default", "namespace": name}})
    runtime = {"handler": "kata", "overhead": {"podFixed": OVERHEAD}}
    _ensure(cluster, _RUNTIME, {"metadata": {"name": RUNTIME}, **runtime})
    priority = {"value": 1000, "preemptionPolicy": "Never"}
    _ensure(cluster, _PRIORITY, {"metadata": {"name": PRIORITY}, **priority})
    with ThreadPoolExecutor(6) as pool:
        try:
            yield Recorder(cluster, pool)
        finally:
            _discard(cluster)
            cluster.delete(_RUNTIME, "", RUNTIME)
            cluster.delete(_PRIORITY, "", PRIORITY)


def _ensure(cluster: Cluster, kind: Kind, obj: Mapping[str, Any]) -> None:
    with contextlib.suppress(AlreadyExists):
        cluster.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **obj})


def _discard(cluster: Cluster) -> None:
    """Delete what a recorder made, a killed one, too."""
    for namespace in (HOME, OTHER):
        for pod in cluster.list(POD, namespace).items:
            cluster.delete(POD, namespace, pod["metadata"]["name"], grace_seconds=0)
    for node in cluster.list(NODE, label_selector=_MARK).items:
        cluster.delete(NODE, "", node["metadata"]["name"])


class Recorder:
    """One cluster after the other."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self._cluster, self._pool = cluster, pool

    def record(self, number: int, drawn: DrawnCluster) -> Verdicts:
        """Return the scheduler's verdicts on one cluster."""
        self._each(self._make_node, [*map(_pinned, enumerate(drawn.nodes))])
        self._each(self._make_other, drawn.others)
        self._make_node(_last(number))
        # The scheduler hears of nodes in their order, and of pods in theirs: now it knows all.
        self._make_pod(_on("end", _anyone(f"v{number}-end")))
        self._judged([f"v{number}-end"])
        nodes = self._found(NODE, "", drawn.nodes)
        others = [*self._found(POD, HOME, drawn.others), *self._found(POD, OTHER, drawn.others)]
        takes = self._takers(drawn)
        together = self._tried(drawn.gang, self._make_pod)
        gate = admission(nodes, others, [_gated(each) for each in drawn.gang])
        opened: Opened | None = None
        if gate.near:
            let_in = self._tried(drawn.gang, lambda each: self._let_in(each, gate.near))
            opened = Opened(near=gate.near, bound=_placed(let_in))
        self._clear(drawn, number)
        return Verdicts(
            number=number,
            nodes=[_unpinned(kept(node)) for node in nodes],
            others=[kept(each) for each in others],
            pod=_unbound(kept(together[0]), drawn.gang[0]),
            size=len(drawn.gang),
            takes=takes,
            together=_placed(together),
            opened=opened,
        )

    def _takers(self, drawn: DrawnCluster) -> list[str]:
        """Which nodes take one of the gang."""
        first, names = drawn.gang[0], [each["name"] for each in _metadata(drawn.nodes)]
        pods = [
            _on(str(number), {**first, "metadata": {**first["metadata"], "name": f"{name}-pin"}})
            for number, name in enumerate(names)
        ]
        # Two at once would be in each other's way.
        alone = "Affinity" in str(first["spec"].get("affinity")) or _SPREAD in first["spec"]
        rounds = [[pod] for pod in pods] if alone else [pods]
        found = [pod for each in rounds for pod in self._tried(each, self._make_pod)]
        return [name for name, pod in zip(names, found, strict=True) if _placed([pod])]

    def _tried(self, pods: Sequence[Json], make: Callable[[Json], object]) -> list[Json]:
        """Return pods as the scheduler left them; they are gone then."""
        self._each(make, pods)
        names = [each["name"] for each in _metadata(pods)]
        found = self._judged(names)
        self._each(self._end_pod, names)
        return found

    def _judged(self, names: Sequence[str]) -> list[Json]:
        """Return pods once the scheduler gave each a node, or said that none takes it."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            known = {p["metadata"]["name"]: p for p in self._cluster.list(POD, HOME).items}
            found = [known[name] for name in names]
            if all(pod["spec"].get("nodeName") or _refused(pod) for pod in found):
                return found
            time.sleep(_PAUSE_SECONDS)
        raise BadInput(
            f"pods {', '.join(names)} have had no verdict for {_PATIENCE_SECONDS:.0f} s; does a "
            "kube-scheduler run on this cluster?",
            field="kubeconfig",
        )

    def _found(self, kind: Kind, namespace: str, made: Sequence[Json]) -> list[Json]:
        """Objects as the server gives them."""
        names = {each["name"] for each in _metadata(made)}
        found = self._cluster.list(kind, namespace).items
        return [each for each in found if each["metadata"]["name"] in names]

    def _let_in(self, pod: Json, near: Mapping[str, str]) -> None:
        gated = _gated(pod)
        self._make_pod(gated)
        self._cluster.merge(POD, HOME, pod["metadata"]["name"], gang.opened(gated, near))

    def _make_node(self, node: Json) -> None:
        made = {**node["metadata"], "labels": {**node["metadata"].get("labels", {}), _MARK: ""}}
        self._cluster.create(NODE, {"apiVersion": "v1", "kind": "Node", **node, "metadata": made})
        # The server taints a node as it is created; its controller would take that away.
        self._cluster.merge(NODE, "", made["name"], {"spec": {"taints": node["spec"]["taints"]}})

    def _make_pod(self, pod: Json) -> None:
        self._cluster.create(POD, {"apiVersion": "v1", "kind": "Pod", **pod})

    def _make_other(self, pod: Json) -> None:
        metadata = {k: v for k, v in pod["metadata"].items() if k != "deletionTimestamp"}
        namespace, name = metadata["namespace"], metadata["name"]
        self._make_pod({**pod, "metadata": metadata})
        if "status" in pod:
            self._cluster.merge_status(POD, namespace, name, {"status": pod["status"]})
        if "deletionTimestamp" in pod["metadata"]:
            self._cluster.delete(POD, namespace, name, grace_seconds=3600)

    def _end_pod(self, name: str, namespace: str = HOME) -> None:
        self._cluster.delete(POD, namespace, name, grace_seconds=0)
        time.sleep(_HEARING_SECONDS)

    def _clear(self, drawn: DrawnCluster, number: int) -> None:
        self._each(
            lambda each: self._end_pod(each["name"], each["namespace"]), _metadata(drawn.others)
        )
        self._end_pod(f"v{number}-end")
        names = [each["name"] for each in _metadata(drawn.nodes)]
        self._each(lambda name: self._cluster.delete(NODE, "", name), [*names, f"v{number}-end"])

    def _each(self, work: Callable[[Any], object], things: Sequence[Any]) -> None:
        list(self._pool.map(work, things))


def _refused(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def _placed(pods: Sequence[Json]) -> int:
    return sum(bool(each["spec"].get("nodeName")) for each in pods)


def _unbound(pod: Json, drawn: Json) -> Json:
    """A pod before it got a node, and with it labels of that."""
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    metadata = {**pod["metadata"], "labels": drawn["metadata"]["labels"]}
    return {**pod, "metadata": metadata, "spec": spec}


def _metadata(objects: Sequence[Json]) -> list[Json]:
    return [each["metadata"] for each in objects]


def _gated(pod: Json) -> Json:
    return {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": gang.GATE}]}}


def _pinned(numbered: tuple[int, Json]) -> Json:
    """A node that a pod can be pinned to."""
    number, node = numbered
    amounts = {**node["status"]["allocatable"], f"{_PIN}{number}": "1"}
    return {**node, "status": {**node["status"], "allocatable": amounts, "capacity": amounts}}


def _unpinned(node: Json) -> Json:
    amounts = node["status"]["allocatable"]
    amounts = {name: amount for name, amount in amounts.items() if not name.startswith(_PIN)}
    labels = {k: v for k, v in node["metadata"]["labels"].items() if k != _MARK}
    metadata, status = node["metadata"], node["status"]
    return {
        **node,
        "metadata": {**metadata, "labels": labels},
        "status": {**status, "allocatable": amounts},
    }


def _last(number: int) -> Json:
    """A node that only one pod can come to, and that is in no domain."""
    amounts = {"pods": "1", f"{_PIN}end": "1"}
    ready = [{"type": "Ready", "status": "True", "reason": "Drawn"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    return {"metadata": {"name": f"v{number}-end"}, "spec": {"taints": []}, "status": status}


def _anyone(name: str) -> Json:
    spec = {"containers": [{"name": "main", "image": "x"}]}
    return {"metadata": {"name": name, "namespace": HOME}, "spec": spec}


def _on(pin: str, pod: Json) -> Json:
    """A pod that only one node can have enough for."""
    main, *more = pod["spec"]["containers"]
    given = main.get("resources") or {}
    limits = {**(given.get("limits") or {}), f"{_PIN}{pin}": "1"}
    first = {**main, "resources": {**given, "limits": limits}}
    return {**pod, "spec": {**pod["spec"], "containers": [first, *more]}}
