"""Jobs in a queue of Kueue: creates and deletes the Workloads by which these jobs request quota.

A job does not run until Kueue admits its first Workload.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

import msgspec

from brain.errors import BadInput, NotAllowed
from brain.types.job import JobDocument, JobState
from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, JobCondition, Reason
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods.identity import WORKER, group_of
from scaler.kubernetes.pods.orders import gang_size, group_sizes
from scaler.kubernetes.pods.quota import (
    NUMBER,
    WORKLOAD,
    admitted,
    counts,
    is_true,
    job_of,
    outdated,
    pods_in,
    queue_of,
    runs,
    words,
    workload,
)
from scaler.kubernetes.runtime.cluster import AlreadyExists, Cluster, NotFound, Object, key_of
from scaler.kubernetes.runtime.status import StatusCondition, conditions, write_status
from scaler.kubernetes.runtime.store import Store

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A job's place in its queue: if it may run, and to which size it must shrink."""

    #: The job as it may run: suspended until Kueue admits it.
    job: ElasticJob
    #: True if Kueue has not admitted the job, or evicts it.
    held: bool = False
    #: The condition: True if all is admitted, reason, and message; empty if the job is in no queue.
    told: tuple[tuple[bool, Reason, str], ...] = ()
    #: A group, and the replicas to which it must shrink, because units lost their quota; None if
    #: none must. ``worker`` counts the replicas outside groups.
    leaves: tuple[str, int] | None = None


class Queues:
    """Keeps the Workloads of jobs whose label names a queue."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: None if Kueue is not installed.
        self._store: Store | None = None

    @property
    def served(self) -> bool:
        """True if Kueue is installed."""
        return self._store is not None

    def follow(self, store: Store) -> None:
        """Read Workloads from ``store`` from now on."""
        store.index("job", lambda obj: (str(job_of(obj)),))
        self._store = store

    def admitted(self, obj: Object | None) -> Mapping[str, int] | None:
        """Return the replicas of each group that Kueue admits; None if the job is in no queue."""
        if obj is None or self._store is None or queue_of(obj) is None:
            return None
        with suppress(BadInput):
            return admitted(self._of(obj["metadata"]["uid"]), read_elastic_job(obj))
        return {}

    def tend(
        self,
        obj: Object,
        job: ElasticJob,
        document: JobDocument,
        view: JobView | None,
        mine: Sequence[Object],
        now: datetime,
        *,
        by_person: bool = False,
    ) -> Standing:
        """Check the Workloads of a job once; ``mine`` are its pods.

        ``by_person`` is True if a person suspended the job in Brain, so that no admission may
        resume it.
        """
        queue = queue_of(obj)
        if queue is None or self._store is None:
            return Standing(job=job, told=self._leave(obj))
        try:
            return self._look(queue, job, document, view, mine, now, by_person=by_person)
        except (NotAllowed, BadInput) as why:
            held = not runs(self._of(job.metadata.uid).get(0, {}))
            told = False, Reason.QUEUED if held else Reason.NO_SHARE, f"{queue}: {why}"
            return Standing(job=_suspended(job) if held else job, held=held, told=(told,))

    def _look(
        self,
        queue: str,
        job: ElasticJob,
        document: JobDocument,
        view: JobView | None,
        mine: Sequence[Object],
        now: datetime,
        *,
        by_person: bool,
    ) -> Standing:
        have = self._of(job.metadata.uid)
        alive = Counter(group_of(pod) for pod in mine if _alive(pod))
        least, unit = gang_size(job, document), document.replicas.unit
        first = counts(job, least, {n: one.replicas for n, one in document.allocation.roles})
        if job.spec.suspend or (by_person and (0 not in have or runs(have[0]))):
            if not alive:
                self._delete(have.values())
            said = "the job is suspended, so it requests no quota"
            return Standing(job=job, told=((False, Reason.SUSPENDED, said),))
        have = self._renewed(job, queue, have, first, unit)
        if 0 not in have:
            have = {0: self._create(workload(job, queue, 0, first))} | have
        if not runs(have[0]):
            if not alive:
                self._release(have[0], now)
                self._delete(each for number, each in have.items() if number)
            said = f"{queue}: {words(have[0])}"
            return Standing(job=_suspended(job), held=True, told=((False, Reason.QUEUED, said),))
        begun = pods_in(have[0], job)
        wished = _wished(job, view) or begun
        self._grow(job, queue, have, wished - begun, unit, alive - begun)
        size = admitted(have, job)
        for number, each in have.items():
            beyond = alive - size
            if (
                number
                and is_true(each, "Evicted")
                and not pods_in(each, job).keys() & beyond.keys()
            ):
                self._release(each, now)
        short = wished - size
        # A unit was evicted, or somebody deleted its Workload.
        leaves = next(((name, size[name]) for name in sorted(short & beyond)), None)
        if not short:
            said = f"{queue}: {size.total()} replicas"
            return Standing(job=job, told=((True, Reason.QUOTA, said),))
        pending = (each for number, each in sorted(have.items()) if number and not runs(each))
        said = f"{(wished & size).total()} of {wished.total()} replicas"
        told = False, Reason.NO_SHARE, f"{queue}: {said}: {words(next(pending, {}))}"
        return Standing(job=job, told=(told,), leaves=leaves)

    def end(self, obj: Object, state: JobState, now: datetime) -> None:
        """Finish the Workloads of a job that has ended, so that Kueue gets their quota back."""
        have = self._of(obj["metadata"]["uid"])
        self._delete(each for number, each in have.items() if number)
        if 0 in have and not is_true(have[0], "Finished"):
            reason = "Succeeded" if state is JobState.SUCCEEDED else "Failed"
            said = StatusCondition(
                type="Finished", status=True, reason=reason, message=f"the job is {state}"
            )
            self._say(have[0], [said], {}, now)

    def _leave(self, obj: Object) -> tuple[tuple[bool, Reason, str], ...]:
        """Release the quota of a job that is in no queue; return the condition if it was in one."""
        with suppress(NotAllowed):
            self._delete(self._of(obj["metadata"]["uid"]).values())
        known = (obj.get("status") or {}).get("conditions") or ()
        was = any(each.get("type") == JobCondition.ADMITTED for each in known)
        return ((True, Reason.NO_QUEUE, "the job is in no queue of Kueue"),) if was else ()

    def _renewed(
        self,
        job: ElasticJob,
        queue: str,
        have: Mapping[int, Object],
        first: Mapping[str, int],
        unit: int,
    ) -> dict[int, Object]:
        """Delete Workloads without quota that ask for other amounts than the job does now."""
        asked = {n: first if n == 0 else {_pod_set(each): unit} for n, each in have.items()}
        made = {number: workload(job, queue, number, pods) for number, pods in asked.items()}
        old = {number for number, each in have.items() if outdated(each, made[number])}
        self._delete(have[number] for number in old)
        return {number: each for number, each in have.items() if number not in old}

    def _grow(
        self,
        job: ElasticJob,
        queue: str,
        have: Mapping[int, Object],
        wished: Mapping[str, int],
        unit: int,
        grown: Mapping[str, int],
    ) -> None:
        """Keep a Workload for each unit of the ``wished`` replicas of each group beyond the least
        size; ``grown`` are the pods beyond it.
        """
        free = iter(number for number in count(1) if number not in have)
        for group in (WORKER, *sorted(job.groups)):
            pods = job.scaled if group == WORKER else group
            mine = [number for number, each in have.items() if number and _pod_set(each) == pods]
            further = sorted(mine, key=lambda number: (not runs(have[number]), number))
            units = math.ceil(wished.get(group, 0) / unit)
            # A unit keeps its quota until its pods are gone.
            kept = max(units, math.ceil(grown.get(group, 0) / unit))
            self._delete(have[number] for number in further[kept:])
            for number in [next(free) for _ in range(units - len(further))]:
                self._create(workload(job, queue, number, {pods: unit}))

    def _of(self, job: str) -> dict[int, Object]:
        found = self._store.by("job", job) if self._store is not None else ()
        return {int(each["metadata"]["labels"].get(NUMBER, 0)): each for each in found}

    def _create(self, made: dict[str, Any]) -> Object:
        assert self._store is not None
        with suppress(AlreadyExists):
            made = self._cluster.create(WORKLOAD, made)
            self._store.learn(made)
        return made

    def _delete(self, workloads: Iterable[Object]) -> None:
        for each in workloads:
            with suppress(NotFound):
                self._cluster.delete(WORKLOAD, *key_of(each), uid=each["metadata"].get("uid"))

    def _release(self, obj: Object, now: datetime) -> None:
        """Give the quota of an evicted Workload back; Kueue queues it again, unless inactive."""
        if not (is_true(obj, "Evicted") and is_true(obj, "QuotaReserved")):
            return
        evicted = next(c for c in obj["status"]["conditions"] if c["type"] == "Evicted")
        message, reason = str(evicted.get("message", "")), str(evicted.get("reason", ""))
        back = reason in ("Preempted", "NodeFailures")
        said = [
            StatusCondition(type="QuotaReserved", status=False, reason="Pending", message=message),
            StatusCondition(type="Admitted", status=False, reason="NoReservation", message=message),
            StatusCondition(type="Requeued", status=back, reason=reason, message=message),
        ]
        self._say(obj, said, {"admission": None}, now)

    def _say(
        self, obj: Object, said: list[StatusCondition], more: Mapping[str, Any], now: datetime
    ) -> None:
        known, generation = obj.get("status") or {}, int(obj["metadata"].get("generation") or 1)
        listed = conditions(known.get("conditions"), said, generation=generation, now=now)
        answer = write_status(self._cluster, WORKLOAD, obj, {**known, "conditions": listed, **more})
        if answer is not None and self._store is not None:
            self._store.learn(answer)


def _wished(job: ElasticJob, view: JobView | None) -> Counter[str]:
    """Return the replicas that each group of a job should have; nothing if that is unknown, or if
    it should have none.
    """
    size = view.replicas_wished if view is not None else 0
    groups = group_sizes(job, view) if size else {}
    return +Counter({**groups, WORKER: size - sum(groups.values())})


def _pod_set(further: Object) -> str:
    """Return the name of the only pod set of a further unit's Workload."""
    return str(further["spec"]["podSets"][0]["name"])


def _suspended(job: ElasticJob) -> ElasticJob:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, suspend=True))


def _alive(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in _OVER
