"""The status of a pod as a kubelet writes it, as pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def condition(type: str, held: bool, now: str, reason: str = "", message: str = "") -> Json:
    """Return one condition."""
    return {
        "type": type,
        "status": "True" if held else "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def with_condition(conditions: Sequence[Json], new: Json) -> list[Json]:
    """Return ``conditions`` with one in the place of what has its type; times move on change."""
    old = next((one for one in conditions if one["type"] == new["type"]), None)
    if old is not None and old["status"] == new["status"]:
        new = {**new, "lastTransitionTime": old["lastTransitionTime"]}
    return [*(one for one in conditions if one["type"] != new["type"]), new]


def running(pod: Mapping[str, Any], now: str, address: str, host: str) -> Json:
    """Return the status of a pod whose containers all run."""
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    for type in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
        conditions = with_condition(conditions, condition(type, True, now))
    spec = pod["spec"]
    states = [
        container_status(container, {"running": {"startedAt": now}}, ready=True)
        for container in spec["containers"]
    ]
    inits = [
        container_status(container, terminated(0, now, now))
        for container in spec.get("initContainers") or ()
    ]
    return {
        **status,
        "phase": "Running",
        "conditions": conditions,
        "hostIP": host,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": status.get("startTime", now),
        "containerStatuses": states,
        **({"initContainerStatuses": inits} if inits else {}),
    }


def terminated(code: int, started: str, now: str, reason: str = "", message: str = "") -> Json:
    """Return the state of a container that ended."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "startedAt": started,
            "finishedAt": now,
            **({"message": message} if message else {}),
        }
    }


def container_status(
    container: Mapping[str, Any],
    state: Json,
    *,
    ready: bool = False,
    restarts: int = 0,
    last: Json | None = None,
) -> Json:
    """Return the status of one container."""
    held = container.get("resources") or {}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": "running" in state,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
        **({"resources": held, "allocatedResources": held.get("requests", {})} if held else {}),
    }


def ended(
    pod: Mapping[str, Any], now: str, codes: Mapping[str, int], reason: str = "", message: str = ""
) -> Json:
    """Return the status of a pod whose containers ended; ``codes``: container -> exit code."""
    status = pod.get("status") or {}
    started = status.get("startTime", now)
    conditions = list(status.get("conditions") or ())
    failed = any(codes.values())
    why = "PodFailed" if failed else "PodCompleted"
    for type in ("Ready", "ContainersReady"):
        conditions = with_condition(conditions, condition(type, False, now, why))
    return {
        **status,
        "phase": "Failed" if failed else "Succeeded",
        "conditions": conditions,
        "containerStatuses": [
            container_status(
                container,
                terminated(codes.get(container["name"], 0), started, now, reason, message),
                restarts=_restarts(status, container["name"]),
            )
            for container in pod["spec"]["containers"]
        ],
    }


def _restarts(status: Mapping[str, Any], name: str) -> int:
    for one in status.get("containerStatuses") or ():
        if one["name"] == name:
            count: int = one.get("restartCount", 0)
            return count
    return 0


def restarted(pod: Mapping[str, Any], now: str, code: int, reason: str = "") -> Json:
    """Return the status of a pod whose first container ended and runs again."""
    status = pod["status"]
    first, *others = status["containerStatuses"]
    again = {
        **first,
        "restartCount": first.get("restartCount", 0) + 1,
        "lastState": terminated(code, status.get("startTime", now), now, reason),
        "state": {"running": {"startedAt": now}},
    }
    return {**status, "containerStatuses": [again, *others]}


def image_missing(pod: Mapping[str, Any], now: str, image: str) -> Json:
    """Return the status of a pod whose image cannot be pulled."""
    status = pod.get("status") or {}
    message = f'Back-off pulling image "{image}"'
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    conditions = list(status.get("conditions") or ())
    for type in ("Ready", "ContainersReady"):
        new = condition(type, False, now, "ContainersNotReady")
        conditions = with_condition(conditions, new)
    return {
        **status,
        "phase": "Pending",
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": [
            container_status(container, waiting) for container in pod["spec"]["containers"]
        ],
    }


def evicted(pod: Mapping[str, Any], now: str, message: str) -> Json:
    """Return the status of a pod that its node threw out."""
    status = ended(pod, now, {c["name"]: 137 for c in pod["spec"]["containers"]}, "Error")
    target = condition("DisruptionTarget", True, now, "TerminationByKubelet", message)
    return {
        **status,
        "reason": "Evicted",
        "message": message,
        "conditions": with_condition(status["conditions"], target),
    }


PENDING = "PodResizePending"


def resized(pod: Mapping[str, Any]) -> Json:
    """Return the status of a pod whose containers hold what its spec says, as after a resize."""
    status = pod["status"]
    held = {one["name"]: one.get("resources") or {} for one in pod["spec"]["containers"]}
    states = [
        {
            **one,
            "resources": held[one["name"]],
            "allocatedResources": held[one["name"]].get("requests", {}),
        }
        for one in status["containerStatuses"]
    ]
    others = [one for one in status.get("conditions") or () if one["type"] != PENDING]
    return {**status, "containerStatuses": states, "conditions": others}


def unresized(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs with other amounts than its spec says."""
    wanted = {one["name"]: one.get("resources") or {} for one in pod["spec"]["containers"]}
    return any(
        one.get("resources", {}) != wanted.get(one["name"])
        for one in (pod.get("status") or {}).get("containerStatuses") or ()
    )


def resize_pending(pod: Mapping[str, Any], now: str, reason: str, message: str) -> Json:
    """Return the status of a pod that is not resized, for ``Deferred`` or ``Infeasible``."""
    told = condition(PENDING, True, now, reason, message)
    known = pod["status"].get("conditions") or ()
    return {**pod["status"], "conditions": with_condition(known, told)}
