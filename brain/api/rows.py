"""Builds the frames ``event: jobs``, which send changed rows of the list of jobs to clients."""

from collections.abc import Collection, Sequence
from dataclasses import fields

from brain import wire
from brain.api import views
from brain.ports import Clock, Transaction
from brain.settings import Settings
from brain.types.job import Job, JobId
from brain.views import JobView

_FIELDS = tuple(field.name for field in fields(JobView))
#: Fields of every row that is sent. A change of only these fields sends no row: the first two
#: identify the row, and clients compute the other two by their own clocks.
_ALWAYS = frozenset({"id", "version", "telemetry_age_seconds", "ends_at"})
#: Fields that are stored with the job; all are sent if the job's version has changed. Between two
#: frames a value may change and change back, and a client may read the list in between.
_STORED = frozenset(
    {
        *("state", "reason", "intent", "mode", "optimize_mode", "advise_only"),
        *("failures", "exit_code", "updated_at", "finished_at"),
        *("replicas_min", "replicas_max", "resources"),
    }
)


class JobRows:
    """The rows of the list of jobs, as the last frames sent them; used by one thread at a time."""

    def __init__(self, settings: Settings, clock: Clock, sparklines: views.Sparklines) -> None:
        self._settings, self._clock, self._sparklines = settings, clock, sparklines
        self._told: dict[JobId, JobView] = {}

    def forget(self) -> None:
        """Forget all rows, so that the next frames contain complete rows."""
        self._told.clear()

    def changes(self, tx: Transaction, ids: Collection[str], *, unfinished: bool) -> bytes:
        """Return a server-sent frame with the fields of these jobs' rows that changed since the
        last frame.

        With ``unfinished``, all unfinished jobs are checked, too. The result is empty if no row
        changed.
        """
        now = self._clock()
        rows = views.jobs(
            tx, _jobs(tx, ids, unfinished=unfinished), self._settings, now, self._sparklines
        )
        changed = [one for row in rows if (one := self._change(row)) is not None]
        if not changed:
            return b""
        return b"event: jobs\ndata: " + wire.encode({"at": now, "jobs": changed}) + b"\n\n"

    def _change(self, row: JobView) -> dict[str, object] | None:
        changed = change(self._told.get(row.id), row)
        if row.finished_at is not None:
            # If the row changes once more, it is sent in full.
            self._told.pop(row.id, None)
        elif changed is not None:
            self._told[row.id] = row
        return changed


def change(known: JobView | None, row: JobView) -> dict[str, object] | None:
    """Return the fields of ``row`` to send to a client that has the row ``known``; None if nothing
    has to be sent.

    These are the fields that differ or may differ, together with the fields of ``_ALWAYS``.
    """
    told = _ALWAYS if known is None or known.version == row.version else _ALWAYS | _STORED
    differ = {
        name: value
        for name in _FIELDS
        for value in (getattr(row, name),)
        if known is None or name in told or getattr(known, name) != value
    }
    return differ if differ.keys() - _ALWAYS else None


def _jobs(tx: Transaction, ids: Collection[str], *, unfinished: bool) -> Sequence[Job]:
    others = tx.jobs.unfinished() if unfinished else ()
    named = sorted(tx.jobs.known(set(ids) - {job.id for job in others}))
    tx.jobs.read_ahead(named)
    return [*others, *(tx.jobs.get(id) for id in named)]
