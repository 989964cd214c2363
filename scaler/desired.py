"""The last wishes that Brain gave, kept on disk: with them the scaler heals while Brain is away."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from brain.types.job import JobId
from brain.views import DesiredJob, DesiredPool
from scaler.files import read_json, write_json
from scaler.reconcile import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredJobs:
    """The wishes that Brain last sent, and the time it last confirmed them."""

    pool: DesiredPool
    confirmed_at: datetime
    #: When each job's wish was first seen as it is.
    since: Mapping[JobId, datetime] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        """Version to send when asking for newer wishes."""
        return self.pool.version

    @property
    def jobs(self) -> Mapping[JobId, DesiredJob]:
        """The wish of each unfinished job."""
        return {wish.job: wish for wish in self.pool.jobs}

    def order(self, job: JobId) -> Order:
        """Return the order for a job that has a wish."""
        since = self.since.get(job, self.confirmed_at)
        return Order(wish=self.jobs[job], since=since, confirmed_at=self.confirmed_at)


def answered(
    known: DesiredJobs | None, answer: DesiredPool | None, now: datetime
) -> DesiredJobs | None:
    """Return the wishes after an answer of Brain; None as an answer repeats what is known."""
    if answer is None:
        return known and replace(known, confirmed_at=now)
    before = known.jobs if known else {}
    since = {
        wish.job: known.since.get(wish.job, now) if known and before.get(wish.job) == wish else now
        for wish in answer.jobs
    }
    return DesiredJobs(pool=answer, confirmed_at=now, since=since)


class WishFile:
    """``$BRAIN_HOME/wishes.json``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> DesiredJobs | None:
        """Read the wishes that were last kept; None where nothing readable was."""
        return read_json(self._path, DesiredJobs)

    def keep(self, wishes: DesiredJobs) -> None:
        """Write it; whole or not at all."""
        write_json(self._path, wishes)
