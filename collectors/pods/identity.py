"""Maps pods to jobs, and a pod's name at a given time to the pod that had the name then.

Names are reused: ``digits-worker-0`` is another pod after a restart, and belongs to another job
after a second ``kubectl apply``. uids are not reused, but exporters and metrics-server report only
names. So this module keeps *stays*: a pod's uid, node and job, and the times at which the pod began
and ended. A reading belongs to the stay that includes its time, even if labels are late or missing.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeVar

from brain.types.job import JobId
from collectors.pods.sights import PodSight

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

#: A reading may have a time this long after its pod's end: it covers a window, and exporters lag.
LAG = timedelta(seconds=90)
#: Ended stays are kept for this time; no reading is older.
KEEP = timedelta(hours=1)

#: Label with the job's uid, on pods that Brain's operator creates.
UID_LABEL = "elastic.iml.github.io/job-uid"
#: Labels of a pod with the name of its job.
NAME_LABELS = (
    "elasticjob.dlrover/name",
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
#: Labels, and patterns of names, that contain a pod's role and replica id.
_ROLE_LABELS = (
    "elasticjob.dlrover/replica-type",
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
)
_ID_LABELS = (
    "elasticjob.dlrover/replica-index",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
)
_NAMES = (
    re.compile(r"(?P<job>.+)-edljob-(?P<role>[a-z-]+)-(?P<id>\d+)"),
    re.compile(r"(?P<job>.+)-(?P<role>master|worker|ps|chief|evaluator)-(?P<id>\d+)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """A job whose object the cluster's API server has, or had."""

    #: uid of the job's object, which is also the job's id in Brain.
    job: JobId
    kind: str
    namespace: str
    name: str
    created_at: datetime
    #: None while the object exists and the job has not ended.
    ended_at: datetime | None = None
    #: True if DLRover's master runs the job. Brain's operator then reports the job's pods.
    advised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStay:
    """One pod, and the time for which it existed."""

    pod: PodSight
    job: JobId | None
    begin: datetime
    #: None while the pod exists and has not ended.
    end: datetime | None = None

    def covers(self, at: datetime) -> bool:
        """True if a reading at the time ``at`` may belong to this pod."""
        return self.begin <= at and (self.end is None or at <= self.end + LAG)


@dataclass(frozen=True)
class ClusterJobs:
    """All jobs of the cluster."""

    all: Sequence[ClusterJob] = ()

    @cached_property
    def ids(self) -> frozenset[str]:
        return frozenset(job.job for job in self.all)

    @cached_property
    def named(self) -> Mapping[tuple[str, str], list[ClusterJob]]:
        """Return jobs by namespace and name; one name may have belonged to several jobs, one after
        another.
        """
        return _grouped(self.all, lambda job: (job.namespace, job.name))


@dataclass(frozen=True)
class Stays:
    """Stays by pod uid."""

    all: Mapping[str, PodStay] = field(default_factory=dict)

    @cached_property
    def named(self) -> Mapping[tuple[str, str], list[PodStay]]:
        """Return stays by namespace and name of the pod."""
        return _grouped(self.all.values(), lambda stay: (stay.pod.namespace, stay.pod.name))

    @cached_property
    def placed(self) -> Mapping[str | None, list[PodStay]]:
        return _grouped(self.all.values(), lambda stay: stay.pod.node)

    def at(self, namespace: str, name: str, instant: datetime) -> PodStay | None:
        """Return the pod that had this name at ``instant``, or the later one of two such pods; None
        if no pod had it.
        """
        alike = self.named.get((namespace, name), ())
        return max((s for s in alike if s.covers(instant)), key=lambda s: s.begin, default=None)

    def on(self, node: str, instant: datetime) -> list[PodStay]:
        """Return the pods that ran on a node at ``instant``."""
        return [
            stay
            for stay in self.placed.get(node, ())
            if stay.begin <= instant and (stay.end is None or instant < stay.end)
        ]


def replica_of(pod: PodSight) -> tuple[str, int] | None:
    """Return a pod's role and replica id from its name, else from its labels; None if neither has
    them.

    The name is preferred, because ids in names are never reused, but indexes in labels are.
    """
    for form in _NAMES:
        if found := form.fullmatch(pod.name):
            return found["role"], int(found["id"])
    role = next((pod.labels[each] for each in _ROLE_LABELS if pod.labels.get(each)), None)
    index = next((pod.labels[each] for each in _ID_LABELS if pod.labels.get(each)), "")
    return (role, int(index)) if role and index.isdigit() else None


def job_of(pod: PodSight, jobs: ClusterJobs) -> JobId | None:
    """Return the job of a pod by uid, else by labels, else by name; None if it belongs to no job.

    A label or name matches only jobs that existed when the pod was created. Of several jobs with
    the same name, the latest is returned.
    """
    for uid in (pod.labels.get(UID_LABEL), pod.owner.uid if pod.owner else None):
        if uid in jobs.ids:
            return JobId(uid)
    names = [pod.labels[label] for label in NAME_LABELS if label in pod.labels]
    names += [found["job"] for form in _NAMES if (found := form.fullmatch(pod.name))]
    if pod.owner is not None:
        names.append(pod.owner.name)
    for name in names:
        alike = jobs.named.get((pod.namespace, name), ())
        there = [job for job in alike if _there(job, pod.created_at)]
        if there:
            return max(there, key=lambda job: job.created_at).job
    return None


def looked(stays: Stays, pods: Iterable[PodSight], jobs: ClusterJobs, now: datetime) -> Stays:
    """Return the stays, updated from the list of all pods.

    A pod that is missing from the list has ended since the previous list. Its stay keeps the last
    observation, which may show how the pod ended.
    """
    seen = {pod.uid: pod for pod in pods}
    found = {
        uid: _stay(stays.all.get(uid), pod, job_of(pod, jobs), now) for uid, pod in seen.items()
    }
    for uid, stay in stays.all.items():
        if uid in seen:
            continue
        gone = stay if stay.end is not None else replace(stay, end=now)
        if gone.end is not None and now - gone.end <= KEEP:
            found[uid] = gone
    return Stays(found)


def _there(job: ClusterJob, instant: datetime) -> bool:
    return job.created_at <= instant and (job.ended_at is None or instant <= job.ended_at)


def _stay(before: PodStay | None, pod: PodSight, job: JobId | None, now: datetime) -> PodStay:
    # What a pod was once known to be of, it is of: its job's object may be gone before it.
    job = job or (before.job if before else None)
    ended = (pod.end.at or now) if pod.end else None
    if before is not None and before.end is not None and pod.end is not None:
        ended = before.end
    return PodStay(pod=pod, job=job, begin=pod.created_at, end=ended)


def _grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    found: dict[Key, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
