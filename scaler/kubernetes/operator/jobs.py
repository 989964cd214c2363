"""The controller of ElasticJobs: updates Brain's copy, the dependent objects, and the status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from brain.errors import BadInput, NotAllowed, NotFound
from brain.types.job import FINISHED, ApprovalPolicy, Intent, JobDocument, JobId, PolicyMode
from brain.views import JobView
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.dependents import rigid
from scaler.kubernetes.dependents.autoscalers import Autoscalers
from scaler.kubernetes.dependents.gangs import Gangs, GangState
from scaler.kubernetes.dependents.new_nodes import NewNodes
from scaler.kubernetes.dependents.queues import Queues
from scaler.kubernetes.dependents.resizing import Resized, Resizing, unenforced
from scaler.kubernetes.dependents.roles import Roles
from scaler.kubernetes.dependents.upkeep import Upkeep
from scaler.kubernetes.dependents.worlds import Worlds
from scaler.kubernetes.kinds import DLROVER, OURS, ElasticJob, JobCondition, Reason
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.operator.ends import JobEnds
from scaler.kubernetes.operator.mirroring import JobMirror, JobRules
from scaler.kubernetes.operator.statuses import JobStatuses
from scaler.kubernetes.operator.withdrawals import Withdrawals, orphans
from scaler.kubernetes.plans.departures import Departures
from scaler.kubernetes.plans.migration import Migrations
from scaler.kubernetes.plans.requests import JOB, Requests, unanswered
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.amounts import amounts_alone, changing
from scaler.kubernetes.pods.fitting import NodeCapacity
from scaler.kubernetes.pods.orders import by_volcano, elastic
from scaler.kubernetes.runtime import Cluster, Key, Recorder, Result, StatusCondition
from scaler.kubernetes.runtime.cluster import Object, key_of
from scaler.kubernetes.runtime.store import Store, StoreChange
from scaler.kubernetes.status.conditions import (
    condition_of,
    contested,
    feasible,
    held_up,
    honoured,
    let_go,
    reserved,
    resize_waits,
    size_differs,
)
from scaler.kubernetes.status.ends import deadline_of, over, seconds_until
from scaler.kubernetes.status.job_status import (
    Findings,
    active_plan,
    advised,
    refused,
    status,
    suspended_here,
    told_size,
    wants_more,
)

__all__ = ["JOB", "ElasticJobs", "JobRules"]

#: Seconds between two checks of a job that waits for capacity, a node or Brain.
_SOON_SECONDS = 5.0
_OVER = ("Succeeded", "Failed")
#: Errors of the API server that are shown on the job; the operator repeats the request.
_SAID = (NotAllowed, BadInput, NotFound)


class ElasticJobs:
    """Reconciles one ElasticJob per call; a repeated call does no harm."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        jobs: Store,
        pods: Store,
        nodes: Store,
        backend: KubernetesBackend,
        brain: OperatorsBrain,
        events: Recorder,
        rules: Callable[[], JobRules],
        clock: Callable[[], datetime],
        namespaces: Sequence[str] = (),
    ) -> None:
        """``namespaces`` are the namespaces whose objects this operator reads; empty means all."""
        self._cluster, self._jobs, self._pods, self._nodes = cluster, jobs, pods, nodes
        self._pods.index("master", identity.master_index)
        self._backend, self._events = backend, events
        self._status = JobStatuses(cluster, jobs, brain, events)
        self._rules, self._clock = rules, clock
        self._upkeep = Upkeep(cluster, pods, nodes)
        self._gangs = Gangs(self._upkeep, pods, nodes)
        self.new_nodes = NewNodes(self._upkeep, pods, nodes)
        self._roles = Roles(self._upkeep, pods)
        self._departures = Departures(
            self._upkeep, Migrations(cluster, pods), backend, NodeCapacity(nodes, pods)
        )
        self.autoscalers, self.resizing = Autoscalers(), Resizing(cluster, pods, nodes)
        self.queues = Queues(cluster)
        say = self._status.say
        self._requests, self._worlds = Requests(cluster, brain, say), Worlds(brain, clock)
        self._ends = JobEnds(
            cluster,
            self._status,
            roles=self._roles,
            queues=self.queues,
            new_nodes=self.new_nodes,
            gangs=self._gangs,
            upkeep=self._upkeep,
            requests=self._requests,
            forget=self._forget,
        )
        self.mirror = JobMirror(
            brain, backend, self.find, self.autoscalers, rules=rules, say=say, clock=clock
        )
        self.withdrawals = Withdrawals(
            cluster,
            brain,
            jobs,
            pods,
            namespaces,
            forget=self._forget,
            release=self._upkeep.release,
        )

    def reconcile(self, key: Key) -> Result:
        obj, now = self._jobs.get(key), self._clock()
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            self.withdrawals.withdraw(key)
            return self._leave(obj, now) if obj is not None else Result()
        try:
            job = read_elastic_job(obj)
            document = self.mirror.document(job)
        except BadInput as why:
            return self._refuse(obj, Reason.INVALID, str(why), now)
        if job.spec.managed_by == DLROVER:
            return self._advise(obj, job, document, now)
        if job.spec.managed_by not in OURS:
            message = (
                f"spec.managedBy is {job.spec.managed_by}, so Brain does not manage the job; to "
                "let Brain manage it, create the job again without managedBy"
            )
            return self._refuse(obj, Reason.NOT_OURS, message, now)
        if master := self._master_of(job):
            message = (
                f"pod {master} of DLRover's own master runs this job; delete the pod to let "
                "Brain run it"
            )
            return self._refuse(obj, Reason.NOT_OURS, message, now, type=JobCondition.CONFLICT)
        return self._keep(obj, job, document, now)

    def changed(self, change: StoreChange) -> None:
        """Forget a job whose object is gone, finished or not; the watching thread calls this."""
        self.withdrawals.changed(change)
        old, new = (side and side["metadata"]["uid"] for side in (change.old, change.new))
        if old is not None and old != new:
            beside = self._roles, self._upkeep, self._gangs, self.new_nodes, self.resizing
            for part in (*beside, self._requests, self._status):
                part.forget(JobId(str(old)))

    def find(self, job: JobId) -> Object | None:
        return next(iter(self._jobs.by("uid", job)), None)

    # -- one look --------------------------------------------------------------------------------

    def _keep(self, obj: Object, job: ElasticJob, document: JobDocument, now: datetime) -> Result:
        id, rules = JobId(job.metadata.uid), self._rules()
        mine = self._backend.pods_of(id)
        pods = [*mine, *self._roles.pods_of(job)]
        view = self.mirror.view(id, obj)
        if view is not None and view.state in FINISHED:
            return self._ends.finish(obj, job, view, pods, now)
        if view is None and over(job):
            # Brain is away, or has forgotten the job: a job that ended does not start again.
            return Result(requeue_after_seconds=6 * _SOON_SECONDS)
        halted = (
            view is not None and view.intent is Intent.SUSPEND and not self._requests.suspended(obj)
        )
        standing = self.queues.tend(obj, job, document, view, mine, now, by_person=halted)
        job, queued = standing.job, [condition_of(JobCondition.ADMITTED, *t) for t in standing.told]
        room, look_seconds = self._nodes_for(job, document, view, rules, now)
        bar = queued[0] if standing.held else room
        if bar.status is not True and view is None:
            self._status.say(obj, "Normal" if standing.held else "Warning", bar.reason, bar.message)
            self._status.write(obj, refused(obj, bar, now))
            return Result(requeue_after_seconds=look_seconds or 6 * _SOON_SECONDS)
        taken, view = self.mirror.tell(obj, job, document, view)
        others = self.autoscalers.of(key_of(obj))
        said = [taken, *honoured(job, rules.house), room, contested(others.items()), *queued]
        short = view is not None and wants_more(view, mine)
        whole, moving, request, asks = GangState(), "", None, False
        trouble = self._backend.refusal(id) if short else None
        if view is not None:
            request = self._requests.size(obj, job, view)
            last = request or (obj.get("status") or {}).get("request") or {}
            said.append(size_differs(job, view, last))
            said += resize_waits(request, (obj.get("status") or {}).get("conditions") or ())
            view = self._requests.intent(obj, job, view)
            given = self._requests.give_back(view, standing.leaves)
            view = self._requests.deadline(obj, job, view, now)
            # Without a Brain nobody would answer.
            asks = rules.house.brain_url is not None and (
                not given or unanswered(job, view, request, now)
            )
            try:
                leaving = self._departures.leaving(job, mine, now)
                whole = self._gangs.tend(job, document, mine, self._ender(id, now), now, leaving)
                moving = self._stand_beside(job, document, mine, rules, view)
                said.append(self._amounts(job, view, mine, others, now))
                moving = moving or said[-1].message
                if not elastic(job, rules.house):
                    self._as_coordinator(job, document, view, mine)
            except _SAID as why:
                trouble = f"the operator tries again: {why}"
        waiting = whole.waiting or moving
        if whole.let_go:
            self._events.record(obj, "Warning", Reason.LET_GO, whole.let_go)
            said, waiting = [*said, let_go(whole.let_go)], whole.let_go
        if trouble:
            held = held_up(trouble)
            self._status.warn_once(obj, held)
            said, waiting = [*said, held], held.message
        found = Findings(
            conditions=tuple(said),
            request=request,
            plan=active_plan(view),
            least=document.replicas.min,
            message=waiting,
        )
        told = status(obj, job, view, pods, found, now)
        # The next operator, too, must know that the queue suspended the job, and not a person.
        at_once = trouble or whole.let_go or (standing.held and not suspended_here(obj))
        looks = [
            self._status.show(obj, told, now, at_once=bool(at_once)),
            self._upkeep.patience(job, mine, now.timestamp()),
            self._departures.soon(job, now),
            look_seconds,
            seconds_until(deadline_of(job), now),
            whole.look_seconds,
            _SOON_SECONDS if waiting or view is None or asks else None,
        ]
        soon = min((each for each in looks if each is not None), default=None)
        return Result(requeue_after_seconds=soon)

    def _nodes_for(
        self,
        job: ElasticJob,
        document: JobDocument,
        view: JobView | None,
        rules: JobRules,
        now: datetime,
    ) -> tuple[StatusCondition, float | None]:
        """Request nodes that the job lacks and the cluster may add. Return the condition about
        nodes, and the seconds until the next check.
        """
        try:
            found = self.new_nodes.tend(job, document.replicas.min, view, rules.house, now)
        except _SAID as why:
            return held_up(f"no pod can request nodes, and the operator tries again: {why}"), None
        return feasible(found.lacking, yet=found.yet), found.look_seconds

    def _stand_beside(
        self,
        job: ElasticJob,
        document: JobDocument,
        mine: Sequence[Object],
        rules: JobRules,
        view: JobView,
    ) -> str:
        """Keep the job's other objects and roles; return why some leaving pods stay for now, or an
        empty string.
        """
        id, now, fixed = JobId(job.metadata.uid), self._clock(), not elastic(job, rules.house)
        self._roles.name(job, document, now, rigid=fixed)
        if by_volcano(job, rules.house) and document.replicas.min > 1:
            self._upkeep.pod_group(job, document)
        if not fixed:
            self._upkeep.tell_places(
                mine,
                self._backend.proved_gone(id, now),
                self._backend.cut_off(id, now),
                self._backend.members(id),
            )
        self._roles.keep(job, view.replicas_wished, now)
        for pod in self._upkeep.late(job, mine, now.timestamp()):
            self._upkeep.replace(pod)
        return self._departures.tend(job, view, mine, fixed=fixed, now=now)

    def _amounts(
        self,
        job: ElasticJob,
        view: JobView,
        mine: Sequence[Object],
        others: Mapping[Reason, str],
        now: datetime,
    ) -> StatusCondition:
        """Resize pods to the amounts that they should reserve, unless an autoscaler sets these."""
        if Reason.VERTICAL in others:
            message = others[Reason.VERTICAL] if changing(view) else ""
            owned = Resized(Reason.VERTICAL, message)
            self.resizing.tell(mine, unenforced(view, owned))
            return reserved(Reason.VERTICAL, message)
        found = self.resizing.tend(job, view, mine, self._ender(JobId(view.id), now), now)
        return reserved(found.reason, found.message)

    def _ender(self, job: JobId, now: datetime) -> Callable[[Object], None]:
        """Return a function that deletes a pod of the job with its grace period."""

        def end(pod: Object) -> None:
            found = identity.scaled_of(pod)
            assert found is not None, "only pods whose number plans change are ended"
            self._backend.stop(job, found[1], force=False, now=now)

        return end

    def _advise(self, obj: Object, job: ElasticJob, document: JobDocument, now: datetime) -> Result:
        """Report a job of DLRover's own master to Brain, whose plans are shown but not applied."""
        id = JobId(job.metadata.uid)
        shadow = replace(document, policy=ApprovalPolicy(mode=PolicyMode.SHADOW))
        taken, view = self.mirror.tell(obj, job, shadow, self.mirror.view(id, obj))
        if view is not None and view.state not in FINISHED:
            seen = self._backend.observe(id, now).replicas
            ids = rigid.running(seen)
            if ids and len(ids) == sum(one.alive for one in seen):
                self._worlds.tell(id, document, view, seen)
        self._status.write(obj, advised(obj, taken, view, now))
        return Result(requeue_after_seconds=_SOON_SECONDS)

    def _as_coordinator(
        self, job: ElasticJob, document: JobDocument, view: JobView, mine: Sequence[Object]
    ) -> None:
        """Act as the coordinator of a job without Brain's agent: replace pods that were started for
        another size, and report the world.
        """
        id = JobId(job.metadata.uid)
        seen = self._backend.observe(id, self._clock()).replicas
        stays = amounts_alone(view) or self._departures.shut(job, view, mine)
        # TensorFlow's workers know no other worker: those that were there before stay.
        told = told_size(document) and not job.configured_here
        replaced = told and not stays
        for pod in rigid.outdated(mine, view.generation) if replaced else ():
            self._upkeep.replace(pod)
        if len(rigid.running(seen)) == view.replicas_wished:
            self._worlds.tell(id, document, view, seen, ours=True)

    # -- ends ------------------------------------------------------------------------------------

    def _leave(self, obj: Object, now: datetime) -> Result:
        """Show the end of a job whose object is being deleted but is still held by a finalizer."""
        if orphans(obj):
            return Result()
        try:
            job = read_elastic_job(obj)
        except BadInput:
            return Result()
        id = JobId(job.metadata.uid)
        view = self.mirror.view(id, obj)
        if view is None or job.spec.managed_by not in OURS:
            return Result()
        pods = [*self._backend.pods_of(id), *self._roles.pods_of(job)]
        if view.state in FINISHED:
            return self._ends.finish(obj, job, view, pods, now)
        told = status(obj, job, view, pods, Findings(), now)
        return Result(requeue_after_seconds=self._status.show(obj, told, now))

    def _refuse(
        self,
        obj: Object,
        reason: Reason,
        message: str,
        now: datetime,
        *,
        type: JobCondition = JobCondition.ACCEPTED,
    ) -> Result:
        """Report an object's fault in its status; running pods continue."""
        self._status.say(obj, "Warning", reason, message)
        wrong = StatusCondition(
            type=type, status=type is JobCondition.CONFLICT, reason=reason, message=message
        )
        self._status.write(obj, refused(obj, wrong, now))
        return Result(
            requeue_after_seconds=12 * _SOON_SECONDS if reason is Reason.NOT_OURS else None
        )

    # -- how -------------------------------------------------------------------------------------

    def _forget(self, job: JobId) -> None:
        """Forget what was sent to Brain about a job."""
        self.mirror.forget(job)
        self._worlds.forget(job)

    def _master_of(self, job: ElasticJob) -> str | None:
        """Return the pod of DLRover's own master for this job; None if no such pod is alive."""
        key = Key(job.metadata.namespace, job.metadata.name)
        for pod in self._pods.by("master", str(key)):
            if (pod.get("status") or {}).get("phase") not in _OVER:
                return str(pod["metadata"]["name"])
        return None
