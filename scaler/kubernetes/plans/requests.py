"""Requests to Brain that follow from an edit of an ElasticJob: another size, a suspension, a
resume.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from brain import wire
from brain.types.job import Intent, JobId
from brain.views import JobView, PlanView
from scaler.kubernetes.brain import AWAY, REFUSED, OperatorsBrain
from scaler.kubernetes.kinds import API_VERSION, GROUP, ElasticJob, Reason, Request
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.plans.asking import asker
from scaler.kubernetes.pods.identity import WORKER
from scaler.kubernetes.runtime.cluster import Cluster, Kind, Object
from scaler.kubernetes.status.ends import deadline_of
from scaler.kubernetes.status.job_status import request_key, suspended_here

log = logging.getLogger(__name__)

JOB = Kind(GROUP, API_VERSION.partition("/")[2], "elasticjobs", "ElasticJob")


def unanswered(
    job: ElasticJob, view: JobView, request: Mapping[str, Any] | None, now: datetime
) -> bool:
    """True if an edit, or the end of a job whose deadline has passed, has not been sent to Brain
    yet.
    """
    until = deadline_of(job)
    late = until is not None and until <= now and view.intent is not Intent.CANCEL
    return late or (request is not None and request["outcome"] == "waiting")


class Say(Protocol):
    """Writes an Event, unless the object's status has the same message."""

    def __call__(self, obj: Object, type: Any, reason: str, message: str, /) -> None: ...


class Requests:
    """Sends each edit to Brain once; the object's status has the answer."""

    def __init__(self, cluster: Cluster, brain: OperatorsBrain, say: Say) -> None:
        self._cluster, self._brain, self._say = cluster, brain, say
        #: Jobs that are suspended by a request from here.
        self._suspended: set[JobId] = set()
        #: The sizes with which each job began whose status has no answer yet.
        self._begun: dict[JobId, Request] = {}

    def intent(self, obj: Object, job: ElasticJob, view: JobView) -> JobView:
        """Suspend or resume the job as ``spec.suspend`` says, if an edit changed that.

        Raises:
            Unavailable: Brain cannot be reached. The status is not written, so that the next
                reconcile finds the edit again.
        """
        id = JobId(job.metadata.uid)
        try:
            if job.spec.suspend and view.intent is Intent.RUN:
                self._suspended.add(id)
                return self._brain.suspend(id)
            if not job.spec.suspend and view.intent is Intent.SUSPEND and self.suspended(obj):
                view = self._brain.resume(id)
                self._suspended.discard(id)
            elif view.intent is Intent.RUN and not suspended_here(obj):
                self._suspended.discard(id)
        except REFUSED as why:
            self._say(obj, "Warning", Reason.REFUSED, str(why))
        return view

    def suspended(self, obj: Object) -> bool:
        """True if the operator requested the present suspension.

        This is known even before the status that records the request comes back from the API
        server.
        """
        return JobId(obj["metadata"]["uid"]) in self._suspended or suspended_here(obj)

    def forget(self, job: JobId) -> None:
        self._suspended.discard(job)
        self._begun.pop(job, None)

    def deadline(self, obj: Object, job: ElasticJob, view: JobView, now: datetime) -> JobView:
        """End a job whose ``activeDeadlineSeconds`` have passed."""
        until = deadline_of(job)
        if until is None or now < until or view.intent is Intent.CANCEL:
            return view
        seconds = job.spec.active_deadline_seconds
        self._say(
            obj,
            "Warning",
            Reason.DEADLINE,
            f"the job reached its activeDeadlineSeconds {seconds} and was ended; raise the "
            "value and submit the job again to continue from its checkpoint",
        )
        try:
            return self._brain.cancel(JobId(job.metadata.uid))
        except (*AWAY, *REFUSED) as why:
            log.info("job %s: %s", job.metadata.uid, why)
            return view

    def size(self, obj: Object, job: ElasticJob, view: JobView) -> dict[str, Any] | None:
        """After an edit, request from Brain the edited ``replicas`` of the role or of its groups.

        Return Brain's answer, for the status.
        """
        asked = job.spec.replica_specs[job.scaled].replicas
        generation = job.metadata.generation
        answer: dict[str, Any] = {"observedGeneration": generation, "replicas": asked}
        if job.groups:
            answer["groups"] = {name: one.replicas for name, one in job.groups.items()}
        known = self._known(job, answer)
        if known.groups and answer["groups"] != known.groups:
            return self._of_groups(obj, job, view, known, answer)
        if job.status.request is None and asked == known.replicas:
            told = {"outcome": "accepted", "generation": 0, "message": "the size at its start"}
            # A queued job has no size yet; resourceLimits may allow less than the object asks.
            begins = view.replicas_wished or job_document(job).replicas.first
            return answer | told | {"granted": begins}
        waits = known.outcome == "waiting"
        if asked == known.replicas and not waits:
            return None
        if waits and asked in _present(known, view):
            # The edit was taken back before Brain heard of it.
            return answer | _kept(view, "the present size")
        if not asked or (generation == known.observed_generation and not waits):
            # Brain chooses the size; or nobody wrote it, and a newer schema added it as default.
            said = known.message if asked else "Brain chooses the size"
            return answer | _kept(view, said)
        return answer | _unheard(known, self._asked(obj, job, view, asked))

    def _known(self, job: ElasticJob, answer: Mapping[str, Any]) -> Request:
        """Return the request that was answered last; before the first answer is written, the sizes
        with which the job began.
        """
        id = JobId(job.metadata.uid)
        if job.status.request is not None:
            self._begun.pop(id, None)
            return job.status.request
        if id not in self._begun:
            self._begun[id] = self._first(job, answer)
        return self._begun[id]

    def _first(self, job: ElasticJob, answer: Mapping[str, Any]) -> Request:
        """Return the sizes with which the job began.

        Raises:
            Unavailable: Brain cannot be reached.
        """
        seen = msgspec.convert(answer, Request)
        if job.metadata.generation == 1:
            return seen
        # An earlier operator may have started the job before the edit.
        detail = self._brain.detail(JobId(job.metadata.uid))
        if detail is None:
            return seen
        first, edited = wire.job_document(detail.document), job_document(job)
        groups = {**first.groups, **first.roles}
        if first.replicas.first != edited.replicas.first:
            seen = replace(seen, replicas=first.replicas.first)
        kept = {n: groups[n].replicas if n in groups else c for n, c in seen.groups.items()}
        return replace(seen, groups=kept, observed_generation=1)

    def _of_groups(
        self,
        obj: Object,
        job: ElasticJob,
        view: JobView,
        known: Request,
        answer: dict[str, Any],
    ) -> dict[str, Any]:
        """Ask for the groups whose replicas an edit changed. The next look asks for ``replicas`` if
        the edit changed that, too.
        """
        answered, told = dict(known.groups), dict[str, Any]()
        for name, asked in answer["groups"].items():
            if asked == answered.get(name):
                continue
            one = self._asked(obj, job, view, asked, name)
            if one["outcome"] != "waiting":
                answered[name] = asked
            told = one if told.get("outcome", "accepted") == "accepted" else told
        # A request for ``replicas`` that waits is found again by its difference.
        seen = known.observed_generation if known.replicas != answer["replicas"] else 0
        return (
            answer
            | told
            | {
                "replicas": known.replicas,
                "groups": answered,
                "observedGeneration": seen or answer["observedGeneration"],
            }
        )

    def give_back(self, view: JobView, leaves: tuple[str, int] | None) -> bool:
        """Request that Brain shrink a group of a job to the replicas that the job's queue allows.

        ``leaves`` is None if the queue sets no limit; then nothing is requested. Return False if
        Brain did not accept the request, so that it must be repeated.
        """
        if leaves is None:
            return True
        group, most = leaves
        known = {one.name: one.replicas_wished for one in view.groups}
        of = None if group == WORKER else group
        size = most if of else most + sum(known.values()) - known.get(WORKER, 0)
        why = f"Kueue admits no more than {most} replicas" + (f" of {of}" if of else "")
        try:
            key = f"{view.id}.evicted.{view.generation}.{group}.{most}"
            self._brain.resize(JobId(view.id), size, why, key, "kueue", group=of)
        except (*AWAY, *REFUSED) as refusal:
            log.info("job %s: %s", view.id, refusal)
            return False
        return True

    def _asked(
        self, obj: Object, job: ElasticJob, view: JobView, asked: int, group: str | None = None
    ) -> dict[str, Any]:
        inner = ("groups", group) if group else ()
        try:
            path = ("spec", "replicaSpecs", job.scaled, *inner, "replicas")
            by = asker(self._cluster, JOB, obj, path)
            of = f"group {group} of " if group else ""
            why = f"replicas of {of}ElasticJob {job.metadata.name} were set to {asked}"
            key = ".".join((request_key(obj), *inner))
            id = JobId(job.metadata.uid)
            plan = self._brain.resize(id, asked, why, key, by, group=group)
        except AWAY as away:
            return {"outcome": "waiting", "message": f"Brain is unreachable: {away}"}
        except REFUSED as refusal:
            if group and _wishes(view, group, asked):
                # Brain refuses an edit of a group that changes nothing.
                return _kept(view, f"the group {group} already has {asked} replicas")
            self._say(obj, "Warning", Reason.REFUSED, str(refusal))
            return {"outcome": "refused", "message": str(refusal)}
        return self._answered(obj, plan.plan.target.replicas if group else asked, plan)

    def _answered(self, obj: Object, asked: int, view: PlanView) -> dict[str, Any]:
        plan = view.plan
        clamped = plan.target.replicas != asked
        self._say(obj, "Normal", "ScaleAccepted", plan.explanation.reason)
        return {
            "outcome": "clamped" if clamped else "accepted",
            "granted": plan.target.replicas,
            "generation": plan.generation,
            "message": plan.explanation.reason,
        }


def _present(known: Request, view: JobView) -> tuple[int, ...]:
    """Return the values of ``replicas`` that ask for nothing new.

    After an edit of a group the size of the job differs from ``replicas``, so the number that Brain
    answered asks for nothing new, too.
    """
    return (view.replicas_wished, known.replicas) if known.groups else (view.replicas_wished,)


def _unheard(known: Request, answer: dict[str, Any]) -> dict[str, Any]:
    """Keep the number that Brain answered while a request waits beside groups.

    One outcome cannot say which of the numbers waits; their differences from the object can.
    """
    if not known.groups or answer["outcome"] != "waiting":
        return answer
    kept = {"replicas": known.replicas, "observedGeneration": known.observed_generation}
    return answer | kept


def _wishes(view: JobView, group: str, count: int) -> bool:
    """True if a group should have ``count`` replicas, and no plan will give it another number."""
    plan = view.plan
    coming = dict(plan.target.roles).get(group) if plan is not None and plan.active else None
    wishes = any(one.name == group and one.replicas_wished == count for one in view.groups)
    return wishes and (coming is None or coming.replicas == count)


def _kept(view: JobView, why: str) -> dict[str, Any]:
    """Accept a request that asks for the present size."""
    return {
        "outcome": "accepted",
        "granted": view.replicas_wished,
        "generation": view.generation,
        "message": why,
    }
