"""Replicas as pods: a ``JobBackend`` over stores that reflect the API server.

An observation lists the pods in the stores, and two other kinds of pods: requested pods that the
stores do not show yet, and vanished pods whose end is not recorded yet. The backend knows both
kinds only until the operator restarts. Afterwards Brain tells the operator which replicas Brain
considers alive.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from brain import wire
from brain.errors import BadInput, NotFound, Overloaded, Unavailable
from brain.types.job import JobId
from brain.types.resources import Node, PoolName, Resources
from brain.types.roles import WORKER
from brain.types.world import ReplicaEnd, ReplicaExit, unfit_nodes
from brain.views import DesiredJob
from scaler.kubernetes.kinds import DLROVER, ElasticJob
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.plans.migration import left_by
from scaler.kubernetes.pods import identity, places, ports
from scaler.kubernetes.pods.asking import reserves
from scaler.kubernetes.pods.manifest import manifest
from scaler.kubernetes.pods.orders import Installation, elastic, exhausted, order, past
from scaler.kubernetes.pods.sight import ended_as, look
from scaler.kubernetes.replicas.actions import Acts
from scaler.kubernetes.replicas.cache import Sent, on_the_way
from scaler.kubernetes.replicas.fetching import fetch
from scaler.kubernetes.replicas.losses import NodeLosses
from scaler.kubernetes.replicas.observed import Replicas
from scaler.kubernetes.replicas.secrets import JobSecrets
from scaler.kubernetes.runtime.cluster import POD, AlreadyExists, Cluster, Invalid, Object
from scaler.kubernetes.runtime.store import Store
from scaler.ports import NOTHING, Observed, ReplicaPhase, ReplicaSeen

log = logging.getLogger(__name__)

_OVER = ("Succeeded", "Failed")
_ADVISED = "DLRover's own master runs this job, so Brain only advises"


class KubernetesBackend(Replicas):
    """Observes and changes the pods of ElasticJobs. ``find`` returns the ElasticJob of a job."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        pods: Store,
        nodes: Store,
        find: Callable[[JobId], Object | None],
        house: Callable[[], Installation],
        pool: str,
        creators: int = 8,
        host_ports: tuple[int, int] = (ports.FIRST, ports.LAST),
        losses: NodeLosses | None = None,
        admitted: Callable[[JobId], Mapping[str, int] | None] = lambda job: None,
        borne: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """``admitted`` returns the number of replicas of each group that a queue allows a job to
        have; None if the job is in no queue. ``borne`` returns the tolerations of the pods of the
        pool's jobs, in the form of ``places.tolerations_in``.
        """
        secrets = JobSecrets(cluster, find)
        super().__init__(
            pods,
            losses or NodeLosses(),
            first=secrets.used,
            there=self._fetched,
            advised=self._only_advised,
            drains=self._leaves_cordoned_nodes,
        )
        self._cluster, self._nodes, self._secrets = cluster, nodes, secrets
        self._admitted, self._borne = admitted, borne
        self._find, self._house, self._pool = find, house, PoolName(pool)
        self._host_ports = host_ports
        self._pods.index("host port", ports.of)
        self._offered = nodes.sum("offers", places.offers, NOTHING)
        self._reserved = pods.sum("reserves", reserves, NOTHING)
        self._acts = Acts(creators)
        #: Called with each job for which the API server refused to create a pod.
        self.held_up: Callable[[JobId], None] = lambda job: None

    # -- JobBackend ------------------------------------------------------------------------------

    def nodes(self, now: datetime) -> Sequence[Node]:
        """Return the cluster's nodes."""
        return places.described(self._nodes, self._pool, now, self._borne())

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Return the job's replicas, the free resources, and the reason if no pod may be added."""
        first, free, spent = self._first(job), self._free(), self._spent(job)
        with self._lock:
            known = self._job(job)
            seen = self._seen(job, now)
            alive = frozenset(id for id, one in seen.items() if one.alive)
            known.next = max([known.next or first, *(id + 1 for id in seen)])
            still = all(self._still(one) for one in seen.values() if one.alive or one.leaving)
            return Observed(
                job=job,
                replicas=tuple(seen[id] for id in sorted(seen)),
                next_id=known.next,
                # No replica is taken from a world that no report has confirmed.
                named=alive if known.named is None else known.named,
                free=free,
                admitted=self._admitted(job),
                lacking=_ADVISED if self._advised(job) else known.refusal(now) or spent,
                steady=still and not known.sent,
                fixed_roles=True,
            )

    def _still(self, one: ReplicaSeen) -> bool:
        """True if a replica's pod runs, is not being deleted, and its node is not suspected."""
        going = one.phase is ReplicaPhase.RUNNING and not one.leaving
        return going and not self._losses.suspected(one.node)

    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        """Request the pod of the replica, from the pod template of ``group``.

        The pod's name contains the replica's id, so a repeated request creates no second pod.
        """
        if self._advised(wish.job):
            return
        first = self._first(wish.job)
        with self._lock:
            seen = self._seen(wish.job, now)
            if replica in seen:
                return
            obj = self._find(wish.job)
            if obj is None:
                raise BadInput(f"job {wish.name}: its ElasticJob was deleted")
            job, known = read_elastic_job(obj), self._job(wish.job)
            known.next = max(known.next or first, replica + 1)
            going = [id for id, one in seen.items() if one.leaving]
            mine = self._of_role(wish.job, job.scaled)
            alike = [pod for pod in mine if identity.group_of(pod) == group]
            before = replace(past(mine, going), kills=past(alike).kills)
            left = {str(node) for node in unfit_nodes(seen.values(), now) if node is not None}
            # A wish may be older than the plan that moves replicas.
            there = self.moving.get(wish.job)
            # Some replicas may stay on a node that others leave.
            left.update(set(left_by(self._pods.by("job", wish.job))) - dict(there or ()).keys())
            chosen = wish.wish.nodes if there is None else there
            made = order(
                job,
                wish,
                replica,
                replace(before, avoid=before.avoid | left),
                self._house(),
                nearest=places.nearest(chosen, seen.values()),
                only_there=there is not None,
                now=now,
                epoch=known.epoch,
                place=self._place(wish.job),
                host_ports=self._ports(job, group),
                group=group,
            )
            made = replace(made, secrets=tuple(sorted(environment)))
            made = replace(made, crowd=replace(made.crowd, uid=wish.job))
            pod = manifest(made)
            pod["metadata"]["ownerReferences"] = [
                identity.owner(job.metadata.name, job.metadata.uid)
            ]
            known.sent[replica] = Sent.of(pod)
        self._acts.do(
            # By uid: every namespace may have a job of this name.
            f"create {pod['metadata']['name']} of {wish.job}",
            partial(self._create, wish, replica, pod, environment, now),
            partial(self._refused, wish.job, replica, pod, now),
        )

    def reserve(self, wish: DesiredJob, replica: int, now: datetime) -> None:
        """Do nothing: the controller of ElasticJobs resizes the pods."""

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Delete the pod, with its template's grace period; with ``force``, without a grace
        period.
        """
        pod = self._pod(job, replica)
        if pod is None or look(pod, replica).phase in (ReplicaPhase.ENDED, ReplicaPhase.GONE):
            return
        if self._advised(job):
            return
        metadata = pod["metadata"]
        fresh = False
        if not force:
            with self._lock:
                asked = self._job(job).asked
                fresh = asked.setdefault(replica, now) is now

        def failed(why: Exception) -> None:
            # The request failed, so no later look may end the pod by force for not having left.
            with self._lock:
                if fresh:
                    self._job(job).asked.pop(replica, None)

        verb = "kill" if force else "delete"
        delete = partial(self._delete, pod, 0 if force else None)
        self._acts.do(f"{verb} {metadata['namespace']}/{metadata['name']}", delete, failed)

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Record a replica's end in an annotation of its pod, which the next operator reads.

        A pod that has not ended is deleted: otherwise its node could come back and run the pod
        beside the replica's replacement.
        """
        with self._lock:
            seen = self._seen(job, now).get(replica)
            if seen is None or seen.phase not in (ReplicaPhase.GONE, ReplicaPhase.INTENDED):
                return
            ending = ReplicaEnd(exit=exit, exit_code=seen.exit_code, detail=detail, at=now)
            self._job(job).gone[replica] = ended_as(seen, ending)
        pod = self._pod(job, replica)
        if pod is not None and not self._advised(job):
            name = f"close {pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self._acts.do(name, partial(self._write_off, pod, ending))

    def has_token(self, job: JobId) -> bool:
        """True if the job's Secret has a token, or the job's pods run no agent of Brain."""
        return not self._has_agents(job) or self._secrets.has_token(job)

    def put_token(self, job: JobId, secret: str) -> None:
        """Write the token into the job's Secret."""
        self._secrets.put_token(job, secret)

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """Return the variables ``names`` from the job's Secret; None if one is missing, or if none
        of the job's pods runs.
        """
        phases = [(pod.get("status") or {}).get("phase") for pod in self._pods.by("job", job)]
        if "Running" not in phases:
            return None
        known = self._secrets.environment(job)
        return {name: known[name] for name in names} if names <= known.keys() else None

    def clear(self, job: JobId) -> None:
        """Remove the token from the job's Secret; Kubernetes deletes the Secret with the job."""
        if not self._advised(job):
            self._secrets.clear(job)

    def forget(self, job: JobId) -> None:
        """Drop all facts about a finished job whose object and pods are deleted."""
        with self._lock:
            self._known.pop(job, None)
            self.moving.pop(job, None)
            self._secrets.forget(job)

    def close_down(self) -> None:
        """Wait for the requests to the API server that are in progress."""
        self._acts.end()

    # -- how -------------------------------------------------------------------------------------

    def _create(
        self, wish: DesiredJob, replica: int, pod: Object, env: Mapping[str, str], now: datetime
    ) -> None:
        self._secrets.set_aside(wish.job, replica, wish.wish.replicas, env, now)
        try:
            pod = self._cluster.create(POD, pod)
            # A watch may be silent for longer than a requested pod may stay unseen.
            self._pods.learn(pod)
        except AlreadyExists:
            log.info("%s exists already", pod["metadata"]["name"])
        with self._lock:
            sent = self._job(wish.job).sent.get(replica)
            if sent is not None:
                sent.pod, sent.taken = pod, True
            self._job(wish.job).refused = None

    def _refused(
        self, job: JobId, replica: int, pod: Object, now: datetime, why: Exception
    ) -> None:
        """Record that the API server refused a pod.

        A malformed pod stays refused. If a quota or a policy refused the pod, another attempt may
        succeed.
        """
        said = f"no pod can be created, and the operator tries again: {why}"
        with self._lock:
            known = self._job(job)
            known.sent.pop(replica, None)
            if isinstance(why, Invalid) and why.final:
                said = f"the API server refuses the pod: {why}; fix the pod template"
                ending = ReplicaEnd(exit=ReplicaExit.FAILED, detail=said, at=now)
                known.gone[replica] = ended_as(look(pod, replica), ending)
            known.refuse(said, now, heard=not isinstance(why, (Unavailable, Overloaded)))
        self.held_up(job)

    def _fetched(self, job: JobId, replica: int) -> bool:
        """Return True if the API server has the replica's pod, which the stores then show."""
        obj = self._find(job)
        pod = None if obj is None or self._advised(job) else fetch(self._cluster, obj, replica)
        if pod is not None:
            self._pods.learn(pod)
        return pod is not None

    def _only_advised(self, job: JobId) -> bool:
        obj = self._find(job)
        return obj is not None and obj["spec"].get("managedBy") == DLROVER

    def _leaves_cordoned_nodes(self, job: JobId) -> bool:
        obj = self._find(job)
        wanted = obj is not None and obj["spec"].get("drainOnCordon", True)
        return wanted and self._has_agents(job)

    def _has_agents(self, job: JobId) -> bool:
        """True if Brain's agents run in the job's pods."""
        obj = self._find(job)
        if obj is None or self._advised(job):
            return False
        try:
            return elastic(read_elastic_job(obj), self._house())
        except BadInput:
            return False

    def _write_off(self, pod: Object, ending: ReplicaEnd) -> None:
        if (pod.get("status") or {}).get("phase") not in _OVER:
            # First: an operator that finds the annotation does not look at the pod again.
            self._delete(pod, None)
        self._annotate(pod, {identity.ENDING: wire.encode(ending).decode()})

    def _delete(self, pod: Object, grace_seconds: int | None) -> None:
        metadata = pod["metadata"]
        try:
            self._cluster.delete(
                POD,
                metadata["namespace"],
                metadata["name"],
                uid=metadata.get("uid"),
                grace_seconds=grace_seconds,
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])

    def _free(self) -> Resources:
        """Return the resources that no pod reserves; requested pods count as well."""
        # In this order a pod that is reflected meanwhile counts twice for a moment, and never zero
        # times.
        sent = [each for each in on_the_way(self._known) if each.key not in self._pods]
        used = sum((each.reserves for each in sent), self._reserved())
        return self._offered() - used

    def _spent(self, job: JobId) -> str | None:
        """Return the reason why the job's object allows no further replica; None if it does."""
        obj = self._find(job)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return "its ElasticJob was deleted"
        try:
            read = read_elastic_job(obj)
        except BadInput as why:
            return f"its ElasticJob is invalid: {why}"
        role = read.spec.replica_specs[read.scaled]
        return exhausted(self._of_role(job, read.scaled), role.restart_count)

    def _place(self, job: JobId) -> Mapping[str, object] | None:
        """Return the endpoint that a running pod of the job has in an annotation; else None."""
        for pod in self._pods.by("job", job):
            place = identity.place_of(pod)
            if place and (pod.get("status") or {}).get("phase") == "Running":
                return {"endpoint": place.get("endpoint", "")}
        return None

    def _ports(self, job: ElasticJob, group: str) -> tuple[int, ...]:
        """Return a port for the agent and one for rank 0, free on every host; none without
        hostNetwork.
        """
        spec = job.template_of(group).get("spec") or {}
        if not spec.get("hostNetwork"):
            return ()
        sent = (port for each in on_the_way(self._known) for port in ports.of(each.pod))
        taken = {int(port) for port in (*self._pods.values("host port"), *sent)}
        mine = self._of_role(JobId(job.metadata.uid), job.scaled)
        master = next((port for pod in mine if (port := ports.master(pod))), None)
        master = master or ports.choose(taken, *self._host_ports)
        return ports.choose(taken | {master}, *self._host_ports), master

    def _annotate(self, pod: Object, annotations: Mapping[str, str]) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata.get("uid"), "annotations": dict(annotations)}}
        try:
            self._pods.learn(
                self._cluster.merge(POD, metadata["namespace"], metadata["name"], patch)
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])
