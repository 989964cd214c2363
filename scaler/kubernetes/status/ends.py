"""The end of a job: when it is due, whether it was, and what it is called."""

from datetime import datetime, timedelta

from brain.types.job import FINISHED, JobState
from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, JobCondition, Reason
from scaler.kubernetes.runtime.status import StatusCondition
from scaler.kubernetes.status.conditions import condition_of

#: How far Brain's clock, by which a job ended, may be behind ours, by which that was due.
_CLOCKS = timedelta(seconds=5)


def over(job: ElasticJob) -> bool:
    """True if its status says when it ended; a phase alone may be that of a refusal."""
    return job.status.phase in FINISHED and job.status.completion_time is not None


def deadline_of(job: ElasticJob) -> datetime | None:
    """Time until which a job may be active; None: it may for ever, or is not active yet."""
    seconds, began = job.spec.active_deadline_seconds, job.status.start_time
    return None if seconds is None or began is None else began + timedelta(seconds=seconds)


def seconds_until(at: datetime | None, now: datetime) -> float | None:
    """Seconds until a time that is still to come; None: it is over, or there is none."""
    left = (at - now).total_seconds() if at is not None else 0.0
    return left if left > 0 else None


def ended(job: ElasticJob, view: JobView) -> list[StatusCondition]:
    """Both, so that whoever waits for one learns that it was the other."""
    done = view.state is JobState.SUCCEEDED
    why = Reason.CANCELLED if view.state is JobState.CANCELLED else Reason.EXIT_CODE
    until, at = deadline_of(job), view.finished_at
    if why is Reason.CANCELLED and until is not None and at is not None and until <= at + _CLOCKS:
        why = Reason.DEADLINE
    reason = Reason.SUCCEEDED if done else why
    return [
        condition_of(JobCondition.COMPLETE, done, reason, view.reason),
        condition_of(JobCondition.FAILED, not done, reason, view.reason),
    ]
