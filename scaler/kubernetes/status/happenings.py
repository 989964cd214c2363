"""Derives Kubernetes Events from two successive statuses of a job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.kubernetes.kinds import JobCondition, Reason
from scaler.kubernetes.runtime.events import Type

#: Time in which a job that starts soon tells of its pods and its world by one Event.
_START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Happening:
    type: Type
    reason: str
    message: str
    #: Seconds for which the Event waits for one that says more, and the reason that it replaces.
    hold_seconds: float = 0.0
    replaces: str = ""


def happenings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Happening]:
    """Yield the changes that matter to people, in the order in which they happened."""
    if _unknown_fields(after) and not _unknown_fields(before):
        message = _message(after, JobCondition.HONOURED)
        yield Happening("Warning", Reason.UNKNOWN_FIELDS, message)
    made = after.get("replicas", 0) - before.get("replicas", 0)
    ready = after.get("readyReplicas", 0)
    started = _turned(before, after, JobCondition.RUNNING, "True") and "startTime" not in before
    if made > 0 and not started:
        pods = "1 pod was" if made == 1 else f"{made} pods were"
        message = f"{pods} created, {after['replicas']} exist"
        begins = "startTime" not in after
        yield Happening("Normal", "Created", message, _START_SECONDS if begins else 0.0)
    if started:
        message = f"a world is training; {ready} replicas are ready"
        yield Happening("Normal", "Started", message, replaces="Created")
    restarts = after.get("restarts", 0)
    if restarts > before.get("restarts", 0):
        message = f"restart {restarts}: {after.get('message', '')}"
        yield Happening("Warning", "Restarted", message)
    yield from _turns(before, after, ready)
    yield from _end(before, after)


def _turns(before: Mapping[str, Any], after: Mapping[str, Any], ready: int) -> Iterator[Happening]:
    if _turned(before, after, JobCondition.DEGRADED, "True"):
        yield Happening("Warning", "Degraded", _message(after, JobCondition.DEGRADED))
    goes_on = not _holds(after, JobCondition.COMPLETE) and not _holds(after, JobCondition.FAILED)
    if _turned(before, after, JobCondition.DEGRADED, "False") and goes_on:
        yield Happening("Normal", "Healed", f"{ready} replicas are ready again")
    yield from _reserves(before, after)
    if _turned(before, after, JobCondition.SIZE_DIFFERS, "True"):
        yield Happening("Normal", "SizeDiffers", _message(after, JobCondition.SIZE_DIFFERS))
    if _turned(before, after, JobCondition.CONFLICT, "True"):
        reason = (_condition(after, JobCondition.CONFLICT) or {}).get("reason", "Conflict")
        yield Happening("Warning", reason, _message(after, JobCondition.CONFLICT))
    if _turned(before, after, JobCondition.SCALING, "False") and goes_on:
        generation = after.get("generation", 0)
        yield Happening("Normal", "Resized", f"{ready} replicas are ready, generation {generation}")
    if _turned(before, after, JobCondition.SUSPENDED, "True"):
        yield Happening("Normal", "Suspended", "the job's pods have ended")
    if _turned(before, after, JobCondition.SUSPENDED, "False") and goes_on:
        yield Happening("Normal", "Resumed", "the job's pods are being created again")


def _reserves(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Happening]:
    """Yield the steps by which the amounts of replicas change."""
    known, now = (_condition(each, JobCondition.RESERVED) for each in (before, after))
    if known is None or now is None or known.get("reason") == now.get("reason"):
        return
    if now.get("status") == "True":
        roles: list[Mapping[str, Any]] = after.get("roles") or []
        each: Mapping[str, Any] = next((r["resources"] for r in roles if r.get("resources")), {})
        said = ", ".join(f"{name} {amount}" for name, amount in each.items())
        yield Happening("Normal", "Reserved", f"each replica reserves {said}")
    else:
        quiet = now.get("reason") in (Reason.RESIZING, Reason.RESTARTS)
        type: Type = "Normal" if quiet else "Warning"
        yield Happening(type, str(now.get("reason")), str(now.get("message")))


def _end(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Happening]:
    if _turned(before, after, JobCondition.COMPLETE, "True"):
        yield Happening("Normal", "Completed", _message(after, JobCondition.COMPLETE))
    if _turned(before, after, JobCondition.FAILED, "True"):
        yield Happening("Warning", "Failed", _message(after, JobCondition.FAILED))


def _turned(
    before: Mapping[str, Any], after: Mapping[str, Any], type: JobCondition, status: str
) -> bool:
    """True if a condition changed to this status; a first status False is no change."""
    known, now = _condition(before, type), _condition(after, type)
    began = "False" if known is None else known.get("status")
    return now is not None and now.get("status") == status and began != status


def _unknown_fields(status: Mapping[str, Any]) -> bool:
    found = _condition(status, JobCondition.HONOURED)
    return found is not None and found.get("reason") == Reason.UNKNOWN_FIELDS


def _holds(status: Mapping[str, Any], type: JobCondition) -> bool:
    found = _condition(status, type)
    return found is not None and found.get("status") == "True"


def _message(status: Mapping[str, Any], type: JobCondition) -> str:
    return str((_condition(status, type) or {}).get("message", ""))


def _condition(status: Mapping[str, Any], type: JobCondition) -> Mapping[str, Any] | None:
    listed = status.get("conditions") or ()
    return next((each for each in listed if each.get("type") == type), None)
