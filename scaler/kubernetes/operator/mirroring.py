"""What Brain is told of ElasticJobs, and what the backend is told of Brain's."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from brain import wire
from brain.errors import BrainError
from brain.types.job import ApprovalPolicy, JobDocument, JobId, PolicyMode
from brain.types.world import ReplicaState
from brain.views import JobDetail, JobView
from scaler.kubernetes.brain import AWAY, REFUSED, OperatorsBrain
from scaler.kubernetes.dependents import rigid
from scaler.kubernetes.dependents.autoscalers import Autoscalers
from scaler.kubernetes.kinds import ElasticJob, Reason
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.plans.requests import Say
from scaler.kubernetes.pods.orders import Installation, owner_of
from scaler.kubernetes.runtime import Key, StatusCondition
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.status.conditions import accepted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """Decisions of an installation for all jobs."""

    house: Installation
    #: Who approves where a job does not say.
    mode: PolicyMode = PolicyMode.SHADOW


class JobMirror:
    """Keeps Brain's copy of each job, and the backend's knowledge of Brain's."""

    def __init__(
        self,
        brain: OperatorsBrain,
        backend: KubernetesBackend,
        find: Callable[[JobId], Object | None],
        autoscalers: Autoscalers,
        *,
        rules: Callable[[], JobRules],
        say: Say,
        clock: Callable[[], datetime],
    ) -> None:
        """``find`` gives the object of a job."""
        self._brain, self._backend, self._find = brain, backend, find
        self._autoscalers, self._rules = autoscalers, rules
        self._say, self._clock = say, clock
        #: What Brain was last told of each job, so that it is told of news alone.
        self._told: dict[JobId, JobDocument] = {}
        #: Jobs of which Brain could not be asked.
        self.unheard: set[JobId] = set()

    def take(self, obj: Object) -> None:
        """Tell Brain of a new object at once.

        Raises:
            BadInput, Conflict: Brain refuses it.
            Unavailable: Brain is away.
        """
        job = read_elastic_job(obj)
        document = wire.document_plain(self.document(job))
        self._brain.mirror(JobId(job.metadata.uid), document, owner_of(job))

    def view(self, id: JobId, obj: Object) -> JobView | None:
        """Return Brain's view of a job; one that it knew before may have ended since."""
        known = self._brain.view(id)
        if known is not None or (obj.get("status") or {}).get("generation") is None:
            return known
        try:
            return self._brain.recalled(id)
        except BrainError as why:
            log.info("job %s: %s", id, why)
            return None

    def document(self, job: ElasticJob) -> JobDocument:
        """Return a job as Brain is told it, with who approves its plans."""
        document = job_document(job)
        if Reason.AUTOSCALER in self._autoscalers.of(Key(document.project, document.name)):
            return replace(document, policy=ApprovalPolicy(mode=PolicyMode.SHADOW))
        if document.policy.mode is None:
            return replace(document, policy=ApprovalPolicy(mode=self._rules().mode))
        return document

    def tell(
        self, obj: Object, job: ElasticJob, document: JobDocument, view: JobView | None
    ) -> tuple[StatusCondition, JobView | None]:
        """Tell Brain of the job where that is news."""
        id = JobId(job.metadata.uid)
        if view is not None and self._told.get(id) == document:
            return accepted(), view
        try:
            view = self._brain.mirror(id, wire.document_plain(document), owner_of(job))
        except AWAY as why:
            message = f"Brain is away, the job goes on as it is: {why}"
            return accepted(None, Reason.NO_BRAIN, message), view
        except REFUSED as why:
            self._say(obj, "Warning", Reason.REFUSED, str(why))
            return accepted(False, Reason.REFUSED, str(why)), view
        if id not in self._told:
            self.learn(id)
        self._told[id] = document
        return accepted(), view

    def ask_again(self) -> None:
        """Ask about the jobs of which Brain could not be asked."""
        for id in list(self.unheard):
            self.learn(id)

    def learn(self, id: JobId) -> None:
        """Tell the backend which replicas Brain believes in, and which its world has."""
        try:
            detail = self._brain.detail(id)
            if detail is not None:
                self._tell_backend(id, detail)
        except BrainError as why:
            # Brain's, or the API server's that was asked for the job's Secret.
            log.info("job %s: %s", id, why)
            self.unheard.add(id)
            return
        self.unheard.discard(id)

    def forget(self, id: JobId) -> None:
        """Tell Brain of a job anew when its object comes again."""
        self._told.pop(id, None)

    def _tell_backend(self, id: JobId, detail: JobDetail) -> None:
        world = detail.world
        self._backend.told(
            id,
            believed=[r.id for r in detail.replicas if r.state is not ReplicaState.EXITED],
            used=max((r.id for r in detail.replicas), default=-1) + 1,
            named=rigid.held(world, self._find(id), self._rules().house),
            epoch=world.epoch if world is not None else 0,
            now=self._clock(),
        )
