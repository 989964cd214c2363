"""Conditions of an ElasticJob that its object and the cluster give, whatever Brain says. Pure."""

from collections.abc import Iterator

from scaler.kubernetes.kinds import BatchScheduler, ElasticJob, JobCondition, Reason
from scaler.kubernetes.kinds.documents import unserved
from scaler.kubernetes.pods.failures import over_quota
from scaler.kubernetes.pods.orders import Installation, elastic, opaque
from scaler.kubernetes.runtime.cluster.connection import unknown_pod_fields
from scaler.kubernetes.runtime.cluster.errors import denial
from scaler.kubernetes.runtime.status import Condition


def condition_of(
    type: JobCondition, status: bool | None, reason: Reason, message: str
) -> Condition:
    """Return a condition whose status is True, False or, by None, unknown."""
    return Condition(type=type, status=status, reason=reason, message=message)


def honoured(job: ElasticJob, house: Installation) -> list[Condition]:
    """Return the conditions about requests of the spec that are not met, and about measurement."""
    unknown = list(misspelt(job))
    missing = [*unknown, *unserved(job, house.brain_url or "")]
    if not elastic(job, house):
        missing.append("its size is fixed: no agent of ours runs its command")
    wanted = job.spec.replica_specs[job.scaled].batch_scheduler
    if wanted is BatchScheduler.VOLCANO and not house.volcano:
        missing.append("BatchScheduler volcano is not installed: scheduling gates admit the gang")
    if opaque(job):
        missing.append(
            "nothing is to be seen of what its image starts, so both forms of environment are "
            "set; give the container a command"
        )
    type, text = JobCondition.HONOURED, "; ".join(missing)
    honoured = Condition(type=type, status=True, reason=Reason.SERVED)
    if missing:
        reason = Reason.UNKNOWN_FIELDS if unknown else Reason.IGNORED
        honoured = Condition(type=type, status=False, reason=reason, message=text)
    node_only = not elastic(job, house)
    telemetry = Condition(
        type=JobCondition.TELEMETRY,
        status=not node_only,
        reason=Reason.NODE_ONLY if node_only else Reason.FULL,
        message="only its nodes are measured, no steps are seen" if node_only else "",
    )
    return [honoured, telemetry]


def misspelt(job: ElasticJob) -> Iterator[str]:
    """Fields of templates that the API server would drop from pods without a word."""
    for role, spec in job.spec.replica_specs.items():
        path = f"spec.replicaSpecs.{role}.template.spec"
        for where, near in unknown_pod_fields((spec.template or {}).get("spec") or {}, path):
            remedy = f"did you mean {near}?" if near else "correct or remove it"
            yield f"{where} is no field of pods that is known here; {remedy}"


def uncontested() -> Condition:
    """Nobody else acts on the job's replicas."""
    return condition_of(JobCondition.CONFLICT, False, Reason.ALONE, "")


def accepted(
    status: bool | None = True, reason: Reason = Reason.VALID, message: str = ""
) -> Condition:
    """Return the condition about the object itself: usable, or not, and why."""
    return Condition(type=JobCondition.ACCEPTED, status=status, reason=reason, message=message)


def feasible(never: str | None) -> Condition:
    """Return the condition about room; ``never`` says why no node ever has it, None: some may."""
    return Condition(
        type=JobCondition.FEASIBLE,
        status=never is None,
        reason=Reason.FITS if never is None else Reason.NEVER_FITS,
        message=never or "",
    )


def held_up(refusal: str) -> Condition:
    """Return the condition for a job that the API server refuses: by a quota, or otherwise.

    A quota may be too small ever to hold the job.
    """
    if (denied := denial(refusal)) is not None:
        message = (
            f"{denied}; it is tried again, ever more seldom: do as it says, or have it changed"
        )
        return condition_of(JobCondition.SCHEDULED, False, Reason.DENIED, message)
    quota = over_quota(refusal)
    if quota is None:
        return condition_of(JobCondition.SCHEDULED, False, Reason.FORBIDDEN, refusal)
    type = JobCondition.FEASIBLE if quota.never else JobCondition.SCHEDULED
    return condition_of(type, False, Reason.NO_QUOTA, quota.message)


def let_go(message: str) -> Condition:
    """A gang that was not whole holds nothing any more."""
    return condition_of(JobCondition.SCHEDULED, False, Reason.LET_GO, message)
