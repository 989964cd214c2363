"""Derives a replica from its pod."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from brain.types.resources import NodeName
from brain.types.world import ReplicaEnd, ReplicaExit
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.amounts import reserved_by
from scaler.kubernetes.pods.failures import Remedy, failure, terminated
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.kubernetes.runtime.status import read_instant
from scaler.ports import ReplicaPhase, ReplicaSeen


def look(pod: Object, replica: int) -> ReplicaSeen:
    """Return the replica of a pod, as far as the pod's object shows it."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    created = read_instant(pod["metadata"].get("creationTimestamp")) or datetime.fromtimestamp(
        0, UTC
    )
    seen = ReplicaSeen(
        id=replica,
        phase=ReplicaPhase.STARTING,
        generation=identity.generation_of(pod),
        resources=reserved_by(pod),
        unenforced=annotations.get(identity.UNENFORCED, ""),
        started_at=read_instant(annotations.get(identity.WRITTEN)) or created,
        asked_at=_asked(pod),
        leave_seconds=_leave_seconds(pod),
        role=identity.group_of(pod),
        node=node_of(pod),
        leaving="deletionTimestamp" in pod["metadata"] or bool(annotations.get(identity.MOVES)),
    )
    written = _ending(annotations.get(identity.ENDING))
    if written is not None:
        return ended_as(seen, written)
    match (pod.get("status") or {}).get("phase"):
        case "Running":
            return replace(seen, phase=ReplicaPhase.RUNNING)
        case "Succeeded" | "Failed" as phase:
            return _over(pod, seen, phase)
        case _:
            return seen


def vanished(last: ReplicaSeen, asked_at: datetime | None, now: datetime) -> ReplicaSeen:
    """Return the replica of a pod that has vanished, from its last state and any request to
    leave.
    """
    if last.phase is ReplicaPhase.ENDED:
        return last
    if asked_at is not None:
        detail = "its pod was deleted, as the scaler asked"
        ended = ReplicaEnd(exit=ReplicaExit.LEFT, detail=detail, at=now)
        return ended_as(replace(last, asked_at=asked_at), ended)
    said = last.detail or "its pod was deleted"
    return replace(last, phase=ReplicaPhase.GONE, detail=said, leaving=False)


def succeeded(pod: Object) -> bool:
    """True if a pod has finished its part of the job and ended."""
    return look(pod, 0).exit is ReplicaExit.SUCCEEDED


def ended_by_deletion(pod: Object) -> bool:
    """True if a pod's containers ended after the pod was deleted, so that their exit codes mean
    nothing.

    On SIGTERM torchrun exits with code 1, and a script that saves a checkpoint may exit with code
    0.
    """
    asked, phase = _asked(pod), (pod.get("status") or {}).get("phase")
    at = read_instant((terminated(pod) or {}).get("finishedAt"))
    over = phase in ("Succeeded", "Failed")
    return over and asked is not None and at is not None and at >= asked


def node_of(pod: Object) -> NodeName | None:
    """Return the node to which a pod is bound."""
    name = (pod.get("spec") or {}).get("nodeName")
    return NodeName(name) if name else None


def relaunched(pod: Object) -> bool:
    """True if a failed pod is replaced: always, unless its template's policy is Never."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(RESTART) != "Never"


#: Default seconds of grace of a pod, as in the API server, and the seconds that a kubelet may take
#: beyond.
_POD_SECONDS, _KUBELET_SECONDS = 30, 5

#: Annotation: the ``restartPolicy`` of the template, which decides relaunching; pods have Never.
RESTART = f"{identity.DOMAIN}/restart-policy"


def _over(pod: Object, seen: ReplicaSeen, phase: str) -> ReplicaSeen:
    """Return the end of a pod: its agent's own record, else the exit of its container."""
    ended: Mapping[str, Any] = terminated(pod) or {}
    at = read_instant(ended.get("finishedAt")) or seen.asked_at or seen.started_at
    said = _ending(ended.get("message"))
    if said is not None:
        return ended_as(seen, replace(said, at=said.at or at))
    if ended_by_deletion(pod):
        # It leaves until it vanishes, which tells the rest.
        return replace(seen, phase=ReplicaPhase.RUNNING)
    if phase == "Succeeded":
        return ended_as(seen, ReplicaEnd(exit=ReplicaExit.SUCCEEDED, exit_code=0, at=at))
    why = failure(pod)
    if why.remedy is Remedy.FATAL or not relaunched(pod):
        ending = ReplicaEnd(
            exit=ReplicaExit.FAILED, exit_code=why.exit_code, detail=why.detail, at=at
        )
        return ended_as(seen, ending)
    return replace(seen, phase=ReplicaPhase.GONE, detail=why.detail, exit_code=why.exit_code)


def ended_as(seen: ReplicaSeen, ending: ReplicaEnd) -> ReplicaSeen:
    return replace(
        seen,
        phase=ReplicaPhase.ENDED,
        ended_at=ending.at or seen.started_at,
        exit=ending.exit,
        exit_code=ending.exit_code,
        detail=ending.detail,
        unfit=ending.unfit,
    )


#: Built at import: msgspec is not safe if threads use a class for the first time at once.
_ENDING = msgspec.json.Decoder(ReplicaEnd)


def _ending(text: object) -> ReplicaEnd | None:
    if not isinstance(text, str) or not text.startswith("{"):
        return None
    try:
        return _ENDING.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        # Another program wrote the termination message.
        return None


def _asked(pod: Object) -> datetime | None:
    """Return the time of the first request that the pod end."""
    metadata = pod["metadata"]
    until = read_instant(metadata.get("deletionTimestamp"))
    if until is None:
        return None
    return until - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def _leave_seconds(pod: Object) -> float:
    """Return the seconds a pod has to leave.

    The kubelet ends a pod after its grace; if a pod still exists later, its node hangs.
    """
    given = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return (_POD_SECONDS if given is None else given) + _KUBELET_SECONDS
