"""Cancels jobs whose ElasticJob was deleted, unless the deletion leaves the pods running."""

import logging
from collections.abc import Callable, Sequence

from brain.errors import BrainError, Conflict, NotFound
from brain.types.job import FINISHED, Intent, JobId
from brain.views import JobView
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.plans.requests import JOB
from scaler.kubernetes.pods import gang
from scaler.kubernetes.runtime.cluster import Cluster, Key, Object
from scaler.kubernetes.runtime.store import Store, StoreChange

log = logging.getLogger(__name__)


def orphans(obj: Object) -> bool:
    """True if an object is deleted with ``--cascade=orphan``, so that its pods stay."""
    return "orphan" in (obj["metadata"].get("finalizers") or ())


class Withdrawals:
    """Cancels jobs in Brain whose objects were deleted."""

    def __init__(
        self,
        cluster: Cluster,
        brain: OperatorsBrain,
        jobs: Store,
        pods: Store,
        namespaces: Sequence[str],
        *,
        forget: Callable[[JobId], object],
        release: Callable[[Object], None],
    ) -> None:
        """``namespaces`` are the namespaces whose objects this operator reads; empty means all.

        ``release`` is called with each deleted object whose pods continue.
        """
        self._cluster, self._brain, self._jobs, self._pods = cluster, brain, jobs, pods
        self._forget, self._release = forget, release
        self._namespaces = frozenset(namespaces)
        #: Jobs whose objects were deleted and whose pods continue.
        self._orphaned: set[JobId] = set()
        #: Deleted objects whose pods continue, but were not released yet.
        self._held: dict[Key, Object] = {}

    def changed(self, change: StoreChange) -> None:
        """Record a change to an object that is deleted without its pods.

        The thread that watches the API server calls this.
        """
        if orphans(change.latest):
            self._held[change.key] = change.latest
            if change.new is None:
                self._orphaned.add(JobId(str(change.latest["metadata"].get("uid"))))

    def withdraw(self, key: Key) -> None:
        """Cancel the job of a deleted object; Kubernetes deletes the pods that the object owns."""
        if (left := self._held.get(key)) is not None:
            self._release(left)
            self._held.pop(key, None)
        for id, view in self._brain.views().items():
            here = (view.project, view.name) == (key.namespace, key.name)
            if here and _goes_on(view) and not self._left_alone(id) and self._gone(id, view):
                self._cancel(id)

    def sweep(self) -> None:
        """Cancel jobs in Brain whose objects were deleted while no operator watched."""
        for id, view in self._brain.views().items():
            # Nobody here can tell whether an object of an unserved namespace is gone.
            served = not self._namespaces or view.project in self._namespaces
            missed = _goes_on(view) and served and self._find(id) is None
            if missed and not self._left_alone(id):
                try:
                    if self._gone(id, view):
                        self._cancel(id)
                except BrainError as why:
                    # The next sweep tries this job again; the other jobs come first.
                    log.warning(
                        "job %s is not cancelled yet, although its ElasticJob was deleted: %s",
                        id,
                        why,
                    )

    def _find(self, job: JobId) -> Object | None:
        return next(iter(self._jobs.by("uid", job)), None)

    def _gone(self, id: JobId, view: JobView) -> bool:
        """True if a job's object was deleted, or is being deleted with its pods.

        A watch may be behind the API server for a minute, so the API server is asked about an
        object that the store lacks: a job that is cancelled never runs again.
        """
        obj = self._find(id)
        if obj is None:
            try:
                obj = self._cluster.get(JOB, view.project, view.name)
            except NotFound:
                return True
        metadata = obj["metadata"]
        return metadata["uid"] != id or ("deletionTimestamp" in metadata and not orphans(obj))

    def _left_alone(self, id: JobId) -> bool:
        """True if the object was deleted with ``--cascade=orphan``, so that its pods continue."""
        obj = self._find(id)
        if obj is not None:
            return orphans(obj)
        pods = [pod for pod in self._pods.by("job", id) if gang.stays(pod)]
        # No running operator saw the deletion; then the pods tell.
        return any(id in self._orphaned or not _owned(pod, id) for pod in pods)

    def _cancel(self, id: JobId) -> None:
        try:
            self._brain.cancel(id)
        except Conflict:
            log.debug("job %s has already ended", id)
        self._forget(id)
        self._orphaned.discard(id)


def _goes_on(view: JobView) -> bool:
    """True if a job has not ended, and nobody has cancelled it."""
    return view.state not in FINISHED and view.intent is not Intent.CANCEL


def _owned(pod: Object, uid: str) -> bool:
    return any(each.get("uid") == uid for each in pod["metadata"].get("ownerReferences") or ())
