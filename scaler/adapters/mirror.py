"""Copies each PyTorchJob to Brain, and reports worlds as the pods show them."""

import logging
from collections.abc import Callable
from datetime import datetime

from brain import calls, wire
from brain.client import BrainClient
from brain.errors import BrainError
from brain.types.job import FINISHED, Intent, JobDocument, JobId, JobState
from scaler.adapters.kubeflow import document
from scaler.adapters.pytorchjob import PyTorchJobBackend
from scaler.adapters.worlds import reports
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.runtime.cluster import Object

log = logging.getLogger(__name__)

#: Annotation that names the job's owner.
_OWNER = "elastic.iml.github.io/owner"


class Mirror:
    """Call ``look`` again and again. Each fact goes to Brain once, and again when it changed."""

    def __init__(
        self,
        backend: PyTorchJobBackend,
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
        there = {JobId(obj["metadata"]["uid"]): obj for obj in self._backend.objects()}
        for job, obj in there.items():
            try:
                self._keep(job, obj)
                self._refused.pop(job, None)
            except BrainError as why:
                if self._refused.get(job) != str(why):
                    log.warning("PyTorchJob %s: %s", obj["metadata"]["name"], why)
                self._refused[job] = str(why)
            except Exception:
                # One malformed object must not keep the others from Brain.
                log.exception("PyTorchJob %s", obj["metadata"]["name"])
        for job, view in self._brain.views().items():
            if job not in there and view.state not in FINISHED and view.intent is not Intent.CANCEL:
                self._end(job)

    def _end(self, job: JobId) -> None:
        try:
            self._brain.cancel(job)
        except BrainError as why:
            # The next look tries this job again; the other jobs come first.
            log.warning("job %s has no PyTorchJob and cannot be cancelled: %s", job, why)

    def _keep(self, job: JobId, obj: Object) -> None:
        view = self._brain.view(job)
        if view is not None and view.state in FINISHED:
            return
        made = document(obj)
        if view is None or self._told.get(job) != made:
            owner = (obj["metadata"].get("annotations") or {}).get(_OWNER, "kubeflow")
            self._brain.mirror(job, wire.document_plain(made), owner)
            self._told[job] = made
        self._worlds(job, made)

    def _worlds(self, job: JobId, made: JobDocument) -> None:
        now = self._clock()
        training = self._backend.find(job)
        if training is None:
            return
        detail = self._brain.detail(job)
        wish = self._client.send(calls.world(job))
        if detail is None or wish is None or detail.job.state is JobState.QUEUED:
            # Kubeflow may run a job for which Brain has no capacity; Brain hears of the world once
            # it has let the job begin.
            return
        self._backend.amounts[job] = wish.resources
        seen = self._backend.observe(job, now)
        processes = made.processes_per_replica
        for report in reports(training, seen, detail.world, wish, processes=processes, now=now):
            log.info("PyTorchJob %s: world %d %s", training.name, report.epoch, report.event)
            self._client.send(calls.report_world(report))
