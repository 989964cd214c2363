"""Replicas as pods: a ``JobBackend`` over stores that reflect the API server.

What is seen is what the stores show, with two things beside it: pods that were asked for and are
not reflected yet, and pods that vanished, until somebody wrote down how they ended. Losing that
memory costs a detail: Brain tells the next operator which replicas it still believes in.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from brain import wire
from brain.errors import BadInput, BrainError, NotFound
from brain.types.job import JobId
from brain.types.resources import Node, PoolName, Resources
from brain.types.world import ReplicaExit
from brain.views import JobWish
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.documents.templates import reserved
from scaler.kubernetes.machinery.cluster import (
    POD,
    AlreadyExists,
    Cluster,
    Invalid,
    Object,
    key_of,
)
from scaler.kubernetes.machinery.store import Change, Store
from scaler.kubernetes.pods import identity, places, ports
from scaler.kubernetes.pods.manifest import manifest
from scaler.kubernetes.pods.orders import House, exhausted, order, past
from scaler.kubernetes.pods.sight import Ending, ended_as, look, vanished
from scaler.kubernetes.secrets import JobSecrets
from scaler.ports import NOTHING, Observed, Phase, ReplicaSeen

log = logging.getLogger(__name__)

#: A pod that was created and is not reflected after so long is not there.
_UNSEEN = timedelta(seconds=30)
#: After a refusal (a quota, a webhook) pods of a job are asked for again after so long.
_REFUSED = timedelta(seconds=10)
_OVER = ("Succeeded", "Failed")

Replica = tuple[JobId, int]


@dataclass(slots=True)
class _Known:
    """What is remembered of one job."""

    #: Above every id that is known to be used; None: nobody has looked what was used before.
    next: int | None = None
    refused: tuple[str, datetime] | None = None
    #: Replicas that the world has, as Brain last said; None: nobody knows.
    named: frozenset[int] | None = None
    epoch: int = 0


class KubernetesBackend:
    """Pods of ElasticJobs. ``find`` gives the object of a job."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        pods: Store,
        nodes: Store,
        find: Callable[[JobId], Object | None],
        house: Callable[[], House],
        pool: str,
        creators: int = 8,
        host_ports: tuple[int, int] = (ports.FIRST, ports.LAST),
    ) -> None:
        self._cluster, self._pods, self._nodes = cluster, pods, nodes
        self._find, self._house, self._pool = find, house, PoolName(pool)
        self._host_ports = host_ports
        self._secrets = JobSecrets(cluster, find)
        self._pods.index("job", identity.job_index)
        self._lock = threading.RLock()
        self._known: dict[JobId, _Known] = {}
        self._sent: dict[Replica, Object] = {}
        self._gone: dict[Replica, ReplicaSeen] = {}
        self._asked: dict[Replica, datetime] = {}
        self._creating = ThreadPoolExecutor(creators, thread_name_prefix="create")

    # -- what is told from outside ---------------------------------------------------------------

    def changed(self, change: Change, now: datetime) -> None:
        """A pod came, changed or went, by the watching thread."""
        found = identity.scaled_of(change.latest)
        if found is None:
            return
        with self._lock:
            self._sent.pop(found, None)
            if change.new is None or _other(change.old, change.new):
                assert change.old is not None, "what goes was there"
                known = self._gone.get(found)
                # What Brain believed in before its pod was listed is no knowledge of its end.
                if known is None or known.phase is not Phase.ENDED:
                    last = look(change.old, found[1])
                    self._gone[found] = vanished(last, self._asked.get(found), now)

    def told(
        self,
        job: JobId,
        *,
        believed: Iterable[int],
        used: int,
        named: frozenset[int] | None,
        epoch: int,
        now: datetime,
    ) -> None:
        """What Brain knows of a job: replicas it takes to be alive, its world, how far epochs are.

        A replica that it believes in and of which nothing is here has vanished while nobody looked.
        """
        with self._lock:
            known = self._job(job)
            known.named, known.epoch = named, max(known.epoch, epoch)
            here = self._seen(job, now)
            known.next = max(self._next(job), used)
            for id in believed:
                if id not in here:
                    self._gone[job, id] = ReplicaSeen(
                        id=id,
                        phase=Phase.GONE,
                        generation=0,
                        started_at=now,
                        detail="its pod is gone; no scaler was there to see it end",
                    )

    def pods_of(self, job: JobId) -> list[Object]:
        """The job's pods, those that are not reflected yet included."""
        with self._lock:
            found = {pod["metadata"]["name"]: pod for pod in self._pods.by("job", job)}
            sent = {
                pod["metadata"]["name"]: pod for (one, _), pod in self._sent.items() if one == job
            }
            return list((sent | found).values())

    # -- JobBackend ------------------------------------------------------------------------------

    def nodes(self, now: datetime) -> Sequence[Node]:
        """The cluster's nodes."""
        return [places.described(node, self._pool, now) for node in self._nodes]

    def jobs(self) -> Sequence[JobId]:
        """Jobs with a pod, or with one that is remembered."""
        with self._lock:
            named = {_job for pod in self._pods for _job in identity.job_index(pod)}
            found = [*self._sent, *self._gone]
            return sorted({JobId(job) for job in named} | {job for job, _ in found})

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Pods as they stand."""
        with self._lock:
            known = self._job(job)
            seen = self._seen(job, now)
            alive = frozenset(id for id, one in seen.items() if one.alive)
            known.next = max([self._next(job), *(id + 1 for id in seen)])
            if known.refused and now >= known.refused[1] + _REFUSED:
                known.refused = None
            return Observed(
                job=job,
                replicas=tuple(seen[id] for id in sorted(seen)),
                next_id=known.next,
                # Nothing is taken from a world that nobody has told of.
                named=alive if known.named is None else known.named,
                free=self._free(),
                lacking=known.refused[0] if known.refused else self._spent(job),
            )

    def start(
        self, wish: JobWish, replica: int, environment: Mapping[str, str], now: datetime
    ) -> None:
        """Create the pod; its name is its identity, so nobody creates it twice."""
        with self._lock:
            if replica in self._seen(wish.job, now):
                return
            obj = self._find(wish.job)
            if obj is None:
                raise BadInput(f"job {wish.name}: its ElasticJob is not there any more")
            job, known = ElasticJob.read(obj), self._job(wish.job)
            known.next = max(self._next(wish.job), replica + 1)
            self._secrets.set_aside(wish.job, replica, wish.wish.replicas, environment)
            made = order(
                job,
                wish,
                replica,
                past(self._of_role(wish.job, job.scaled)),
                self._house(),
                now=now,
                epoch=known.epoch,
                place=self._place(wish.job),
                host_ports=self._ports(job),
            )
            made = replace(made, secrets=tuple(sorted(environment)))
            made = replace(made, crowd=replace(made.crowd, uid=wish.job))
            pod = manifest(made)
            pod["metadata"]["ownerReferences"] = [
                identity.owner(job.metadata.name, job.metadata.uid)
            ]
            self._sent[wish.job, replica] = pod
        self._creating.submit(self._create, (wish.job, replica), pod, now)

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Delete the pod, with the grace that its template says, or with ``force`` none."""
        pod = self._pod(job, replica)
        if pod is None or look(pod, replica).phase in (Phase.ENDED, Phase.GONE):
            return
        if not force:
            self._asked.setdefault((job, replica), now)
        metadata = pod["metadata"]
        try:
            self._cluster.delete(
                POD,
                metadata["namespace"],
                metadata["name"],
                uid=metadata.get("uid"),
                grace_seconds=0 if force else None,
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Write the end on the pod where there is one, so that the next operator finds it."""
        with self._lock:
            seen = self._seen(job, now).get(replica)
            if seen is None or seen.phase not in (Phase.GONE, Phase.INTENDED):
                return
            ending = Ending(exit=exit, exit_code=seen.exit_code, detail=detail, at=now)
            self._gone[job, replica] = ended_as(seen, ending)
        pod = self._pod(job, replica)
        if pod is not None:
            self._annotate(pod, {identity.ENDING: wire.encode(ending).decode()})

    def has_token(self, job: JobId) -> bool:
        """Whether the job's Secret has one."""
        return self._secrets.has_token(job)

    def put_token(self, job: JobId, secret: str) -> None:
        """Write it into the job's Secret."""
        self._secrets.put_token(job, secret)

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """From the job's Secret, as long as a pod of it runs."""
        phases = [(pod.get("status") or {}).get("phase") for pod in self._pods.by("job", job)]
        if "Running" not in phases:
            return None
        known = self._secrets.environment(job)
        return {name: known[name] for name in names} if names <= known.keys() else None

    def clear(self, job: JobId) -> None:
        """Take the token out of the Secret, which goes with the job."""
        self._secrets.clear(job)

    def forget(self, job: JobId) -> None:
        """Drop what is remembered of a job that is over, whose object and pods are gone."""
        with self._lock:
            self._known.pop(job, None)
            self._secrets.forget(job)
            for remembered in (self._sent, self._gone, self._asked):
                for replica in [each for each in remembered if each[0] == job]:
                    del remembered[replica]

    def close_down(self) -> None:
        """Wait for what is being created."""
        self._creating.shutdown(wait=True)

    # -- how -------------------------------------------------------------------------------------

    def _seen(self, job: JobId, now: datetime) -> dict[int, ReplicaSeen]:
        """Every replica of the job by id, the surest source last."""
        found = {id: one for (of, id), one in self._gone.items() if of == job}
        for (of, id), pod in list(self._sent.items()):
            if of == job:
                found[id] = self._unseen(pod, (of, id), now)
        for pod in self._pods.by("job", job):
            replica = identity.scaled_of(pod)
            if replica is None:
                continue
            one = look(pod, replica[1])
            closed = self._gone.get(replica)
            if one.phase is Phase.GONE and closed is not None and closed.phase is Phase.ENDED:
                one = closed
            asked = self._asked.get(replica, one.asked_at)
            found[replica[1]] = replace(one, asked_at=asked)
        return found

    def _unseen(self, pod: Object, replica: Replica, now: datetime) -> ReplicaSeen:
        """One that was asked for and is not reflected yet, or, after a while, never was there."""
        one = look(pod, replica[1])
        if now - one.started_at < _UNSEEN:
            return one
        self._sent.pop(replica, None)
        lost = replace(one, phase=Phase.GONE, detail="its pod never came into being")
        self._gone[replica] = lost
        return lost

    def _pod(self, job: JobId, replica: int) -> Object | None:
        for pod in self._pods.by("job", job):
            if identity.scaled_of(pod) == (job, replica):
                return pod
        return None

    def _of_role(self, job: JobId, role: str) -> list[Object]:
        return [
            pod for pod in self.pods_of(job) if (identity.replica_of(pod) or ("", 0))[0] == role
        ]

    def _create(self, replica: Replica, pod: Object, now: datetime) -> None:
        try:
            made = self._cluster.create(POD, pod)
        except AlreadyExists:
            log.info("%s exists already", pod["metadata"]["name"])
        except Invalid as why:
            self._refuse(replica, pod, f"the API server refuses the pod: {why}", now, final=True)
        except BrainError as why:
            # A quota, a webhook, the server itself: another attempt may do.
            self._refuse(replica, pod, f"no pod can be created: {why}", now, final=False)
        except Exception:
            log.exception("creating %s", pod["metadata"]["name"])
            self._refuse(replica, pod, "no pod can be created", now, final=False)
            raise
        else:
            with self._lock:
                if replica in self._sent:
                    self._sent[replica] = made

    def _refuse(
        self, replica: Replica, pod: Object, why: str, now: datetime, *, final: bool
    ) -> None:
        log.warning("%s: %s", pod["metadata"]["name"], why)
        with self._lock:
            self._sent.pop(replica, None)
            self._job(replica[0]).refused = why, now
            if final:
                ending = Ending(exit=ReplicaExit.FAILED, detail=why, at=now)
                self._gone[replica] = ended_as(look(pod, replica[1]), ending)

    def _free(self) -> Resources:
        used = NOTHING
        for pod in self._everybody():
            if (pod.get("status") or {}).get("phase") not in _OVER:
                used = used + reserved(pod)
        return places.total(self._nodes) - used

    def _everybody(self) -> Iterable[Object]:
        """Every pod there is, those that are not reflected yet included, each once."""
        sent = (pod for pod in list(self._sent.values()) if key_of(pod) not in self._pods)
        return [*self._pods, *sent]

    def _spent(self, job: JobId) -> str | None:
        """Why no replica of a job is started any more by what its object allows."""
        obj = self._find(job)
        if obj is None:
            return "its ElasticJob is not there"
        try:
            read = ElasticJob.read(obj)
        except BadInput as why:
            return f"its ElasticJob cannot be used: {why}"
        role = read.spec.replica_specs[read.scaled]
        return exhausted(self._of_role(job, read.scaled), role.restart_count)

    def _place(self, job: JobId) -> Mapping[str, Any] | None:
        """What is known now of where the others are."""
        for pod in self._pods.by("job", job):
            place = identity.place_of(pod)
            if place and (pod.get("status") or {}).get("phase") == "Running":
                return {"endpoint": place.get("endpoint", "")}
        return None

    def _ports(self, job: ElasticJob) -> tuple[int, ...]:
        """For hostNetwork: one for the agent, one for rank 0, free on every host."""
        spec = (job.spec.replica_specs[job.scaled].template or {}).get("spec") or {}
        if not spec.get("hostNetwork"):
            return ()
        taken = ports.taken(self._everybody())
        mine = self._of_role(JobId(job.metadata.uid), job.scaled)
        master = next((port for pod in mine if (port := ports.master(pod))), None)
        master = master or ports.choose(taken, *self._host_ports)
        return ports.choose(taken | {master}, *self._host_ports), master

    def _next(self, job: JobId) -> int:
        """Above every id that was ever used, as far as that is known."""
        known = self._job(job)
        if known.next is None:
            known.next = self._secrets.used(job)
        return known.next

    def _job(self, job: JobId) -> _Known:
        return self._known.setdefault(job, _Known())

    def _annotate(self, pod: Object, annotations: Mapping[str, str]) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata.get("uid"), "annotations": dict(annotations)}}
        try:
            self._pods.learn(
                self._cluster.merge(POD, metadata["namespace"], metadata["name"], patch)
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])


def _other(old: Object | None, new: Object) -> bool:
    """Whether the name belongs to another pod by now."""
    return old is not None and old["metadata"].get("uid") != new["metadata"].get("uid")
