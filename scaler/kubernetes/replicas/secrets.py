"""The Secret of a job: its agents' token, values of its environment, and the used replica ids.

The operator creates the Secret before the first pod. The Secret is deleted with the job, so it
outlives every operator.
"""

import base64
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from brain.errors import BadInput, Conflict, NotFound
from brain.types.job import JobId
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster import SECRET, AlreadyExists, Cluster, Object

log = logging.getLogger(__name__)

#: Annotation: an id greater than every replica id that may have been used.
_NEXT = f"{identity.DOMAIN}/next-id"
#: Number of ids that are reserved at once, so that not every pod costs another write.
_ASIDE = 16
#: Time after which a new replica's Secret is written again, because somebody may have deleted it.
_FRESH = timedelta(minutes=1)


@dataclass(slots=True)
class _Known:
    #: Replica ids below this may have been used.
    reserved: int = 0
    token: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    #: True if the Secret belongs to an earlier job of the same name, with which it goes.
    foreign: bool = False
    #: True if the API server has the Secret.
    there: bool = True
    #: Time of the last replica for which the Secret was written.
    written_at: datetime | None = None
    #: A token that goes with the first write, since no process reads it before a pod exists.
    waiting: dict[str, str] = field(default_factory=dict)


class JobSecrets:
    """Secrets of jobs. ``find`` returns the object of a job. Many threads may use an instance."""

    def __init__(self, cluster: Cluster, find: Callable[[JobId], Object | None]) -> None:
        self._cluster, self._find = cluster, find
        self._known: dict[JobId, _Known] = {}
        #: The lock of each job's Secret.
        self._writing: dict[JobId, threading.Lock] = {}

    def has_token(self, job: JobId) -> bool:
        """True if the job's Secret has a token."""
        known = self._look(job)
        return known is not None and known.token

    def put_token(self, job: JobId, secret: str) -> None:
        """Write the token into the job's Secret.

        Raises:
            BadInput: the job's object is gone.
        """
        obj = self._find(job)
        if obj is None:
            raise BadInput(f"job {job}: its ElasticJob was deleted")
        with self._writer(job):
            known = self._look(job) or _Known()
            if known.there or known.foreign:
                self._write(obj, job, known, {"token": secret})
            else:
                known.waiting = {"token": secret}
            known.token = True

    def environment(self, job: JobId) -> Mapping[str, str]:
        """Return the values of the job's environment."""
        known = self._look(job)
        return known.environment if known is not None else {}

    def used(self, job: JobId) -> int:
        """Return an id greater than every id that any operator may have used."""
        known = self._look(job)
        return known.reserved if known is not None else 0

    def set_aside(
        self,
        job: JobId,
        replica: int,
        replicas: int,
        environment: Mapping[str, str],
        now: datetime,
    ) -> None:
        """Record the id ``replica`` as used, and store the job's environment, before the replica
        starts.

        Restores a Secret that somebody deleted. If its token is lost, ``has_token`` returns False
        from then on, and the pod waits for another token.
        """
        with self._writer(job):
            known, obj = self._look(job), self._find(job)
            if known is None or obj is None:
                raise BadInput(f"job {job}: its ElasticJob was deleted")
            news = dict(environment) if not environment.items() <= known.environment.items() else {}
            fresh = known.written_at is not None and now - known.written_at < _FRESH
            if replica < known.reserved and not news and fresh:
                return
            before = known.reserved
            if replica >= known.reserved:
                known.reserved = replica + 1 + max(_ASIDE, replicas)
            try:
                data = {f"env.{name}": value for name, value in news.items()}
                self._write(obj, job, known, known.waiting | data)
            except Exception:
                # An id counts as reserved only after the write succeeded.
                known.reserved = before
                raise
            known.environment |= news
            known.waiting, known.written_at = {}, now

    def clear(self, job: JobId) -> None:
        """Remove the token from the Secret."""
        obj = self._find(job)
        self._known.pop(job, None)
        if obj is None:
            return
        metadata = obj["metadata"]
        name = identity.secret_name(metadata["name"])
        try:
            self._cluster.merge(SECRET, metadata["namespace"], name, {"data": {"token": None}})
        except NotFound:
            log.debug("%s is gone already", name)

    def forget(self, job: JobId) -> None:
        """Forget the Secret, so that the next request reads it again."""
        self._known.pop(job, None)
        self._writing.pop(job, None)

    def _writer(self, job: JobId) -> threading.Lock:
        """Return the lock of one job's Secret: no other job's writers wait for it."""
        return self._writing.setdefault(job, threading.Lock())

    def _look(self, job: JobId) -> _Known | None:
        """Read an earlier operator's content, once; None if the job's object is gone."""
        if job in self._known:
            return self._known[job]
        obj = self._find(job)
        if obj is None:
            return None
        metadata = obj["metadata"]
        name = identity.secret_name(metadata["name"])
        try:
            found = _read(self._cluster.get(SECRET, metadata["namespace"], name), metadata["uid"])
        except NotFound:
            found = _Known(there=False)
        return found if found.foreign else self._known.setdefault(job, found)

    def _write(self, obj: Object, job: JobId, known: _Known, data: Mapping[str, str]) -> None:
        metadata = obj["metadata"]
        where, name = metadata["namespace"], identity.secret_name(metadata["name"])
        if known.foreign:
            raise Conflict(
                f"Secret {name} does not belong to this job. A Secret of an earlier job with this "
                "name is deleted together with that job; delete any other Secret with "
                "this name yourself"
            )
        patch: dict[str, Any] = {
            "metadata": {
                "name": name,
                "namespace": where,
                "labels": identity.selector(metadata["name"]) | {identity.UID: job},
                "annotations": {_NEXT: str(known.reserved)},
                "ownerReferences": [identity.owner(metadata["name"], metadata["uid"])],
            },
            "data": {key: _encoded(value) for key, value in data.items()},
        }
        full = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", **patch}
        try:
            if known.there:
                found = self._cluster.merge(SECRET, where, name, patch)
            else:
                found = self._cluster.create(SECRET, full)
        except NotFound:
            # Somebody deleted the Secret.
            kept = {f"env.{key}": _encoded(value) for key, value in known.environment.items()}
            full["data"] = kept | patch["data"]
            found = self._cluster.create(SECRET, full)
        except AlreadyExists:
            # Another process made the Secret since this one looked: it is read anew.
            self._known.pop(job, None)
            raise
        known.there, known.token = True, "token" in (found.get("data") or {})


def _encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def _read(secret: Object, uid: str) -> _Known:
    """Read a Secret if it belongs to this job, and not to an earlier job of the same name."""
    owners = [each.get("uid") for each in secret["metadata"].get("ownerReferences") or ()]
    if uid not in owners:
        return _Known(foreign=True)
    data: Mapping[str, str] = secret.get("data") or {}
    said = (secret["metadata"].get("annotations") or {}).get(_NEXT, "0")
    return _Known(
        reserved=int(said) if said.isdecimal() else 0,
        token="token" in data,
        environment={
            name.removeprefix("env."): base64.b64decode(value).decode()
            for name, value in data.items()
            if name.startswith("env.")
        },
    )
