"""Sends ElasticJobs to Brain, and passes Brain's list of replicas to the backend."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from brain import wire
from brain.errors import BadInput, BrainError
from brain.types.job import ApprovalPolicy, JobDocument, JobId, PolicyMode
from brain.types.roles import PS
from brain.types.world import Replica, ReplicaState, World
from brain.views import JobView
from scaler.kubernetes.brain import AWAY, REFUSED, OperatorsBrain
from scaler.kubernetes.dependents import rigid
from scaler.kubernetes.dependents.autoscalers import Autoscalers
from scaler.kubernetes.kinds import ElasticJob, Reason
from scaler.kubernetes.kinds.documents import job_document, running_sizes
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.plans.requests import Say
from scaler.kubernetes.pods.orders import Installation, elastic, owner_of
from scaler.kubernetes.runtime import Key, StatusCondition
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.status.conditions import accepted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """The settings of an installation that apply to all its jobs."""

    house: Installation
    #: Policy mode of jobs that name none.
    mode: PolicyMode = PolicyMode.SHADOW


class JobMirror:
    """Updates Brain's copy of each job, and informs the backend of Brain's worlds and replicas."""

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
        self._brain, self._backend, self._find = brain, backend, find
        self._autoscalers, self._rules = autoscalers, rules
        self._say, self._clock = say, clock
        #: The document of each job that Brain last accepted, so that only changes are sent.
        self._told: dict[JobId, JobDocument] = {}
        #: Epoch and size of the world that the backend was last told of, by job.
        self._learned: dict[JobId, tuple[int | None, int]] = {}
        #: Jobs about which a request to Brain failed.
        self.unheard: set[JobId] = set()

    def take(self, obj: Object) -> None:
        """Send a new object to Brain, without waiting for the next reconcile.

        Raises:
            BadInput, Conflict: Brain refuses the job.
            Unavailable: Brain cannot be reached.
        """
        job = read_elastic_job(obj)
        document = wire.document_plain(self.document(job))
        self._brain.mirror(JobId(job.metadata.uid), document, owner_of(job), running_sizes(job))

    def view(self, id: JobId, obj: Object) -> JobView | None:
        """Return Brain's view of a job, which may have ended; None if Brain has none, or cannot be
        asked about an ended job.
        """
        known = self._brain.view(id)
        if known is not None or (obj.get("status") or {}).get("generation") is None:
            return known
        try:
            return self._brain.recalled(id)
        except BrainError as why:
            log.info("job %s: %s", id, why)
            return None

    def document(self, job: ElasticJob) -> JobDocument:
        """Return a job's document as Brain gets it, with a policy mode.

        Raises:
            BadInput: the object is invalid, or has servers that no agent would connect.
        """
        document = job_document(job)
        if document.roles and not elastic(job, self._rules().house):
            path = f"spec.replicaSpecs.{job.scaled}.groups.{PS}"
            raise BadInput(
                f"{path}: Brain's agent writes TF_CONFIG of servers and workers, but does not run "
                "this job's command; let the command begin with python or brain-run, and start the "
                f"operator with --agent-image; or move the servers to spec.replicaSpecs.{PS}",
                field=path,
            )
        if Reason.AUTOSCALER in self._autoscalers.of(Key(document.project, document.name)):
            return replace(document, policy=ApprovalPolicy(mode=PolicyMode.SHADOW))
        if document.policy.mode is None:
            return replace(document, policy=ApprovalPolicy(mode=self._rules().mode))
        return document

    def tell(
        self, obj: Object, job: ElasticJob, document: JobDocument, view: JobView | None
    ) -> tuple[StatusCondition, JobView | None]:
        """Send the job to Brain if its document changed.

        Return two values: the condition that tells if Brain accepted the job, and Brain's view of
        the job.
        """
        id = JobId(job.metadata.uid)
        if view is not None and self._told.get(id) == document:
            return accepted(), view
        try:
            plain = wire.document_plain(document)
            view = self._brain.mirror(id, plain, owner_of(job), running_sizes(job))
        except AWAY as why:
            message = f"Brain is unreachable, so the job keeps its size: {why}"
            return accepted(None, Reason.NO_BRAIN, message), view
        except REFUSED as why:
            self._say(obj, "Warning", Reason.REFUSED, str(why))
            return accepted(False, Reason.REFUSED, str(why)), view
        if id not in self._told:
            self.learn(id, new=view.version == 1)
        self._told[id] = document
        return accepted(), view

    def ask_again(self) -> None:
        """Ask again about the jobs for which a request to Brain failed."""
        for id in list(self.unheard):
            self.learn(id)

    def follow(self, id: JobId) -> None:
        """Inform the backend of Brain's world if its epoch or size has changed."""
        view = self._brain.view(id)
        # Without a coordinator no world holds replicas.
        coordinated = self._held(id, None) is None
        known = self._learned.get(id, (None, 0))
        if view is None or (coordinated and known != (view.epoch, view.replicas)):
            self.learn(id)

    def learn(self, id: JobId, *, new: bool = False) -> None:
        """Pass Brain's list of replicas, and the members of Brain's world, to the backend.

        ``new`` is True if Brain has just stored the job, and has no replicas of the job yet.
        """
        try:
            detail = None if new else self._brain.detail(id)
            if new:
                self._tell_backend(id, None, ())
            elif detail is not None:
                self._tell_backend(id, detail.world, detail.replicas)
                self._learned[id] = detail.job.epoch, detail.job.replicas
        except BrainError as why:
            # The error is Brain's, or that of the API server when asked for the job's Secret.
            log.info("job %s: %s", id, why)
            self.unheard.add(id)
            return
        self.unheard.discard(id)

    def forget(self, id: JobId) -> None:
        """Forget a job, so that it is sent to Brain again if its object returns."""
        self._told.pop(id, None)
        self._learned.pop(id, None)

    def _tell_backend(self, id: JobId, world: World | None, replicas: Sequence[Replica]) -> None:
        self._backend.told(
            id,
            believed=[r.id for r in replicas if r.state is not ReplicaState.EXITED],
            used=max((r.id for r in replicas), default=-1) + 1,
            named=self._held(id, world),
            epoch=world.epoch if world is not None else 0,
            now=self._clock(),
        )

    def _held(self, id: JobId, world: World | None) -> frozenset[int] | None:
        return rigid.held(world, self._find(id), self._rules().house)
