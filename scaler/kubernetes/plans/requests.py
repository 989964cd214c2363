"""Requests that an edit of an ElasticJob makes to Brain: another size, to be stopped, to go on."""

from typing import Any, Protocol

from brain.types.job import Intent, JobId
from brain.views import JobView, PlanView
from scaler.kubernetes.brain import AWAY, REFUSED, OperatorsBrain
from scaler.kubernetes.kinds import ElasticJob, Reason
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.status.job_status import request_key, suspended_here


class Say(Protocol):
    """Writes an Event, unless the object says so already."""

    def __call__(self, obj: Object, type: Any, reason: str, message: str, /) -> None: ...


class Requests:
    """Each edit is asked about once; its answer is remembered in the object's status."""

    def __init__(self, brain: OperatorsBrain, say: Say) -> None:
        self._brain, self._say = brain, say

    def intent(self, obj: Object, job: ElasticJob, view: JobView) -> JobView:
        """``spec.suspend`` is the truth, as far as the object was edited since it was followed.

        Raises:
            Unavailable: nothing is written then, so that the next look finds the edit as it was.
        """
        id = JobId(job.metadata.uid)
        try:
            if job.spec.suspend and view.intent is Intent.RUN:
                return self._brain.suspend(id)
            if not job.spec.suspend and view.intent is Intent.SUSPEND and suspended_here(obj):
                return self._brain.resume(id)
        except REFUSED as why:
            self._say(obj, "Warning", Reason.REFUSED, str(why))
        return view

    def size(self, obj: Object, job: ElasticJob, view: JobView) -> dict[str, Any] | None:
        """An edit of ``replicas``, or ``kubectl scale``, is a request; its answer is remembered."""
        asked = job.spec.replica_specs[job.scaled].replicas
        generation = job.metadata.generation
        known = job.status.request
        if known is None:
            return {
                "observedGeneration": generation,
                "replicas": asked or view.replicas_wished,
                "outcome": "accepted",
                "generation": 0,
                "message": "the size that was submitted",
            }
        if asked is None or (asked == known.replicas and known.outcome != "waiting"):
            return None
        answer: dict[str, Any] = {"observedGeneration": generation, "replicas": asked}
        try:
            why = f"replicas of ElasticJob {job.metadata.name} were set to {asked}"
            plan = self._brain.resize(JobId(job.metadata.uid), asked, why, request_key(obj))
        except AWAY as away:
            return answer | {"outcome": "waiting", "message": f"Brain is away: {away}"}
        except REFUSED as refusal:
            self._say(obj, "Warning", Reason.REFUSED, str(refusal))
            return answer | {"outcome": "refused", "message": str(refusal)}
        return answer | self._answered(obj, asked, plan)

    def _answered(self, obj: Object, asked: int, view: PlanView) -> dict[str, Any]:
        plan = view.plan
        clamped = plan.target.replicas != asked
        self._say(obj, "Normal", "ScaleAccepted", plan.explanation.reason)
        return {
            "outcome": "clamped" if clamped else "accepted",
            "generation": plan.generation,
            "message": plan.explanation.reason,
        }
