"""Batches that scripts are asked to take: chosen, stored, part of the wish.

Only for jobs that ask (``batch.tune``), and only where Brain may act by itself. It is no plan: the
size stays, nothing restarts, and a script that does not follow is left alone.
"""

from datetime import datetime

from brain import wire
from brain.lifecycle.records import BRAIN, acted, happened
from brain.lifecycle.wishes import BATCH, AskedBatch, asked_batch, frozen, wished_batch
from brain.optimizer.batches import choose_batch
from brain.optimizer.situation import Situation
from brain.ports import StoredFit, Transaction
from brain.types.job import Job


def tune(tx: Transaction, job: Job, situation: Situation, now: datetime) -> bool:
    """Ask the script for another batch where that pays or teaches; whether anything was asked."""
    if not job.document.tunes or frozen(tx, job):
        return False
    chosen = asked_batch(tx, job)
    trying = chosen is not None and chosen.trial is not None
    choice = choose_batch(situation, wished_batch(tx, job), trying=trying)
    if choice is None:
        return False
    asked = AskedBatch(wish=choice.wish, at=now, reason=choice.reason, trial=choice.trial)
    parameters = wire.encode(asked).decode()
    tx.fits.put(StoredFit(job=job.id, kind=BATCH, parameters=parameters, fitted_at=now))
    # The wish is another now, so its version is, too.
    tx.jobs.put(job)
    happened(tx, "batch.asked", choice.reason, job=job.id, now=now)
    acted(tx, BRAIN, "batch.asked", f"job/{job.id}", now=now, why=choice.reason)
    return True
