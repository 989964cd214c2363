"""Reports worlds to Brain that no coordinator reports."""

from collections.abc import Callable, Sequence
from datetime import datetime

from brain.types.job import JobDocument, JobId, JobState
from brain.views import JobView
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.dependents import rigid
from scaler.ports import ReplicaSeen


class Worlds:
    """All running replicas of a job are its world, which is reported once."""

    def __init__(self, brain: OperatorsBrain, clock: Callable[[], datetime]) -> None:
        self._brain, self._clock = brain, clock
        self._told: dict[JobId, tuple[int, ...]] = {}

    def tell(
        self, id: JobId, document: JobDocument, view: JobView, seen: Sequence[ReplicaSeen]
    ) -> None:
        """Report the running replicas, once Brain has let the job start.

        A size that was not asked for answers no generation.
        """
        if view.state is JobState.QUEUED:
            # Brain may have lost an earlier report together with the job.
            self._told.pop(id, None)
            return
        ids = rigid.running(seen)
        if self._told.get(id) == ids:
            return
        # Nobody but this operator reports worlds of this job.
        first = view.epoch is None and id not in self._told
        detail = None if first else self._brain.detail(id)
        known = detail.world if detail is not None else None
        before = known.generation if known is not None else 0
        report = rigid.report(
            id,
            seen,
            known,
            wished=len(ids),
            generation=view.generation if len(ids) == view.replicas_wished else before,
            processes=document.processes_per_replica,
            now=self._clock(),
        )
        if report is not None:
            self._brain.report_world(report)
        self._told[id] = ids
