"""Changes of the rows of the list of jobs, for those who keep the list: ``event: jobs``."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from datetime import datetime

from brain import wire
from brain.api import views
from brain.errors import UnknownJob
from brain.ports import Clock, Transaction
from brain.settings import Settings
from brain.types.job import Job, JobId
from brain.views import JobView

_FIELDS = tuple(field.name for field in fields(JobView))
#: A row has these in any case, and is told for none of them alone: the first two name it, the
#: others move as time passes, and those who keep a row can count on by themselves.
_ALWAYS = frozenset({"id", "version", "telemetry_age_seconds", "ends_at"})


class JobRows:
    """The rows as streams were told of them; in one thread at a time."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._told: dict[JobId, JobView] = {}

    def forget(self) -> None:
        """Begin anew: every row is told whole again."""
        self._told.clear()

    def changes(self, tx: Transaction, ids: Iterable[str] | None) -> bytes:
        """Return the frame that tells how the rows of these jobs differ from what was told.

        Without ``ids`` all unfinished jobs are looked at. Empty if nothing differs.
        """
        now = self._clock()
        changed = [one for job in _jobs(tx, ids) if (one := self._change(tx, job, now)) is not None]
        if not changed:
            return b""
        return b"event: jobs\ndata: " + wire.encode({"at": now, "jobs": changed}) + b"\n\n"

    def _change(self, tx: Transaction, job: Job, now: datetime) -> dict[str, object] | None:
        row, known = views.job(tx, job, self._settings, now), self._told.get(job.id)
        changed = change(known, row)
        if job.finished:
            # It may change once more, and is told whole then.
            self._told.pop(job.id, None)
        elif changed is not None:
            self._told[job.id] = row
        return changed


def change(known: JobView | None, row: JobView) -> dict[str, object] | None:
    """Return the fields of a row that differ from what is known; None if nothing was news."""
    differ = {
        name: value
        for name in _FIELDS
        if known is None or name in _ALWAYS or getattr(known, name) != getattr(row, name)
        for value in (getattr(row, name),)
    }
    return differ if differ.keys() - _ALWAYS else None


def _jobs(tx: Transaction, ids: Iterable[str] | None) -> Iterable[Job]:
    if ids is None:
        for pool in tx.jobs.pools():
            yield from tx.jobs.unfinished(pool)
        return
    for id in sorted(ids):
        with suppress(UnknownJob):
            yield tx.jobs.get(id)
