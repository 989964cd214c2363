"""Reports the worlds of jobs without a coordinator to Brain."""

from collections.abc import Callable, Sequence
from datetime import datetime

from brain.types.job import JobDocument, JobId, JobState
from brain.views import JobView
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.dependents import rigid
from scaler.ports import ReplicaSeen


class Worlds:
    """Reports the running replicas of a job to Brain as the job's world.

    Each world is reported once, and once more when a queued job starts.
    """

    def __init__(self, brain: OperatorsBrain, clock: Callable[[], datetime]) -> None:
        self._brain, self._clock = brain, clock
        self._told: dict[JobId, tuple[tuple[int, ...], bool]] = {}

    def forget(self, job: JobId) -> None:
        """Forget a job that has ended."""
        self._told.pop(job, None)

    def tell(
        self,
        id: JobId,
        document: JobDocument,
        view: JobView,
        seen: Sequence[ReplicaSeen],
        *,
        ours: bool = False,
    ) -> None:
        """Report the running replicas as a world.

        If nobody requested this number of replicas, the world belongs to no generation. ``ours`` is
        True if replicas start only after Brain has admitted the job.
        """
        ids, queued = rigid.running(seen), view.state is JobState.QUEUED
        if queued and ours:
            # The view is old, or Brain has lost the job and knows no world of it.
            self._told.pop(id, None)
            return
        if self._told.get(id) == (ids, queued):
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
            processes=document.allocation.processes_of,
            queued=queued,
            now=self._clock(),
        )
        if report is not None:
            self._brain.report_world(report)
        self._told[id] = ids, queued
