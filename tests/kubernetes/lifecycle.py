"""The node-lifecycle controller, played: nodes that nobody hears are told, tainted and emptied."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tests.kubernetes import kubelet_status
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.hands import LEASES, NODES, PODS, key_of
from tests.kubernetes.kubelet import Handed, set_ready

_PERIOD_SECONDS = 0.1


class NodeLifecycle:
    """Looks at every node's lease; ``grace_seconds`` as --node-monitor-grace-period."""

    def __init__(self, cluster: Handed, *, grace_seconds: float) -> None:
        self._hands, self._grace = cluster.hands, timedelta(seconds=grace_seconds)
        self._closed = False
        self._hands.soon(self._turn, _PERIOD_SECONDS)

    def close(self) -> None:
        """Look no more."""
        self._closed = True

    def _turn(self) -> None:
        if self._closed:
            return
        now = datetime.now(UTC)
        for node in self._hands.all_of(NODES):
            if _ready(node) and now - self._heard(node) > self._grace:
                self._tell(node["metadata"]["name"])
            for pod in self._pods(node):
                if _evicted(pod, node, now):
                    self._evict(pod)
        self._hands.soon(self._turn, _PERIOD_SECONDS)

    def _heard(self, node: Json) -> datetime:
        metadata = node["metadata"]
        lease = self._hands.find(LEASES, ("kube-node-lease", metadata["name"]))
        return _instant(lease["spec"]["renewTime"] if lease else metadata["creationTimestamp"])

    def _tell(self, name: str) -> None:
        """Say that a node is not heard, and that its pods are not ready as far as one knows."""
        set_ready(self._hands, name, False)
        lost = kubelet_status.condition("Ready", False, self._hands.now(), "NodeStatusUnknown")
        for pod in self._hands.all_of(PODS):
            if pod["spec"].get("nodeName") == name and pod["status"].get("phase") == "Running":
                self._condition(pod, lost)

    def _pods(self, node: Json) -> Iterator[Json]:
        if any(taint["effect"] == "NoExecute" for taint in node["spec"].get("taints") or ()):
            for pod in self._hands.all_of(PODS):
                if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                    yield pod

    def _evict(self, pod: Json) -> None:
        reason, message = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
        now = self._hands.now()
        self._condition(
            pod, kubelet_status.condition("DisruptionTarget", True, now, reason, message)
        )
        self._hands.delete(PODS, key_of(pod))

    def _condition(self, pod: Json, new: Json) -> None:
        def status(pod: Json) -> Json:
            known = pod["status"].get("conditions") or []
            return {**pod["status"], "conditions": kubelet_status.with_condition(known, new)}

        self._hands.write_status(PODS, key_of(pod), status)


def _evicted(pod: Json, node: Json, now: datetime) -> bool:
    """Return whether a pod has borne a taint of its node for as long as it tolerates it."""
    over = pod["status"].get("phase") in ("Succeeded", "Failed")
    if over or "deletionTimestamp" in pod["metadata"]:
        return False
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] != "NoExecute":
            continue
        borne = [one for one in pod["spec"].get("tolerations") or () if _about(one, taint)]
        spans = [one["tolerationSeconds"] for one in borne if "tolerationSeconds" in one]
        if not borne:
            return True
        since = _instant(taint["timeAdded"]) if "timeAdded" in taint else now
        if spans and now - since > timedelta(seconds=min(spans)):
            return True
    return False


def _about(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("key", taint["key"]) != taint["key"]:
        return False
    exists = toleration.get("operator") == "Exists"
    return exists or toleration.get("value", "") == taint.get("value", "")


def _ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _instant(said: str) -> datetime:
    return datetime.fromisoformat(said.replace("Z", "+00:00"))
