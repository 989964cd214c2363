"""Assembles the operator: stores, controllers, the loop of desired jobs, probes and metrics.

Threads watch the API server and run the controllers. The loop that follows Brain's desired jobs and
replaces failed replicas is the same as in the local scaler, but has another backend. Controllers
and loop act only while this process is the leader.
"""

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from brain.client import AsyncBrainClient, BrainClient
from brain.errors import BadInput
from brain.types.job import FINISHED, JobId
from brain.views import DesiredJob, LogsRequest
from scaler.desired import WishFile
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.dependents.autoscalers import concerned
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.operator.jobs import JOB, ElasticJobs, JobRules
from scaler.kubernetes.operator.logs import send_logs
from scaler.kubernetes.operator.options import OperatorOptions
from scaler.kubernetes.operator.probes import serving
from scaler.kubernetes.operator.relay import RelayedRequests
from scaler.kubernetes.operator.starting import ClusterFacts, ServerWait, find_out
from scaler.kubernetes.operator.staying import ask_for_pod
from scaler.kubernetes.operator.submissions import Submissions
from scaler.kubernetes.operator.waking import Waking
from scaler.kubernetes.operator.without_brain import AsyncOwnRule, OwnRule
from scaler.kubernetes.plans.plans import Plans
from scaler.kubernetes.pods import places
from scaler.kubernetes.pods.orders import Installation, elastic, spares_of
from scaler.kubernetes.pods.quota import JOB_UID, WORKLOAD, job_of
from scaler.kubernetes.pods.trimming import trimmed
from scaler.kubernetes.replicas.losses import NodeLosses
from scaler.kubernetes.runtime import Cluster, ElectionTerms, Manager, Object, StoreChange, connect
from scaler.kubernetes.runtime.cluster import NODE, POD, ClientLimits, Kind, key_of
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.plan_status import PLAN
from scaler.loop import Scaler

log = logging.getLogger(__name__)

#: Seconds between two checks of whether this process leads.
_LOOK_SECONDS = 0.25
#: The operator keeps facts about the replicas of a finished and deleted job for this time.
_REMEMBERED = timedelta(hours=1)
#: Exit code (EX_TEMPFAIL) of an operator whose lease another operator took; its supervisor then
#: restarts it.
DEPOSED = 75


class Operator:
    """One operator process. ``run`` returns after a signal, or after another operator took the
    lease.
    """

    def __init__(
        self,
        options: OperatorOptions,
        cluster: Cluster | None = None,
        client: BrainClient | None = None,
    ) -> None:
        self._options = options
        cluster = cluster or Cluster(
            connect(
                kubeconfig=options.kubeconfig,
                context=options.context,
                connections=options.in_flight + 16,
            ),
            limits=ClientLimits(in_flight=options.in_flight),
        )
        #: The time of the server that stamps objects: this machine's clock may be minutes off.
        self.now = cluster.clock.now
        terms = options.lease or ElectionTerms(namespace=options.own_namespace)
        self.manager = Manager(
            cluster, terms=terms if options.elect else None, namespaces=options.namespaces
        )
        self._stop = threading.Event()
        self._server = ServerWait(self.manager.cluster, stopped=self._stop.is_set)
        self._facts: ClusterFacts | None = None
        self._client = client or self._asking()
        self.brain = OperatorsBrain(self._client, options.pool)
        self._waking = Waking()
        self._wire()

    def _asking(self) -> BrainClient | OwnRule:
        options = self._options
        if options.url is not None:
            return BrainClient(options.url, options.token)
        return OwnRule(options.pool, lambda job: self.jobs.find(job), self.now, lambda: self._house)

    def _asking_at_once(self) -> AsyncBrainClient | AsyncOwnRule:
        if isinstance(self._client, OwnRule):
            return AsyncOwnRule(self._client)
        assert self._options.url is not None
        return AsyncBrainClient(self._options.url, self._options.token)

    def _wire(self) -> None:
        options, manager = self._options, self.manager
        jobs = manager.store(JOB, indexes={"uid": _uid, "tolerations": places.tolerations_in})
        pods, nodes, plans = manager.store(POD), manager.store(NODE), manager.store(PLAN)
        pods.trim(trimmed)
        self.backend = self._replicas(jobs, pods, nodes)
        self.jobs = ElasticJobs(
            manager.cluster,
            jobs=jobs,
            pods=pods,
            nodes=nodes,
            backend=self.backend,
            brain=self.brain,
            events=manager.events,
            rules=lambda: JobRules(house=self._house, mode=options.mode),
            clock=self.now,
            namespaces=options.namespaces,
        )
        self.plans = Plans(
            manager.cluster,
            plans=plans,
            jobs=jobs,
            pods=pods,
            brain=self.brain,
            events=manager.events,
            clock=self.now,
        )
        # Subscribes before any queue does.
        manager.listen(JOB, self.jobs.changed)
        job = manager.control(
            "elasticjob", JOB, self.jobs.reconcile, workers=options.workers, owns=[POD]
        )
        plan = manager.control(
            "scaleplan",
            PLAN,
            self.plans.reconcile,
            workers=options.workers,
            also={JOB: lambda change: self.plans.concerned(change.latest)},
        )
        published = manager.control("published", JOB, self.plans.publish, workers=1, when=_ours)
        self._queues = (job.queue, published.queue)
        self._plan_queue = plan.queue
        submissions = Submissions(
            manager.cluster, options.submit_to, self.jobs.mirror.take, lambda: nodes
        )
        self.relay = RelayedRequests(
            self._client,
            options.pool,
            submit=submissions.submit,
            logs=self._send_logs,
            pod=lambda asked: ask_for_pod(manager.cluster, self.jobs.find(asked.job), asked),
        )
        self.brain.told = self._told
        self.backend.held_up = self._look_at
        # After the backend, which the loop asks.
        manager.listen(POD, self._waking.pod_changed)
        manager.listen(JOB, self._waking.object_changed)

    def _replicas(self, jobs: Store, pods: Store, nodes: Store) -> KubernetesBackend:
        """Return the backend, subscribed to every change of pods and nodes."""
        options, manager = self._options, self.manager
        losses = NodeLosses(timedelta(seconds=options.lost_node_seconds))
        backend = KubernetesBackend(
            manager.cluster,
            pods=pods,
            nodes=nodes,
            find=lambda job: next(iter(jobs.by("uid", job)), None),
            house=lambda: self._house,
            pool=options.pool,
            creators=options.in_flight,
            host_ports=options.host_ports,
            losses=losses,
            admitted=lambda job: self.jobs.queues.admitted(self.jobs.find(job)),
            borne=lambda: jobs.values("tolerations"),
        )
        manager.listen(POD, lambda change: backend.changed(change, self.now()))

        def node_changed(change: StoreChange) -> None:
            if losses.changed(change, self.now()):
                for job in backend.jobs_on(change.key.name):
                    self._look_at(job)
                    self._waking.job(job)
            # A job hears of its placeholder pod, and may do so before the pod's node is known here.
            for job in self.jobs.new_nodes.jobs_on(change.key.name):
                self._look_at(job)

        manager.listen(NODE, node_changed)
        return backend

    def run(self) -> int:
        """Serve until a signal, or until another operator takes the lease; agents continue.

        Return 0 after SIGTERM or SIGINT, and ``DEPOSED`` if the process must be started again.

        Raises:
            BadInput: another controller serves these jobs, or the API server refuses this operator.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        with serving(self._options.metrics, self):
            facts = self._server.ask(lambda: find_out(self.manager.cluster, self._options))
            if facts is None:
                return 0
            self.know(facts)
            # Loaded modules stay: a garbage collection through them takes as long as many
            # reconciles.
            gc.freeze()
            self.manager.start()
            follow = threading.Thread(
                target=self.brain.follow,
                args=(self._stop, self._options.poll_seconds),
                name="brain",
                daemon=True,
            )
            follow.start()
            try:
                return asyncio.run(self._serve())
            finally:
                self._stop.set()
                self.brain.hurry()
                self.backend.close_down()
                self.manager.stop()
                self._client.close()

    def know(self, facts: ClusterFacts) -> None:
        """Watch the autoscalers and Kueue's Workloads, if this cluster serves them."""
        self.jobs.resizing.offered = facts.resizes
        # A store of a missing or unreadable kind would never hold a whole list.
        for kind in facts.autoscalers:
            self.jobs.autoscalers.follow(kind, self.manager.store(kind))
            self.manager.listen(kind, partial(self._rescaled, kind))
        if facts.workloads:
            self.jobs.queues.follow(self.manager.store(WORKLOAD, label_selector=JOB_UID))
            self.manager.listen(WORKLOAD, self._queue_told, label_selector=JOB_UID)
        # Last: from now on probes look at the stores.
        self._facts = facts

    def spares(self, wish: DesiredJob) -> int:
        """Return the number of a job's replicas that wait outside the world, because they form no
        whole unit.
        """
        obj = self.jobs.find(wish.job)
        if obj is None or wish.wish.unit == 1:
            return 0
        try:
            job = read_elastic_job(obj)
            return spares_of(job, job_document(job)) if elastic(job, self._house) else 0
        except BadInput:
            # The job's condition says so; running pods go on unchanged.
            return 0

    @property
    def unready(self) -> str:
        """The reason why this operator is not ready; empty once every store has a complete list."""
        if self._facts is None:
            return (
                self._server.trouble
                or "the operator is asking the API server which kinds it serves"
            )
        return self.manager.unready

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return self.manager.metrics.text()

    @property
    def _house(self) -> Installation:
        assert self._facts is not None, "no controller runs before the cluster is known"
        return self._facts.installation(self._options, kueue=self.jobs.queues.served)

    def _send_logs(self, request: LogsRequest, send: Callable[[str, bool], None]) -> None:
        def over() -> bool:
            view = self.brain.view(request.job)
            return view is None or view.state in FINISHED

        send_logs(
            self.manager.cluster,
            request,
            pods=lambda: self.backend.pods_of(request.job),
            over=over,
            send=send,
        )

    async def _serve(self) -> int:
        while not self._stop.is_set():
            if self.manager.deposed:
                log.warning(
                    "another operator took the lease, so this process exits and must be started "
                    "again"
                )
                return DEPOSED
            if self.manager.leading and self.manager.synced():
                await self._lead()
            await asyncio.sleep(_LOOK_SECONDS)
        log.info("the operator stops; agents keep running")
        return 0

    async def _lead(self) -> None:
        """Follow Brain's desired jobs until this operator is no longer the leader, or must end."""
        log.info("leads")
        options, ended = self._options, threading.Event()
        async with self._asking_at_once() as client:
            file = WishFile(options.home / "wishes.json")
            scaler = Scaler(
                client,
                self.backend,
                file,
                pool=options.pool,
                clock=self.now,
                pace=options.pace,
                spares=self.spares,
                told=self.brain.hurry,
                apart=True,
            )
            self._waking.begin(scaler)
            self.brain.polled = True
            if options.url is not None:
                relay = threading.Thread(target=self.relay.follow, args=(ended,), daemon=True)
                relay.start()
            work = asyncio.create_task(scaler.run())
            try:
                await self._watch_over(work)
            finally:
                ended.set()
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _watch_over(self, work: "asyncio.Task[None]") -> None:
        beats = 0
        while not self._stop.is_set():
            await asyncio.wait([work], timeout=_LOOK_SECONDS)
            if work.done():
                work.result()
            if not self.manager.leading:
                log.warning(
                    "this operator did not renew its lease in time, and changes nothing until it "
                    "leads again"
                )
                return
            beats += 1
            if beats % 40 == 0:
                await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        """Handle facts that cause no event: unnoticed deletions, failed requests, and old jobs."""
        if self.brain.known and not self.brain.trouble:
            self.jobs.withdrawals.sweep()
            self.jobs.mirror.ask_again()
            for job in self.backend.jobs():
                if self._past(job):
                    self.backend.forget(job)

    def _past(self, job: JobId) -> bool:
        """True if a job's object and pods are deleted, and the job ended over an hour ago."""
        if self.jobs.find(job) is not None or self.backend.pods_of(job):
            return False
        view = self.brain.view(job)
        ended = view.finished_at if view is not None else None
        return view is None or (ended is not None and self.now() - ended > _REMEMBERED)

    def _told(self, job: JobId) -> None:
        """Queue a job's object and its plans, because Brain's view of the job changed."""
        obj = self.jobs.find(job)
        if obj is None:
            return
        self.jobs.mirror.follow(job)
        for queue in self._queues:
            queue.add(key_of(obj))
        for key in self.plans.concerned(obj):
            self._plan_queue.add(key)

    def _rescaled(self, kind: Kind, change: StoreChange) -> None:
        """Queue the jobs that a changed autoscaler targets."""
        for key in concerned(kind, change):
            self._queues[0].add(key)

    def _queue_told(self, change: StoreChange) -> None:
        """Queue the job of a changed Workload."""
        if job := job_of(change.latest):
            self._look_at(JobId(job))

    def _look_at(self, job: JobId) -> None:
        """Queue a job's object for its controller."""
        obj = self.jobs.find(job)
        if obj is not None:
            self._queues[0].add(key_of(obj))


def _ours(change: StoreChange) -> bool:
    return change.new is not None


def _uid(obj: Object) -> tuple[str, ...]:
    return (str(obj["metadata"].get("uid") or ""),)
