"""Measurements of other runs of a script, given to a job when it is submitted, when it starts, and
every few minutes while it runs.
"""

from collections.abc import Mapping
from datetime import datetime

from brain import wire
from brain.errors import Unavailable, Undetermined
from brain.lifecycle import work
from brain.lifecycle.observed import KIND, RUNS, points
from brain.models.earlier import EarlierRun, earlier_run
from brain.models.estimate.past import script_of
from brain.models.job_fit import fit
from brain.models.remaining import Finished
from brain.models.terms import terms_of
from brain.ports import StoredFit, Transaction
from brain.types.job import Job, JobId
from brain.types.resources import PoolName

#: Newest jobs that are searched for runs of the script; runs whose measurements are used, and runs
#: whose ends are used.
_ASKED, _HEARD, _ENDED = 200, 6, 10
#: Seconds between updates of a running job with the measurements of other runs.
_AGAIN_SECONDS = 300.0


def hear(tx: Transaction, job: Job, now: datetime) -> None:
    """Every few minutes, give a job the new measurements of other runs of its script."""
    heard = tx.fits.get(job.id, RUNS)
    if heard and (now - heard.fitted_at).total_seconds() >= _AGAIN_SECONDS:
        inherit(tx, job, now)


def compared(
    tx: Transaction, pool: PoolName, bugs: list[Exception]
) -> dict[JobId, Mapping[str, float]]:
    """Return, by job, the log step times of one configuration on each kind of accelerator.

    The jobs are the newest ones of a pool that ran on several kinds of accelerator; the oldest of
    these comes first. If a bug raises an exception for a job, the job is left out, and the
    exception is added to ``bugs`` with a note that names the job.
    """
    jobs = [
        job
        for job in tx.jobs.fitted(KIND, among=_ASKED)
        # A size says little about the speed of replicas that differ.
        if job.pool == pool and not job.document.groups
    ]
    tx.fits.read_ahead([job.id for job in jobs], KIND)
    found = dict[JobId, Mapping[str, float]]()
    for job in reversed(jobs):
        try:
            if ratios := _ratios(tx, job):
                found[job.id] = ratios
        except Unavailable:
            raise
        except Exception as bug:  # noqa: BLE001 - a bug with one job must not end deciding for others
            bug.add_note(f"job {job.id} is left out of the comparison of the pool's accelerators")
            bugs.append(bug)
    return found


def _ratios(tx: Transaction, job: Job) -> Mapping[str, float]:
    """Return a job's log step times on each kind of accelerator; empty if it had only one kind, or
    cannot be fitted.
    """
    seen = points(tx, job)
    if len({point.accelerator for point in seen}) < 2:
        return {}
    try:
        return fit(seen[-1], seen[:-1], terms=terms_of(job.document)).times.ratios
    except Undetermined:
        return {}


def inherit(tx: Transaction, job: Job, now: datetime) -> None:
    """Store, with a job, the measurements and the amount of work of the newest runs of its script.

    Measurements also come from runs that have not ended; the amount of work comes only from runs
    that succeeded.
    """
    mine = script_of(job.document, job.owner)
    measured, ended = list[EarlierRun](), list[Finished]()
    runs = [
        other
        for other in tx.jobs.fitted(KIND, among=_ASKED)
        if other.id != job.id and mine.runs_again(script_of(other.document, other.owner))
    ]
    tx.fits.read_ahead([other.id for other in runs], KIND)
    for other in runs:
        # A size says little about the speed of replicas that differ.
        alike = not (job.document.groups or other.document.groups)
        if alike and len(measured) < _HEARD and (seen := points(tx, other)):
            batch = other.document.batch.global_size
            measured.append(earlier_run(other.id, other.document.name, seen, batch))
        if len(ended) < _ENDED:
            ended += work.came_to(tx, other)
        elif len(measured) == _HEARD:
            break
    for kind, found in ((RUNS, measured), (work.KIND, ended[::-1])):
        if found:
            kept = wire.encode(found).decode()
            tx.fits.put(StoredFit(job=job.id, kind=kind, parameters=kept, fitted_at=now))
