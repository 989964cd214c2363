"""Kueue played: a queue with a quota of CPU, first come first admitted; a rule of its webhook."""

from typing import Any

from scaler.kubernetes.pods.quota import WORKLOAD, is_true
from tests.kubernetes.apiserver import Server
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.hands import key_of
from tests.kubernetes.apiserver.objects.quantities import parsed
from tests.kubernetes.neighbours import install

WORKLOADS = (WORKLOAD.group, WORKLOAD.plural)


class PlayedKueue:
    """``quota``: CPUs of the one ClusterQueue behind all LocalQueues."""

    def __init__(self, server: Server, *, quota: int) -> None:
        self._server, self.quota = server, quota
        if server.api.kinds.of_kind(WORKLOAD.api_version, WORKLOAD.kind) is None:
            install(server, "kueue.x-k8s.io_workloads")
        server.api.webhooks["vworkload.kb.io"] = _webhook

    def workloads(self, namespace: str) -> dict[str, Json]:
        """Return the Workloads there, by the number at the end of their names."""
        found = self._server.objects(*reversed(WORKLOADS), namespace)
        return {each["metadata"]["name"].rpartition("-")[2]: each for each in found}

    def evict(self, workload: Json, reason: str, message: str) -> None:
        """Ask for a Workload's quota back."""
        self._tell(workload, {}, ("Evicted", True, reason, message))

    def turn(self) -> None:
        """Admit what fits, and evict what is inactive."""
        found = self._server.objects(*reversed(WORKLOADS))
        left = self.quota - sum(_cpus(w) for w in found if is_true(w, "QuotaReserved"))
        for each in sorted(found, key=lambda w: w["metadata"]["creationTimestamp"]):
            reserved, active = is_true(each, "QuotaReserved"), each["spec"].get("active", True)
            if is_true(each, "Finished") or (reserved and (active or is_true(each, "Evicted"))):
                continue
            if reserved:
                self.evict(each, "Deactivated", "The workload is deactivated")
            elif active and _cpus(each) <= left:
                left -= _cpus(each)
                self._admit(each)
            else:
                said = f"insufficient unused quota for cpu, {_cpus(each) - left} more needed"
                if not _has(each, said):
                    self._tell(each, {}, ("QuotaReserved", False, "WaitingForQuota", said))

    def _admit(self, workload: Json) -> None:
        sets = [
            {"name": each["name"], "count": each["count"], "flavors": {"cpu": "default"}}
            for each in workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "all", "podSetAssignments": sets}
        self._tell(
            workload,
            {"admission": admission},
            ("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue all"),
            ("Admitted", True, "Admitted", "The workload is admitted"),
            ("Evicted", False, "QuotaReserved", ""),
        )

    def _tell(self, workload: Json, more: Json, *said: tuple[str, bool, str, str]) -> None:
        now = self._server.hands.now()
        new = {
            type: {
                "type": type,
                "status": str(status),
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for type, status, reason, message in said
        }
        key = key_of(workload)

        def status(obj: Json) -> Json:
            had = obj.get("status") or {}
            known = {each["type"]: each for each in had.get("conditions") or ()}
            return {**had, **more, "conditions": list((known | new).values())}

        self._server.hands.write_status(WORKLOADS, key, status)


def _webhook(kind: Kind, old: Json | None, new: Json) -> str | None:
    if kind.resource != WORKLOADS or old is None:
        return None
    if is_true(old, "QuotaReserved") and old["spec"]["podSets"] != new["spec"]["podSets"]:
        return "spec.podSets: Invalid value: field is immutable"
    return None


def _cpus(workload: Json) -> int:
    return sum(
        each["count"] * int(parsed(_requested(each))) for each in workload["spec"]["podSets"]
    )


def _requested(pod_set: Json) -> Any:
    containers = pod_set["template"]["spec"]["containers"]
    return containers[0].get("resources", {}).get("requests", {}).get("cpu", "0")


def _has(workload: Json, message: str) -> bool:
    listed = (workload.get("status") or {}).get("conditions") or ()
    return any(each["message"] == message for each in listed)
