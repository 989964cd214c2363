"""Reasons why a pod ended or never started, and the consequences for its replacement."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from brain.errors import BadInput
from scaler.kubernetes.kinds.documents.templates import main_container
from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.runtime.cluster.kind import Object

GIB = 2**30
#: More memory after an OOM kill: double, limited in step and in total (DLRover's rule).
_STEP_BYTES, _MOST_BYTES = 8 * GIB, 64 * GIB


class Remedy(StrEnum):
    #: Start the same pod again: it was evicted, preempted or killed, or its node is gone.
    RETRY = "retry"
    #: Start again, with more memory.
    MEMORY = "memory"
    #: Start again, on another node: the device or the node is at fault.
    ELSEWHERE = "elsewhere"
    #: Start no other: the script itself fails, and would fail again.
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class PodFailure:
    remedy: Remedy
    #: One sentence.
    detail: str
    exit_code: int | None = None

    @property
    def crashed(self) -> bool:
        """True if the container ended by itself and only the exit code is known."""
        return self.remedy is Remedy.RETRY and self.exit_code not in _NO_CRASH


#: Exit codes of containers that somebody else ended (SIGKILL, SIGTERM), or whose end is unknown.
_NO_CRASH = frozenset({None, 0, 137, 143})
#: Reasons in a pod's status for which the cluster is responsible.
_CLUSTER = frozenset(
    {"Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown"}
)
_UNFIT = frozenset({"UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory"})
#: Exit codes by which DLRover's agents report a broken device.
_HARDWARE = frozenset({201, 202, 14})
_FATAL = frozenset({1, 2, 126, 127, 134})


def failure(pod: Object) -> PodFailure:
    """Classify the failure of a pod that failed, or of a pod whose container ended."""
    status: Mapping[str, Any] = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "").strip()
    said = f": {message}" if message else ""
    if reason in _CLUSTER or _disrupted(status):
        return PodFailure(Remedy.RETRY, f"{reason or 'disrupted'} on {_node(pod)}{said}")
    if reason in _UNFIT:
        return PodFailure(Remedy.ELSEWHERE, f"{reason} on {_node(pod)}{said}")
    ended = terminated(pod)
    if ended is None:
        return PodFailure(
            Remedy.RETRY, f"{reason or 'lost for an unknown reason'} on {_node(pod)}{said}"
        )
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled" or code == 247:
        return PodFailure(Remedy.MEMORY, f"out of memory on {_node(pod)}", code)
    if code in _HARDWARE:
        return PodFailure(
            Remedy.ELSEWHERE, f"exit code {code}: a device of {_node(pod)} failed", code
        )
    if code in _FATAL:
        return PodFailure(
            Remedy.FATAL, f"the container exited with code {code}{_last_words(ended)}", code
        )
    return PodFailure(
        Remedy.RETRY, f"the container exited with code {code}{_last_words(ended)}", code
    )


def terminated(pod: Object) -> Mapping[str, Any] | None:
    """Return how the main container ended, else how another container ended; None if none is known
    to have ended.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    listed = status.get("containerStatuses") or ()
    main = main_container(pod).get("name")
    for each in sorted(listed, key=lambda each: each.get("name") != main):
        found: Mapping[str, Any] | None = (each.get("state") or {}).get("terminated")
        if found is not None:
            return found
    return None


def stuck(pod: Object) -> str | None:
    """Return why a Pending pod will not start by itself: its image or its configuration."""
    status: Mapping[str, Any] = pod.get("status") or {}
    listed = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    for each in listed:
        waiting: Mapping[str, Any] = (each.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason in _STUCK:
            message = str(waiting.get("message") or "").strip()
            return f"container {each.get('name')}: {reason}" + (f": {message}" if message else "")
    return None


_STUCK = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


def unschedulable(pod: Object) -> str | None:
    """Return the scheduler's message about a pod that fits nowhere; None if the pod is gated."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if (each.get("type"), each.get("status")) == ("PodScheduled", "False"):
            if each.get("reason") == "SchedulingGated":
                return None
            return str(each.get("message") or each.get("reason") or "it fits no node")
    return None


@dataclass(frozen=True, slots=True)
class ExceededQuota:
    """A ResourceQuota that refused a pod."""

    #: One sentence.
    message: str
    #: The quota is too small for one such pod, even with no other pods.
    never: bool


_EXCEEDED = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>[^:]*), used: (?P<used>[^:]*), "
    r"limited: (?P<most>[^ ]*)"
)
_UNSAID = re.compile(r"failed quota: (?P<name>[^:]+): must specify (?P<fields>[^()]*)")


def over_quota(refusal: str) -> ExceededQuota | None:
    """Parse a quota's refusal in the API server's message; None if no quota refuses.

    >>> over_quota("exceeded quota: q, requested: cpu=2, used: cpu=3, limited: cpu=4 (403)").never
    False
    >>> over_quota("failed quota: q: must specify cpu for: main; memory for: main").message
    'quota q requires cpu, memory of every container; add them'
    """
    if unsaid := _UNSAID.search(refusal):
        name, said = unsaid["name"], unsaid["fields"].split(";")
        fields = ", ".join(each.partition(" for:")[0].strip() for each in said)
        return ExceededQuota(
            f"quota {name} requires {fields} of every container; add them", never=True
        )
    found = _EXCEEDED.search(refusal)
    if found is None:
        return None
    asked, most = _listed(found["asked"]), _listed(found["most"])
    if never := [name for name in asked if name in most and _more(asked[name], most[name])]:
        wants = ", ".join(f"{name}={asked[name]}" for name in never)
        allows = ", ".join(f"{name}={most[name]}" for name in never)
        remedy = "raise the quota, or ask for less"
        message = f"quota {found['name']} allows {allows}, but one pod needs {wants}; {remedy}"
        return ExceededQuota(message, never=True)
    return ExceededQuota(
        f"quota {found['name']} is used up: a pod needs {found['asked']}, and {found['used']} "
        f"of {found['most']} are taken; raise the quota, end other pods that use it, or ask "
        "for less",
        never=False,
    )


def _listed(said: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in said.split(","))
    return {name.strip(): amount for name, _, amount in pairs}


def _more(one: str, other: str) -> bool:
    try:
        return quantity(one, "requested") > quantity(other, "limited")
    except BadInput:
        return False


def raised(memory_bytes: int, kills: int) -> int:
    """Return the memory in bytes for a pod whose container was OOM-killed ``kills`` times.

    >>> [raised(3 * GIB, kills) // GIB for kills in range(4)]
    [3, 6, 12, 20]
    """
    for _ in range(kills):
        memory_bytes = max(
            memory_bytes, min(2 * memory_bytes, memory_bytes + _STEP_BYTES, _MOST_BYTES)
        )
    return memory_bytes


def _disrupted(status: Mapping[str, Any]) -> bool:
    return any(
        (each.get("type"), each.get("status")) == ("DisruptionTarget", "True")
        for each in status.get("conditions") or ()
    )


def _node(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "no node")


def _last_words(ended: Mapping[str, Any]) -> str:
    words = str(ended.get("message") or "").strip().splitlines()
    return f"; its last output: {words[-1][-300:]}" if words else ""
