"""Observes replicas through their pods, the cache and their nodes."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.world import ReplicaExit
from scaler.kubernetes.pods import gang, identity
from scaler.kubernetes.pods.sight import look, node_of, vanished
from scaler.kubernetes.replicas.cache import JobCache
from scaler.kubernetes.replicas.losses import NodeLoss, NodeLosses
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.store import Store, StoreChange
from scaler.ports import ReplicaPhase, ReplicaSeen


class Replicas:
    """All replicas whose number plans change. Many threads may use an instance.

    No request is sent to the API server while the lock is held, because the watching thread needs
    the lock, too.
    """

    def __init__(
        self,
        pods: Store,
        losses: NodeLosses,
        *,
        first: Callable[[JobId], int],
        there: Callable[[JobId, int], bool],
        advised: Callable[[JobId], bool],
        drains: Callable[[JobId], bool],
    ) -> None:
        """``first`` returns an id greater than every id that an earlier operator may have used.

        ``there`` asks the API server for the pod of a replica that the stores do not show; True if
        the stores show the pod from now on.

        ``advised``: True if DLRover's own master runs the job, so that its pods are the replicas.
        ``drains``: True if the job's replicas leave cordoned nodes.
        """
        self._pods, self._losses, self._used_before, self._there = pods, losses, first, there
        self._advised, self._drains = advised, drains
        self._pods.index("job", identity.job_index)
        self._pods.index("their job", identity.their_index)
        self._lock = threading.RLock()
        self._known: dict[JobId, JobCache] = {}
        #: Replicas on each node by a job's plan that only moves them; new replicas go there.
        self.moving: dict[JobId, tuple[tuple[NodeName, int], ...]] = {}

    def changed(self, change: StoreChange, now: datetime) -> None:
        """Record that a pod was added, changed or deleted; the watching thread calls this."""
        found = identity.scaled_of(change.latest)
        theirs = identity.theirs_of(change.latest) if found is None else None
        if theirs is not None and self._advised(theirs[0]):
            found = theirs
        if found is None:
            return
        job, id = found
        with self._lock:
            known = self._job(job)
            known.sent.pop(id, None)
            if change.new is None or _other(change.old, change.new):
                assert change.old is not None, "what goes was there"
                before = known.gone.get(id)
                # Brain's belief in a replica before its pod was listed says nothing of the
                # replica's end.
                if before is None or before.phase is not ReplicaPhase.ENDED:
                    known.gone[id] = vanished(look(change.old, id), known.asked.get(id), now)

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
        """Record Brain's knowledge of a job: its living replicas, its world and the world's epoch.

        If neither the stores nor the API server have the pod of a replica that Brain believes
        alive, the pod vanished while no operator ran. The watch of an operator that has just taken
        the lease may be silent, so the stores alone prove nothing; nor do they before the first
        list.
        """
        first = self._first(job)
        with self._lock:
            known = self._job(job)
            known.named, known.epoch = named, max(known.epoch, epoch)
            here = self._seen(job, now)
            known.next = max(known.next or first, used)
        unseen = [id for id in believed if id not in here] if self._pods.whole else []
        lost = [id for id in unseen if not self._there(job, id)]
        with self._lock:
            here = self._seen(job, now)
            for id in lost:
                if id not in here:
                    known.gone[id] = ReplicaSeen(
                        id=id,
                        phase=ReplicaPhase.GONE,
                        generation=0,
                        started_at=now,
                        detail="its pod was deleted, and no scaler saw it end",
                    )

    def pods_of(self, job: JobId) -> list[Object]:
        """Return the job's pods, including requested pods that the stores do not show yet."""
        with self._lock:
            found = {pod["metadata"]["name"]: pod for pod in self._pods.by("job", job)}
            known = self._known.get(job)
            sent = {each.key.name: each.pod for each in known.sent.values()} if known else {}
            return list((sent | found).values())

    def proved_gone(self, job: JobId, now: datetime) -> list[int]:
        """Return the replicas of which the cluster proves that no process runs any more.

        This includes a replica whose pod is being deleted. It does not include a replica on a
        silent node, because such a replica may still run.
        """
        with self._lock:
            told = {
                id for id, pod in self._pods_by_id(job) if "deletionTimestamp" in pod["metadata"]
            }
            seen = self._seen(job, now)
        return [id for id, one in seen.items() if not one.alive and (not one.leaving or id in told)]

    def cut_off(self, job: JobId, now: datetime) -> frozenset[int]:
        """Return the replicas on silent nodes, whose addresses must not be given to other
        agents.
        """
        with self._lock:
            seen = self._job(job).seen(dict(self._pods_by_id(job)), now)
        lost = (id for id, one in seen.items() if self._losses.of(one.node, now) is NodeLoss.SILENT)
        return frozenset(lost)

    def leaving(
        self, job: JobId, patience: timedelta, now: datetime
    ) -> Mapping[int, datetime | None]:
        """Return the living replicas of nodes that drain or are cordoned, each with a time limit.

        Until this time a replica waits for its replacement. None means that the end of the node is
        announced, so the replica does not wait.
        """
        found: dict[int, datetime | None] = {}
        for id, pod in self._pods_by_id(job):
            node = node_of(pod) if gang.stays(pod) else None
            loss = self._losses.of(node, now)
            if loss is NodeLoss.DRAINING:
                found[id] = None
            elif loss is NodeLoss.CORDONED and self._drains(job):
                found[id] = self._losses.cordoned_since(node, now) + patience
        return found

    def members(self, job: JobId) -> frozenset[int]:
        """Return the replicas of the job's world from Brain's last report; empty if unknown."""
        known = self._known.get(job)
        return (known.named if known is not None else None) or frozenset()

    def refusal(self, job: JobId) -> str | None:
        """Return the API server's last refusal of a pod of the job; None if a later pod was
        accepted.
        """
        known = self._known.get(job)
        return known.refused.said if known is not None and known.refused else None

    def jobs_on(self, node: str) -> set[JobId]:
        """Return jobs with a pod on a node."""
        found = (identity.scaled_of(pod) for pod in self._pods if node_of(pod) == node)
        return {each[0] for each in found if each is not None}

    def seen(self, job: JobId, now: datetime) -> Sequence[ReplicaSeen]:
        """Return every replica of a job, as observed."""
        with self._lock:
            return list(self._seen(job, now).values())

    def jobs(self) -> Sequence[JobId]:
        """Return jobs that have a pod or a cached replica."""
        with self._lock:
            named = {JobId(job) for job in self._pods.values("job")}
            theirs = (JobId(job) for job in self._pods.values("their job"))
            named |= {job for job in theirs if self._advised(job)}
            return sorted(named | {job for job, known in self._known.items() if not known.empty})

    # -- how -------------------------------------------------------------------------------------

    def _seen(self, job: JobId, now: datetime) -> dict[int, ReplicaSeen]:
        """Return every replica of the job by id, those of lost nodes as lost."""
        seen = self._job(job).seen(dict(self._pods_by_id(job)), now)
        if self._advised(job):
            seen = {id: _left_to_its_master(one) for id, one in seen.items()}
        return {id: self._where_lost(job, one, now) for id, one in seen.items()}

    def _where_lost(self, job: JobId, one: ReplicaSeen, now: datetime) -> ReplicaSeen:
        over = one.phase in (ReplicaPhase.GONE, ReplicaPhase.ENDED)
        loss = None if over else self._losses.of(one.node, now)
        match loss:
            case NodeLoss.OUT:
                detail = f"{loss}: {one.node}"
                return replace(one, phase=ReplicaPhase.GONE, leaving=False, detail=detail)
            case NodeLoss.SILENT | NodeLoss.DRAINING:
                return replace(one, leaving=True)
            case NodeLoss.CORDONED:
                return replace(one, leaving=one.leaving or self._drains(job))
            case None:
                return one

    def _pods_by_id(self, job: JobId) -> Iterator[tuple[int, Object]]:
        for pod in self._pods.by("job", job):
            if found := identity.scaled_of(pod):
                yield found[1], pod
        for pod in self._pods.by("their job", job) if self._advised(job) else ():
            if found := identity.theirs_of(pod):
                yield found[1], pod

    def _pod(self, job: JobId, replica: int) -> Object | None:
        return next((pod for id, pod in self._pods_by_id(job) if id == replica), None)

    def _of_role(self, job: JobId, role: str) -> list[Object]:
        return [
            pod for pod in self.pods_of(job) if (identity.replica_of(pod) or ("", 0))[0] == role
        ]

    def _first(self, job: JobId) -> int:
        """Return an id above every id used before this process; the API server is asked once."""
        known = self._known.get(job)
        if known is not None and known.next is not None:
            return known.next
        return self._used_before(job)

    def _job(self, job: JobId) -> JobCache:
        return self._known.setdefault(job, JobCache())


def _left_to_its_master(one: ReplicaSeen) -> ReplicaSeen:
    """Turn a failure into a loss, since DLRover decides if a failure ends the job."""
    return replace(one, exit=ReplicaExit.LOST) if one.exit is ReplicaExit.FAILED else one


def _other(old: Object | None, new: Object) -> bool:
    """True if the name belongs to another pod by now."""
    return old is not None and old["metadata"].get("uid") != new["metadata"].get("uid")
