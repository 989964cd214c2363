"""The finding of a job when a bug prevents Brain from deciding about it."""

from datetime import datetime

from brain import lifecycle
from brain.errors import Unavailable
from brain.optimizer.guards import Hold
from brain.ports import Stores, Transaction
from brain.types.explanation import Explanation
from brain.types.job import Job, JobId
from brain.types.recommendation import Recommendation
from brain.types.record import Event

#: Code of the hold.
CODE = "undecided"
#: Characters of a bug's message that people are shown; the log has the whole message.
_MOST = 200


def hold(bug: Exception) -> Hold:
    """Return a hold for a job if deciding about the job raised ``bug``."""
    said = f"{type(bug).__name__}: {bug}"[:_MOST]
    return Hold(
        code=CODE,
        reason=f"Brain failed while deciding about this job: {said}",
        short="Brain failed while deciding about this job",
        next_step="The job goes on as it is, and Brain tries again every turn; the service's log "
        "has the traceback to report.",
    )


def undecided(stores: Stores, id: JobId, bug: Exception, now: datetime) -> None:
    """Store the finding that Brain cannot decide about a job, with the reason.

    Raises:
        Unavailable: the stores cannot be reached.
    """
    try:
        with stores.transaction() as tx:
            _keep(tx, tx.jobs.get(id), hold(bug), now)
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 - the job's stored rows may cause the bug; it is logged
        return


def _keep(tx: Transaction, job: Job, why: Hold, now: datetime) -> None:
    last = tx.plans.decision(job.id)
    _, current = lifecycle.standing(tx.plans.effective(job.id), job)
    explanation = Explanation(code=why.code, reason=why.reason, next_step=why.next_step)
    found = Recommendation(current=current, target=current, explanation=explanation, decided_at=now)
    tx.plans.decide(job.id, found)
    if last is None or last.explanation.code != why.code:
        data = {"code": why.code}
        tx.events.add(Event(at=now, kind="hold", job=job.id, message=why.reason, data=data))
