"""A ``JobBackend`` for PyTorchJobs and JobSets: their controllers create pods, and Brain sets the
number of pods.

Each pod is a replica; if the job has a separate master, the master is the first replica. The
backend sets a size through the API of each kind, and suspends the job for size 0. The controllers
remove only the highest index, so a replica can leave only once all replicas above it may leave. The
controllers replace lost pods by themselves, and the backend adopts a recreated pod as a new
replica.

This backend was tested only with objects in the form that the other projects use, never with the
projects' controllers.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from brain import wire
from brain.errors import BadInput, NotFound
from brain.types.job import JobId
from brain.types.resources import Node, PoolName, Resources
from brain.types.roles import WORKER
from brain.types.world import ReplicaExit
from brain.views import DesiredJob
from scaler.adapters import record as records
from scaler.adapters.foreign import clamped
from scaler.adapters.job_secrets import JobSecrets, secret_name
from scaler.adapters.record import JobRecord, RecordEntry, Suspension
from scaler.adapters.sources import Sources
from scaler.adapters.training import ForeignKind, Training
from scaler.kubernetes.pods import places
from scaler.kubernetes.pods.sight import ended_by_deletion
from scaler.kubernetes.runtime.cluster import POD, Cluster, Object
from scaler.ports import NOTHING, Observed, ReplicaPhase

log = logging.getLogger(__name__)


class ForeignBackend:
    """A backend for all jobs that ``sources`` knows.

    Only one such backend may act on a cluster at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Iterable[ForeignKind],
        sources: Sources,
        *,
        pool: str = "kubernetes",
    ) -> None:
        self._cluster, self._sources = cluster, sources
        self._kinds = {each.kind: each for each in kinds}
        self._pool = PoolName(pool)
        self._secrets = JobSecrets(cluster)
        #: Amounts that plans ask each replica to reserve, if they differ from the template.
        self.amounts: dict[JobId, Resources | None] = {}
        #: The loop and the reporter of worlds look at the same jobs from two threads.
        self._lock = threading.RLock()

    def nodes(self, now: datetime) -> Sequence[Node]:
        """Return the cluster's nodes."""
        return places.described(self._sources.nodes(), self._pool, now, self._sources.borne())

    def jobs(self) -> Sequence[JobId]:
        """Return the ids of jobs that have pods or recorded replicas, in ascending order."""
        found = []
        for kind, obj in self.objects():
            read = self._read(kind, obj)
            if read and (self._pods(read) or self._recorded(read)):
                found.append(read.job)
        return sorted(found)

    def _recorded(self, read: Training) -> bool:
        """True if the job has recorded replicas, or a record that nobody can read."""
        try:
            return bool(self._record(read).entries)
        except BadInput:
            # Each look at the job says so, and the other jobs go on.
            return True

    def gone(self, job: JobId, namespace: str, name: str) -> bool:
        """True if the API server has no such job: the stores of a process that has just begun to
        act may be behind it.
        """
        for kind in self._kinds:
            with suppress(NotFound):
                if self._cluster.get(kind, namespace, name)["metadata"]["uid"] == job:
                    return False
        return True

    def forget_others(self, jobs: Collection[JobId]) -> None:
        """Forget all other jobs, whose objects are gone."""
        with self._lock:
            self._secrets.forget_others(jobs)
            self.amounts = {job: each for job, each in self.amounts.items() if job in jobs}

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Observe a job's pods, and record the changes that they show."""
        with self._lock:
            free = self._free(now)
            read = self.find(job)
            if read is None:
                return Observed(job=job, free=free)
            pods, known = self._pods(read), self._known(read)
            if records.changed_elsewhere(known, read):
                return self._observe_suspended(known, read, pods, free)
            seen = records.matched(known, read, pods, now)
            if seen != known:
                self._keep(read, seen)
            return Observed(
                job=job,
                replicas=records.sights(seen, read, pods, self.amounts.get(job)),
                next_id=seen.next_id,
                free=free,
                lacking=read.refusal,
            )

    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        """Record the replica, then request one more pod from the controller.

        ``environment`` does not reach the pod, because the job's author owns the pod template.
        """
        with self._lock:
            read = self.find(wish.job)
            if read is None or read.refusal or read.over or self._held(read, wish.wish.version):
                return
            known = records.matched(self._known(read), read, self._pods(read), now)
            entry = known.entry(replica)
            if entry is not None and self._phase(entry, known, read) is not ReplicaPhase.INTENDED:
                return
            position = records.free_position(known, read)
            if entry is None:
                entry = RecordEntry(
                    id=replica,
                    pod=read.pod_name(position),
                    generation=wish.wish.generation,
                    started_at=now,
                )
                if position >= read.bounds.max:
                    detail = (
                        f"{read.kind.kind} {read.name} allows at most {read.bounds.max} replicas"
                    )
                    entry = replace(entry, exit=ReplicaExit.FAILED, ended_at=now, detail=detail)
                known = known.put(entry)
                self._keep(read, known)
            if entry.exit is None:
                self._resize(read, max(read.replicas, len(known.open)))

    def reserve(self, wish: DesiredJob, replica: int, now: datetime) -> None:
        """Do nothing: this backend reports no pod as adjustable."""

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Record that a replica should leave, then request the smallest size that keeps the
        others.
        """
        with self._lock:
            read = self.find(job)
            if read is None or read.refusal:
                return
            pods, known = self._pods(read), self._known(read)
            if records.changed_elsewhere(known, read) is not None:
                # Brain decides anew once it has been told.
                return
            known = records.matched(known, read, pods, now)
            entry = known.entry(replica)
            if entry is None or entry.exit is not None:
                return
            pod = next((p for p in pods if p["metadata"]["uid"] == entry.uid), None)
            if pod is None and entry.uid is not None:
                return
            if entry.asked_at is None:
                entry = replace(entry, asked_at=now)
                known = known.put(entry)
                self._keep(read, known)
            self._resize(read, records.asked(known, read))
            if force and pod is not None:
                self._kill(pod)

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Record the end of a replica whose pod is gone, or that was never requested."""
        with self._lock:
            read = self.find(job)
            if read is None:
                return
            pods = self._pods(read)
            known = records.matched(self._known(read), read, pods, now)
            seen = {each.id: each for each in records.sights(known, read, pods)}.get(replica)
            entry = known.entry(replica)
            if (
                entry is not None
                and seen is not None
                and seen.phase in (ReplicaPhase.GONE, ReplicaPhase.INTENDED)
            ):
                ended = replace(entry, exit=exit, detail=detail, ended_at=now)
                self._keep(read, known.put(ended))

    def has_token(self, job: JobId) -> bool:
        """True if the job's Secret has a token.

        A pod gets the token only if the job's template refers to the Secret.
        """
        read = self.find(job)
        return read is not None and "token" in self._secrets.read(read)

    def put_token(self, job: JobId, secret: str) -> None:
        if (read := self.find(job)) is not None:
            self._secrets.write(read, {"token": secret})

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """Return None: the environment is in the job's template, which its author owns."""
        return None

    def clear(self, job: JobId) -> None:
        """Remove the token from the job's Secret; the record of replicas stays there."""
        if (read := self.find(job)) is not None and "token" in self._secrets.read(read):
            self._secrets.write(read, {"token": None})

    def suspended_elsewhere(self, job: JobId) -> bool | None:
        """Return the value of ``suspend`` that another program or person wrote; None if Brain has
        already been informed of the present value.

        This asks the API server, because the stores may not have Brain's own last write yet.
        """
        with self._lock:
            read = self.find(job)
            if read is None or records.changed_elsewhere(self._known(read), read) is None:
                return None
            obj = self._cluster.get(read.kind, read.namespace, read.name)
            fresh = self.read(self._kinds[read.kind], obj)
            if fresh.job != job:
                return None
            return records.changed_elsewhere(self._known(fresh), fresh)

    def heard(self, job: JobId, suspended: bool, version: int) -> None:
        """Record that Brain has been informed of a value of ``suspend``.

        ``version`` is the version of the desired world that Brain then returned.
        """
        with self._lock:
            if (read := self.find(job)) is not None:
                told = Suspension(suspended=suspended, generation=read.generation, version=version)
                self._keep(read, replace(self._known(read), suspension=told))

    def _held(self, read: Training, version: int) -> bool:
        """True if somebody suspended the job, and a desired world of ``version`` is older."""
        known = self._known(read)
        told = known.suspension
        by_others = told is not None and told.suspended and version <= told.version
        return bool(records.changed_elsewhere(known, read)) or by_others

    def _observe_suspended(
        self, known: JobRecord, read: Training, pods: Sequence[Object], free: Resources
    ) -> Observed:
        """Look at a job that somebody suspended, until Brain is told.

        Pods that vanish meanwhile count as alive, because Brain would take their end for a failure.
        """
        found = records.sights(known, read, pods, self.amounts.get(read.job))
        return Observed(
            job=read.job,
            replicas=tuple(
                replace(each, phase=ReplicaPhase.STARTING)
                if each.phase is ReplicaPhase.GONE
                else each
                for each in found
            ),
            next_id=known.next_id,
            free=free,
            lacking=f"somebody suspended {read.kind.kind} {read.name}",
        )

    def _resize(self, read: Training, replicas: int) -> None:
        """Set the number of workers, within the bounds; 0 replicas is ``suspend``."""
        if replicas == 0:
            self._suspend(read, True)
            return
        workers = read.workers_for(clamped(read.bounds, replicas))
        if workers != read.workers:
            named = read.kind.kind, read.name
            log.info("%s %s gets %d workers instead of %d", *named, workers, read.workers)
            self._kinds[read.kind].resize(self._cluster, read, workers)
        if read.suspended:
            self._suspend(read, False)

    def _suspend(self, read: Training, suspend: bool) -> None:
        if read.suspended != suspend and not read.over:
            written = Suspension(suspended=suspend, generation=read.generation)
            self._keep(read, replace(self._known(read), suspension=written))
            self._kinds[read.kind].suspend(self._cluster, read, suspend)

    def _kill(self, pod: Object) -> None:
        meta = pod["metadata"]
        try:
            self._cluster.delete(
                POD, meta["namespace"], meta["name"], uid=meta["uid"], grace_seconds=0
            )
        except NotFound:
            return

    def _phase(self, entry: RecordEntry, known: JobRecord, read: Training) -> ReplicaPhase:
        seen = records.sights(known, read, self._pods(read))
        return next(each.phase for each in seen if each.id == entry.id)

    def find(self, job: JobId) -> Training | None:
        """Return a job by its uid; None if no readable job has it."""
        found = ((kind, self._sources.job(kind.kind, job)) for kind in self._kinds.values())
        return next((self._read(kind, obj) for kind, obj in found if obj is not None), None)

    def objects(self) -> Iterable[tuple[ForeignKind, Object]]:
        return ((k, obj) for k in self._kinds.values() for obj in self._sources.jobs(k.kind))

    def read(self, kind: ForeignKind, obj: Object) -> Training:
        """Read a job of another project from its object.

        Raises:
            BadInput: Brain cannot manage the object as a job; the message names the field.
        """
        namespace = obj["metadata"].get("namespace", "")
        return kind.training(obj, self._sources.beside(kind, namespace))

    def _read(self, kind: ForeignKind, obj: Object) -> Training | None:
        try:
            return self.read(kind, obj)
        except BadInput as odd:
            named = kind.kind.kind, obj["metadata"]["name"]
            log.warning("Brain does not change %s %s: %s", *named, odd)
            return None

    def _pods(self, read: Training) -> list[Object]:
        found = self._sources.pods(self._kinds[read.kind].label, read.namespace, read.name)
        return [pod for pod in found if _owned(pod, read.owner) and not ended_by_deletion(pod)]

    def _free(self, now: datetime) -> Resources:
        """Return the resources that no pod of the watched namespaces reserves."""
        whole = sum((node.capacity for node in self.nodes(now) if node.schedulable), NOTHING)
        return whole - self._sources.used()

    def _record(self, read: Training) -> JobRecord:
        text = self._secrets.read(read).get("record")
        try:
            return JobRecord() if text is None else wire.decode(text, JobRecord)
        except BadInput as odd:
            raise BadInput(
                f"the record of {read.kind.kind} {read.name}'s replicas cannot be read, because "
                f"somebody edited the Secret {secret_name(read.name)} ({odd}); restore the Secret, "
                "or create the job again",
                field="record",
            ) from odd

    def _known(self, read: Training) -> JobRecord:
        """Return the job's record; at the first look, ``suspend`` is as its owner created it."""
        known = self._record(read)
        if known.suspension is not None:
            return known
        first = Suspension(suspended=read.suspended, generation=read.generation)
        known = replace(known, suspension=first)
        self._keep(read, known)
        return known

    def _keep(self, read: Training, known: JobRecord) -> None:
        self._secrets.write(read, {"record": wire.encode(known).decode()})


def _owned(pod: Object, owner: str | None) -> bool:
    return any(each.get("uid") == owner for each in pod["metadata"].get("ownerReferences") or ())
