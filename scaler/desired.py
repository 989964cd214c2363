"""The last desired state from Brain, stored on disk so that the scaler can heal jobs without
Brain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from brain.types.job import JobId
from brain.views import DesiredJob, DesiredPool
from scaler.files import read_json, write_json
from scaler.reconcile import Order


@dataclass(frozen=True, kw_only=True)
class DesiredJobs:
    """The desired state of jobs as Brain last sent it, and the time of its last confirmation."""

    pool: DesiredPool
    confirmed_at: datetime
    #: Time at which each job's present desired state was first seen.
    since: Mapping[JobId, datetime] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        """Return the version to send with the next request, so that Brain answers only if something
        has changed.
        """
        return self.pool.version

    @cached_property
    def jobs(self) -> Mapping[JobId, DesiredJob]:
        """Return the desired state of each unfinished job."""
        return {wish.job: wish for wish in self.pool.jobs}

    def order(self, job: JobId) -> Order:
        """Return the ``Order`` for a job, which ``reconcile.decide`` takes; the job must have a
        desired state.
        """
        since = self.since.get(job, self.confirmed_at)
        return Order(wish=self.jobs[job], since=since, confirmed_at=self.confirmed_at)


def answered(
    known: DesiredJobs | None, answer: DesiredPool | None, now: datetime
) -> DesiredJobs | None:
    """Return the desired jobs after Brain's answer; an answer of None confirms the known jobs.

    A desired job that did not change is the same Python object as before.
    """
    if answer is None:
        return known and replace(known, confirmed_at=now)
    before, since = known.jobs if known else {}, known.since if known else {}
    kept = {wish.job: before[wish.job] for wish in answer.jobs if before.get(wish.job) == wish}
    return DesiredJobs(
        pool=replace(answer, jobs=tuple(kept.get(wish.job, wish) for wish in answer.jobs)),
        confirmed_at=now,
        since={w.job: since.get(w.job, now) if w.job in kept else now for w in answer.jobs},
    )


class WishFile:
    """The file ``$BRAIN_HOME/wishes.json``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> DesiredJobs | None:
        """Read the desired jobs that were stored last; None if there is no readable file."""
        return read_json(self._path, DesiredJobs)

    def keep(self, wishes: DesiredJobs) -> None:
        """Write the file atomically."""
        write_json(self._path, wishes)
