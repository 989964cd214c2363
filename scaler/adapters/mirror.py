"""Copies each job to Brain, and reports the worlds that the jobs' pods show."""

import logging
from collections.abc import Callable
from datetime import datetime

from brain import calls, wire
from brain.client import BrainClient
from brain.errors import BrainError
from brain.types.job import FINISHED, Intent, JobDocument, JobId, JobState
from brain.views import JobView
from scaler.adapters.backend import ForeignBackend
from scaler.adapters.training import Training, document
from scaler.adapters.worlds import reports
from scaler.kubernetes.brain import OperatorsBrain

log = logging.getLogger(__name__)

#: Annotation that names the job's owner.
_OWNER = "elastic.iml.github.io/owner"


class Mirror:
    """Informs Brain of each fact about a job once, and again whenever the fact changes.

    Call ``look`` repeatedly.
    """

    def __init__(
        self,
        backend: ForeignBackend,
        brain: OperatorsBrain,
        client: BrainClient,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._backend, self._brain, self._client, self._clock = backend, brain, client, clock
        self._told: dict[JobId, JobDocument] = {}
        self._refused: dict[JobId, str] = {}

    def look(self) -> None:
        """Bring every job's copy up to date, report worlds, and end jobs whose objects are gone."""
        self._brain.look()
        if not self._brain.known or self._brain.trouble:
            return
        there = {
            JobId(obj["metadata"]["uid"]): (kind, obj) for kind, obj in self._backend.objects()
        }
        for job, (kind, obj) in there.items():
            named = kind.kind.kind, obj["metadata"]["name"]
            owner = (obj["metadata"].get("annotations") or {}).get(_OWNER, kind.kind.group)
            try:
                self._keep(self._backend.read(kind, obj), owner)
                self._refused.pop(job, None)
            except BrainError as why:
                if self._refused.get(job) != str(why):
                    log.warning("%s %s: %s", *named, why)
                self._refused[job] = str(why)
            except Exception:
                # One malformed object must not keep the others from Brain.
                log.exception("%s %s", *named)
        for job, view in self._brain.views().items():
            if job not in there and view.state not in FINISHED and view.intent is not Intent.CANCEL:
                self._end(job, view)
        self._backend.forget_others(there.keys())
        for gone in (self._told.keys() | self._refused.keys()) - there.keys():
            self._told.pop(gone, None)
            self._refused.pop(gone, None)

    def _end(self, job: JobId, view: JobView) -> None:
        """Cancel a job whose object was deleted; a job that is cancelled never runs again."""
        try:
            if self._backend.gone(job, view.project, view.name):
                self._brain.cancel(job)
        except BrainError as why:
            # The next look tries this job again; the other jobs come first.
            log.warning(
                "job %s is not cancelled yet, although its object was deleted: %s", job, why
            )

    def _keep(self, read: Training, owner: str) -> None:
        view = self._brain.view(read.job)
        if view is not None and view.state in FINISHED:
            return
        made = document(read)
        if view is None or self._told.get(read.job) != made:
            self._brain.mirror(read.job, wire.document_plain(made), owner)
            self._told[read.job] = made
        self._heed(read)
        self._worlds(read)

    def _heed(self, read: Training) -> None:
        """Suspend or resume the job in Brain if somebody else did so on its object.

        A suspended object that Brain may not resume is suspended in Brain, too.
        """
        job, view = read.job, self._brain.view(read.job)
        if view is None or read.over:
            return
        suspended = self._backend.suspended_elsewhere(job)
        if suspended is None and read.suspended and read.refusal and view.intent is Intent.RUN:
            suspended = True
        if suspended is None:
            return
        log.info("%s %s was %s", read.kind.kind, read.name, "suspended" if suspended else "resumed")
        if suspended and view.intent is Intent.RUN:
            self._brain.suspend(job)
        elif not suspended and view.intent is Intent.SUSPEND:
            self._brain.resume(job)
        wish = self._client.send(calls.world(job))
        self._backend.heard(job, suspended, wish.version if wish is not None else 0)

    def _worlds(self, read: Training) -> None:
        now, job = self._clock(), read.job
        detail = self._brain.detail(job)
        wish = self._client.send(calls.world(job))
        if detail is None or wish is None or detail.job.state is JobState.QUEUED:
            # A controller may run a job for which Brain has no capacity; Brain hears of the world
            # once it has let the job begin.
            return
        self._backend.amounts[job] = wish.resources
        seen = self._backend.observe(job, now)
        for report in reports(read, seen, detail.world, wish, processes=read.processes, now=now):
            named = read.kind.kind, read.name
            log.info("%s %s: world %d %s", *named, report.epoch, report.event)
            self._client.send(calls.report_world(report))
