"""Conditions of an ElasticJob that follow from its object and the cluster, not from Brain's
answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from brain.views import JobView
from scaler.kubernetes.kinds import BatchScheduler, ElasticJob, JobCondition, Reason
from scaler.kubernetes.kinds.documents import unserved
from scaler.kubernetes.kinds.fields import QUEUE
from scaler.kubernetes.pods.failures import over_quota
from scaler.kubernetes.pods.orders import Installation, elastic, opaque
from scaler.kubernetes.runtime.cluster.connection import unknown_pod_fields
from scaler.kubernetes.runtime.cluster.errors import denial
from scaler.kubernetes.runtime.status import StatusCondition


def condition_of(
    type: JobCondition, status: bool | None, reason: Reason, message: str
) -> StatusCondition:
    """Return a condition whose status is True, False or, for None, unknown."""
    return StatusCondition(type=type, status=status, reason=reason, message=message)


def honoured(job: ElasticJob, house: Installation) -> list[StatusCondition]:
    """Return two conditions: if all fields of the spec have an effect, and if Brain measures the
    job.
    """
    unknown = list(misspelt(job))
    missing = [*unknown, *unserved(job, house.brain_url or "")]
    if not elastic(job, house):
        missing.append(
            "the job's size is fixed while its pods run, because Brain's agent does not run the "
            "job's command"
        )
    wanted = job.spec.replica_specs[job.scaled].batch_scheduler
    if wanted is BatchScheduler.VOLCANO and not house.volcano:
        missing.append(
            "BatchScheduler: volcano has no effect, because Volcano is not installed; the operator "
            "holds pods back by scheduling gates instead"
        )
    if QUEUE in job.metadata.labels and not house.kueue:
        missing.append(
            f"label {QUEUE} has no effect, because Kueue is not installed; the job waits in no "
            "queue"
        )
    if opaque(job):
        missing.append(
            "the operator does not know which program the container starts, so the container gets "
            "the variables of torchrun and those of a plain script; give the container a command "
            "that names the program"
        )
    type, text = JobCondition.HONOURED, "; ".join(missing)
    honoured = StatusCondition(type=type, status=True, reason=Reason.SERVED)
    if missing:
        reason = Reason.UNKNOWN_FIELDS if unknown else Reason.IGNORED
        honoured = StatusCondition(type=type, status=False, reason=reason, message=text)
    return [honoured, _telemetry(job, house)]


def _telemetry(job: ElasticJob, house: Installation) -> StatusCondition:
    type = JobCondition.TELEMETRY
    if house.brain_url is None:
        return condition_of(
            type,
            False,
            Reason.UNMEASURED,
            ("the operator runs without a Brain, so nothing is measured"),
        )
    if not elastic(job, house):
        message = (
            "Brain's agent does not run the job's command, so Brain measures only the job's nodes"
        )
        return condition_of(type, False, Reason.NODE_ONLY, message)
    return condition_of(type, True, Reason.FULL, "")


def misspelt(job: ElasticJob) -> Iterator[str]:
    """Return the fields of templates that the API server would silently drop from pods."""
    templates = {}
    for role, spec in job.spec.replica_specs.items():
        templates[role] = spec.template
        templates |= {f"{role}.groups.{name}": one.template for name, one in spec.groups.items()}
    for name, template in templates.items():
        path = f"spec.replicaSpecs.{name}.template.spec"
        for where, near in unknown_pod_fields((template or {}).get("spec") or {}, path):
            remedy = f"did you mean {near}?" if near else "correct or remove it"
            yield f"{where} is not a known pod field; {remedy}"


def contested(others: Iterable[tuple[Reason, str]]) -> StatusCondition:
    """Return the condition that says if other controllers change the same replicas.

    ``others`` has a reason and a sentence for each controller.
    """
    found = list(others)
    if not found:
        return condition_of(JobCondition.CONFLICT, False, Reason.ALONE, "")
    message = "; ".join(said for _, said in found)
    return condition_of(JobCondition.CONFLICT, True, found[0][0], message)


def size_differs(job: ElasticJob, view: JobView, request: Mapping[str, Any]) -> StatusCondition:
    """Return the condition that compares the job's size with the size in the object.

    ``request`` is the answer to the object's last edit.
    """
    type, asked = JobCondition.SIZE_DIFFERS, job.spec.replica_specs[job.scaled].replicas
    size, plan = view.replicas_wished, view.plan
    coming = plan is not None and plan.active and plan.target.replicas == asked
    answers = request.get("granted") == size or request.get("generation") == view.generation
    waits = request.get("outcome") == "waiting"
    # A job that is suspended, or has not begun, has no size to compare.
    if not size or asked in (0, size) or coming or answers or waits:
        return condition_of(type, False, Reason.AS_ASKED, "")
    there = f"spec.replicaSpecs.{job.scaled}.replicas is {asked}, but the size is {size}"
    again = (
        "`kubectl scale` to the number in the spec would change nothing; instead run "
        f"`BRAIN_PROJECT={job.metadata.namespace} brain resize {job.metadata.name} {asked}`"
    )
    if request.get("outcome") == "refused" and request.get("replicas") == asked:
        why = f"Brain refused the request: {request.get('message')}"
        return condition_of(type, True, Reason.REFUSED, f"{there}: {why}; {again} again")
    return condition_of(
        type, True, Reason.ANOTHER_PLAN, f"{there}, by plan {view.generation}; {again}"
    )


def accepted(
    status: bool | None = True, reason: Reason = Reason.VALID, message: str = ""
) -> StatusCondition:
    """Return the condition about the object itself: usable, or unusable with the reason."""
    return StatusCondition(
        type=JobCondition.ACCEPTED, status=status, reason=reason, message=message
    )


def feasible(never: str | None, *, yet: bool = False) -> StatusCondition:
    """Return the condition about capacity.

    ``never`` says why no node has enough capacity; it is None if a node may have it. ``yet`` is
    True if nodes with enough capacity may still come.
    """
    if never is None:
        return condition_of(JobCondition.FEASIBLE, True, Reason.FITS, "")
    if yet:
        return condition_of(JobCondition.FEASIBLE, None, Reason.NOT_YET, never)
    return condition_of(JobCondition.FEASIBLE, False, Reason.NEVER_FITS, never)


def resize_waits(
    request: Mapping[str, Any] | None, listed: Iterable[Mapping[str, Any]]
) -> list[StatusCondition]:
    """Return the condition about an unanswered size request, if there has been one."""
    type = JobCondition.RESIZE_WAITING
    if request is not None and request["outcome"] == "waiting":
        # The request of a job with groups has the number that Brain answered last.
        fixed = f"{request['replicas']} replicas were"
        asked = "another number of replicas was" if request.get("groups") else fixed
        message = f"{asked} requested, but the request waits: {request['message']}"
        return [condition_of(type, True, Reason.NO_BRAIN, message)]
    had = any(each.get("type") == type for each in listed)
    return [condition_of(type, False, Reason.VALID, "")] if had else []


def held_up(refusal: str) -> StatusCondition:
    """Return the condition for a job whose pods the API server refuses.

    The type of the condition is ``FEASIBLE`` if a quota is too small ever to hold the job, else
    ``SCHEDULED``.
    """
    if (denied := denial(refusal)) is not None:
        message = (
            f"{denied}; change the job as the message says, or have the rule changed; the operator "
            "tries again at growing intervals"
        )
        return condition_of(JobCondition.SCHEDULED, False, Reason.DENIED, message)
    quota = over_quota(refusal)
    if quota is None:
        return condition_of(JobCondition.SCHEDULED, False, Reason.FORBIDDEN, refusal)
    type = JobCondition.FEASIBLE if quota.never else JobCondition.SCHEDULED
    return condition_of(type, False, Reason.NO_QUOTA, quota.message)


def let_go(message: str) -> StatusCondition:
    """Return the condition for an incomplete gang that released its nodes."""
    return condition_of(JobCondition.SCHEDULED, False, Reason.LET_GO, message)


def reserved(reason: Reason, message: str) -> StatusCondition:
    """Return the condition about replicas' amounts; ``message`` says why these differ from the
    plan.
    """
    return condition_of(JobCondition.RESERVED, not message, reason, message)
