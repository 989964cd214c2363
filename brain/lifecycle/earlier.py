"""What earlier runs of a job's script measured, handed to it when it is submitted or starts."""

from datetime import datetime

from brain import wire
from brain.lifecycle.sight import RUNS, points
from brain.models.earlier import EarlierRun, earlier_run
from brain.models.estimate.past import script_of
from brain.ports import StoredFit, Transaction
from brain.types.job import Job

#: Newest jobs that are looked through, and runs of the script that are heard.
_ASKED, _HEARD = 200, 6


def inherit(tx: Transaction, job: Job, now: datetime) -> None:
    """Keep what the newest runs of the same script measured; those that still run count, too."""
    mine, found = script_of(job.document, job.owner), list[EarlierRun]()
    for other in tx.jobs.page(after=None, size=_ASKED):
        if len(found) == _HEARD:
            break
        if other.id != job.id and mine.runs_again(script_of(other.document, other.owner)):
            seen, batch = points(tx, other), other.document.batch.global_size
            if seen:
                found.append(earlier_run(other.id, other.document.name, seen, batch))
    if found:
        kept = wire.encode(found).decode()
        tx.fits.put(StoredFit(job=job.id, kind=RUNS, parameters=kept, fitted_at=now))
