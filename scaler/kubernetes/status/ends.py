"""The end of a job: its deadline, the time of its end, and the condition with the reason."""

from datetime import datetime, timedelta

from brain.types.job import FINISHED, JobState
from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, JobCondition, Reason
from scaler.kubernetes.runtime.status import StatusCondition
from scaler.kubernetes.status.conditions import condition_of


def over(job: ElasticJob) -> bool:
    """True if the job has ended: its phase is final, and its status has an end time.

    The phase alone proves nothing, because a job that was refused also has the phase Failed.
    """
    return job.status.phase in FINISHED and job.status.completion_time is not None


def deadline_of(job: ElasticJob) -> datetime | None:
    """Return the time until which a job may be active; None if it has no limit, or is not active
    yet.
    """
    seconds, began = job.spec.active_deadline_seconds, job.status.start_time
    return None if seconds is None or began is None else began + timedelta(seconds=seconds)


def noted_at(job: ElasticJob, now: datetime) -> datetime:
    """Return when the status first told the job's end; ``now`` if it does not tell it yet.

    The time in Brain's view is of Brain's clock, which may differ from the API server's.
    """
    ends = (JobCondition.COMPLETE, JobCondition.FAILED)
    for each in job.status.conditions if over(job) else ():
        if each.type in ends and each.status == "True" and each.last_transition_time is not None:
            return each.last_transition_time
    return now


def seconds_until(at: datetime | None, now: datetime) -> float | None:
    """Return seconds until a future time; None if the time is past, or there is none."""
    left = (at - now).total_seconds() if at is not None else 0.0
    return left if left > 0 else None


def ended(job: ElasticJob, view: JobView, now: datetime) -> list[StatusCondition]:
    """Return both conditions, Complete and Failed.

    So a client that waits for one of the conditions notices if the other one becomes True.
    """
    done = view.state is JobState.SUCCEEDED
    why = Reason.CANCELLED if view.state is JobState.CANCELLED else Reason.EXIT_CODE
    until = deadline_of(job)
    if why is Reason.CANCELLED and until is not None and until <= noted_at(job, now):
        why = Reason.DEADLINE
    reason = Reason.SUCCEEDED if done else why
    return [
        condition_of(JobCondition.COMPLETE, done, reason, view.reason),
        condition_of(JobCondition.FAILED, not done, reason, view.reason),
    ]
