"""Builds an ElasticJob's status from the job's pods and Brain's view of the job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from brain.types.job import FINISHED, Intent, JobDocument, JobState, ObjectCondition
from brain.types.plan import ACTIVE
from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, JobCondition, Reason
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.command import ContainerEntry, read_command
from scaler.kubernetes.pods.failures import stuck, unschedulable
from scaler.kubernetes.pods.sight import succeeded
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.kubernetes.runtime.status import StatusCondition, conditions, instant, read_instant
from scaler.kubernetes.status.conditions import accepted, condition_of
from scaler.kubernetes.status.ends import ended
from scaler.kubernetes.status.roles import alive, is_ready, role_of, roles, stays

#: Conditions that Brain's own state implies.
_OF_BRAIN = frozenset(
    {
        JobCondition.RUNNING,
        JobCondition.SCALING,
        JobCondition.DEGRADED,
        JobCondition.SUSPENDED,
        JobCondition.COMPLETE,
        JobCondition.FAILED,
        JobCondition.RECONCILING,
        JobCondition.STALLED,
    }
)
#: Reasons why a job has no pods with nodes although nothing is wrong.
_IDLE = frozenset({Reason.PODS_MISSING, Reason.STARTING, Reason.SUSPENDED, Reason.ENDED})
#: Conditions that show the progress of a job.
_ON_THE_WAY = (JobCondition.SCHEDULED, JobCondition.RECONCILING)
#: Conditions that a job may meet later, as it is.
_WAITS = (JobCondition.FEASIBLE, JobCondition.SCHEDULED, JobCondition.ADMITTED)
_STATUS = {"True": True, "False": False}
#: Phases that a refusal of the object does not replace.
_BEGUN = frozenset(JobState) - {JobState.QUEUED, JobState.FAILED}
_TRAINS = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of one reconcile of a job."""

    #: Why the job cannot be used; the status then has only the known conditions.
    conditions: tuple[StatusCondition, ...] = ()
    request: Mapping[str, Any] | None = None
    #: Name of the active ScalePlan.
    plan: str = ""
    #: Number of pods that begin together.
    least: int = 1
    #: Why pods wait, or what went wrong; empty if neither.
    message: str = ""
    phase: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def status(
    obj: Object,
    job: ElasticJob,
    view: JobView | None,
    pods: Sequence[Object],
    found: Findings,
    now: datetime,
) -> dict[str, Any]:
    """Return the complete status; fields that another controller wrote stay."""
    known: Mapping[str, Any] = obj.get("status") or {}
    generation = int(obj["metadata"].get("generation") or 1)
    mine = [pod for pod in pods if role_of(pod) == job.scaled]
    ready = sum(map(is_ready, mine))
    ends = any(map(succeeded, mine))
    halted = _was_suspended(known)
    state = _from_brain(job, view, ready, ends, halted, now) if view else _unheard(known)
    said = (*state, _scheduled(job, view, pods, found), *found.conditions)
    result: dict[str, Any] = {
        **known,
        "observedGeneration": generation,
        "conditions": conditions(known.get("conditions"), said, generation=generation, now=now),
        "replicas": sum(alive(pod) for pod in mine),
        "readyReplicas": ready,
        "selector": _selector(job),
        "roles": roles(job, view, pods, known),
        "phase": found.phase or (str(view.state) if view else known.get("phase") or "Pending"),
        "message": found.message or (view.reason if view else known.get("message") or ""),
        "scalePlan": found.plan,
        **found.extra,
    }
    if found.request is not None:
        result["request"] = dict(found.request)
    if view is not None:
        result |= _of_view(view, known, now)
    return {name: value for name, value in result.items() if value not in (None, "")}


def passing(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """True if two statuses differ only in counts and progress, which change often while pods start.

    Such a change may be written together with later changes; every other change is written
    immediately.
    """
    same = all(before.get(name) == after.get(name) for name in ("request", "scalePlan", "restarts"))
    return same and _lasting(before) == _lasting(after)


def _lasting(status: Mapping[str, Any]) -> dict[str, str]:
    listed = status.get("conditions") or ()
    return {each["type"]: each["status"] for each in listed if each["type"] not in _ON_THE_WAY}


def refused(obj: Object, condition: StatusCondition, now: datetime) -> dict[str, Any]:
    """Return the status of an object that cannot be used: the earlier status, and the reason."""
    known: Mapping[str, Any] = obj.get("status") or {}
    generation = int(obj["metadata"].get("generation") or 1)
    wrong = condition.type == JobCondition.ACCEPTED and condition.reason != Reason.NOT_OURS
    stalled = wrong or condition.reason == Reason.NEVER_FITS
    waits = condition.type in _WAITS
    for_tools = _for_tools(waits, stalled, condition.reason, condition.message)
    listed = [condition, *for_tools]
    said = conditions(known.get("conditions"), listed, generation=generation, now=now)
    begun = known.get("generation") is not None or known.get("phase") in _BEGUN
    phase = {} if begun else {"phase": "Queued" if waits else "Failed"}
    return {
        **known,
        **phase,
        "observedGeneration": generation,
        "conditions": said,
        "message": condition.message,
    }


def advised(
    obj: Object, taken: StatusCondition, view: JobView | None, now: datetime
) -> dict[str, Any]:
    """Return the status of a job that DLRover runs; this operator writes only conditions."""
    known: Mapping[str, Any] = obj.get("status") or {}
    generation = int(obj["metadata"].get("generation") or 1)
    runs = "DLRover's own master runs this job, so Brain only shows plans, and does not apply them"
    if taken.status:
        taken = accepted(True, Reason.ADVISE_ONLY, runs)
    plan = active_plan(view)
    return {
        **known,
        "observedGeneration": generation,
        "conditions": conditions(known.get("conditions"), [taken], generation=generation, now=now),
        **({"scalePlan": plan} if plan else {}),
    }


def beside_state(listed: Iterable[Mapping[str, Any]]) -> tuple[ObjectCondition, ...]:
    """Return the conditions that Brain cannot derive by itself, in the form in which Brain gets
    them.
    """
    return tuple(
        ObjectCondition(
            type=str(one["type"]),
            status=_STATUS.get(str(one.get("status"))),
            reason=str(one.get("reason") or ""),
            message=str(one.get("message") or ""),
            since=since,
        )
        for one in listed
        if one.get("type") not in _OF_BRAIN
        and not (one.get("type") == JobCondition.SCHEDULED and one.get("reason") in _IDLE)
        and (since := read_instant(one.get("lastTransitionTime"))) is not None
    )


def _of_view(view: JobView, known: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    began = known.get("startTime")
    if began is None and view.state in _TRAINS:
        # Deadlines count from this time, so it is of the clock that measures them.
        began = instant(now)
    elif view.state is JobState.SUSPENDED:
        # As in batch/Job: the time until a deadline begins anew.
        began = None
    return {
        "generation": view.generation,
        "worldEpoch": view.epoch,
        "restarts": view.failures,
        "startTime": began,
        "completionTime": instant(view.finished_at) if view.finished_at else None,
    }


def _unheard(known: Mapping[str, Any]) -> list[StatusCondition]:
    """Return the conditions for tools while Brain is away: the job waits, and is not stalled."""
    for each in known.get("conditions") or ():
        if (each.get("type"), each.get("status")) == (JobCondition.STALLED, "False"):
            return []
    return _for_tools(True, False, Reason.STARTING, "")


def _from_brain(
    job: ElasticJob, view: JobView, ready: int, ends: bool, was_suspended: bool, now: datetime
) -> list[StatusCondition]:
    """Return the conditions of Brain's state, as far as the ready pods confirm them.

    ``ends``: True if a pod has succeeded, so that pods need not be ready.
    """
    reason, plan = view.reason, view.plan
    up = view.state in _TRAINS
    trains = up and view.replicas > 0 and ready > 0
    moving = plan is not None and plan.state in ACTIVE and view.state is JobState.CHANGING
    # While a plan changes the size, only the replicas from before have to be ready.
    due = min(view.replicas_wished, view.replicas) if moving else view.replicas_wished
    short = up and view.intent is Intent.RUN and ready < due and not ends
    degraded = short or view.state is JobState.DEGRADED
    counted = f"{ready} of {view.replicas_wished} replicas are ready: {reason}"
    why = Reason.WORLD_FORMED if trains else Reason.HEALING if up else _why_not(view.state)
    found = [
        condition_of(JobCondition.RUNNING, trains, why, reason),
        condition_of(
            JobCondition.SCALING, moving, Reason.APPLYING if moving else Reason.FULL, reason
        ),
        condition_of(
            JobCondition.DEGRADED,
            degraded,
            Reason.HEALING if degraded else Reason.FULL,
            counted if degraded else reason,
        ),
        _suspended(view, was_suspended),
    ]
    still = trains or view.state in (*FINISHED, JobState.SUSPENDED)
    settled = still and not degraded and not moving
    broken = view.state in (JobState.FAILED, JobState.CANCELLED)
    found += _for_tools(not settled, broken, why, reason)
    if view.state in FINISHED:
        found += ended(job, view, now)
    return found


def _suspended(view: JobView, was_suspended: bool) -> StatusCondition:
    still = view.state is JobState.SUSPENDED
    if still or (view.intent is Intent.SUSPEND and view.state not in FINISHED):
        return condition_of(JobCondition.SUSPENDED, still, Reason.SUSPENDED, view.reason)
    reason = Reason.RESUMED if was_suspended else Reason.NOT_SUSPENDED
    return condition_of(JobCondition.SUSPENDED, False, reason, "")


def _was_suspended(known: Mapping[str, Any]) -> bool:
    """True if the job's status says that it was suspended."""
    for each in known.get("conditions") or ():
        if each.get("type") == JobCondition.SUSPENDED:
            return each.get("reason") in (Reason.SUSPENDED, Reason.RESUMED)
    return False


def _for_tools(moves: bool, stalled: bool, reason: str, message: str) -> list[StatusCondition]:
    """Return the conditions that tell kstatus to wait, or to give up."""
    found = (JobCondition.RECONCILING, moves and not stalled), (JobCondition.STALLED, stalled)
    return [
        StatusCondition(type=type, status=status, reason=reason, message=message if status else "")
        for type, status in found
    ]


def _why_not(state: JobState) -> Reason:
    if state in FINISHED:
        return Reason.ENDED
    return Reason.SUSPENDED if state is JobState.SUSPENDED else Reason.STARTING


def _scheduled(
    job: ElasticJob, view: JobView | None, pods: Sequence[Object], found: Findings
) -> StatusCondition:
    """Return the condition of the gang's resources: held, or the obstacle."""
    type, living = JobCondition.SCHEDULED, [pod for pod in pods if stays(pod)]
    for pod in living:
        if why := stuck(pod):
            message = f"pod {pod['metadata']['name']} cannot start: {why}; fix the pod template"
            return condition_of(type, False, Reason.IMAGE, message)
    for pod in living:
        if why := unschedulable(pod):
            message = f"pod {pod['metadata']['name']} waits for a node: {why}"
            return condition_of(type, False, Reason.WAITING, message)
    if not living:
        return condition_of(type, False, _why_no_pods(view), "the job has no pods")
    placed = sum(bool((pod.get("spec") or {}).get("nodeName")) for pod in living)
    mine = sum(role_of(pod) == job.scaled for pod in living)
    if placed < len(living):
        message = f"{placed} of {len(living)} pods have nodes"
        reason = Reason.WAITING if found.message else Reason.STARTING
        return condition_of(type, False, reason, found.message or message)
    if mine < found.least:
        message = f"{mine} of the {found.least} pods that must start together exist"
        return condition_of(type, False, Reason.PODS_MISSING, message)
    return condition_of(type, True, Reason.ADMITTED, f"{len(living)} pods have nodes")


def _why_no_pods(view: JobView | None) -> Reason:
    if view is None or view.state not in (*FINISHED, JobState.SUSPENDED):
        return Reason.PODS_MISSING
    return Reason.ENDED if view.state in FINISHED else Reason.SUSPENDED


def _selector(job: ElasticJob) -> str:
    chosen = identity.selector(job.metadata.name) | {identity.TYPE: job.scaled}
    return ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))


def told_size(document: JobDocument) -> bool:
    """True if each pod gets the number of the job's pods when it starts, so a new number restarts
    all pods.

    This is False for torchrun, whose agents do not get the number.
    """
    return read_command(document.command).entry is not ContainerEntry.TORCHRUN


def wants_more(view: JobView, mine: Sequence[Object]) -> bool:
    """True if the job should have more pods than live now. If False, an earlier refusal of a pod no
    longer matters.
    """
    runs = view.state not in FINISHED and view.intent is Intent.RUN
    return runs and sum(alive(pod) for pod in mine) < view.replicas_wished


def suspended_here(obj: Object) -> bool:
    """True if the object's queue, or an earlier edit of the object, requested the present
    suspension.
    """
    for each in (obj.get("status") or {}).get("conditions") or ():
        if (each.get("type"), each.get("reason")) == (JobCondition.ADMITTED, Reason.QUEUED):
            return True
        if (each.get("type"), each.get("reason")) == (JobCondition.SUSPENDED, Reason.SUSPENDED):
            edited = int(obj["metadata"].get("generation") or 1)
            return int(each.get("observedGeneration") or 0) < edited
    return False


def active_plan(view: JobView | None) -> str:
    """Return the name of the active plan's object."""
    if view is None or view.plan is None or not view.plan.active:
        return ""
    return f"{view.name}-plan-{view.plan.generation}"


def request_key(obj: Object) -> str:
    """Return the idempotency key of a request from an object: its uid and its
    ``metadata.generation``.
    """
    return f"{obj['metadata']['uid']}.{obj['metadata'].get('generation', 1)}"
