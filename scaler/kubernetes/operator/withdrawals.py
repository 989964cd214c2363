"""Cancels jobs whose ElasticJob was deleted, unless the deletion leaves the pods running."""

import logging
from collections.abc import Callable, Sequence

from brain.errors import BrainError, Conflict
from brain.types.job import FINISHED, Intent, JobId
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.pods import gang
from scaler.kubernetes.runtime.cluster import Key, Object
from scaler.kubernetes.runtime.store import Store, StoreChange

log = logging.getLogger(__name__)


def orphans(obj: Object) -> bool:
    """True if an object is deleted with ``--cascade=orphan``, so that its pods stay."""
    return "orphan" in (obj["metadata"].get("finalizers") or ())


class Withdrawals:
    """Cancels jobs in Brain whose objects were deleted."""

    def __init__(
        self,
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
        self._brain, self._jobs, self._pods = brain, jobs, pods
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
            going = view.state not in FINISHED and view.intent is not Intent.CANCEL
            gone = self._find(id) is None or self._jobs.get(key) is not None
            if here and going and gone and not self._left_alone(id):
                self._cancel(id)

    def sweep(self) -> None:
        """Cancel jobs in Brain whose objects were deleted while no operator watched."""
        for id, view in self._brain.views().items():
            going = view.state not in FINISHED and view.intent is not Intent.CANCEL
            # Nobody here can tell whether an object of an unserved namespace is gone.
            served = not self._namespaces or view.project in self._namespaces
            if going and served and self._find(id) is None and not self._left_alone(id):
                try:
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


def _owned(pod: Object, uid: str) -> bool:
    return any(each.get("uid") == uid for each in pod["metadata"].get("ownerReferences") or ())
