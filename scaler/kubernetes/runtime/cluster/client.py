"""``Cluster``: the operator's client of the API server.

Objects are plain dictionaries. The number of requests in flight is limited; each request has a
time-out. A request that may safely be sent twice is repeated a few times, with growing, jittered
pauses; if the server names a time for the next attempt, the client waits until then. If the last
attempt fails, the client raises an error of the module ``errors``.
"""

import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any, Literal

from scaler.kubernetes.runtime.cluster.answers import ListPage, WatchStream, anything, page, whole
from scaler.kubernetes.runtime.cluster.errors import TooMany, Unreachable, failure
from scaler.kubernetes.runtime.cluster.kind import LEASE, POD, Kind, Object
from scaler.kubernetes.runtime.cluster.limits import ClientLimits
from scaler.kubernetes.runtime.cluster.servertime import ServerClock
from scaler.kubernetes.runtime.cluster.transport import (
    APPLY,
    MERGE,
    Stream,
    Transport,
    TransportAnswer,
    TransportRequest,
    dry,
    given,
)
from scaler.kubernetes.runtime.pace import Clock, SystemClock

#: Called after every answer with verb, code (0: no answer) and seconds.
Observer = Callable[[str, int, float], None]
Propagation = Literal["Background", "Foreground", "Orphan"]
#: Seconds without output after which a container may still print.
_LONGEST_SILENCE = 4 * 3600.0


class Cluster:
    """The client of one API server. Many threads may use an instance."""

    def __init__(
        self,
        transport: Transport,
        limits: ClientLimits | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        sleep: Callable[[float], object] | None = None,
        observe: Observer = lambda verb, code, seconds: None,
    ) -> None:
        self._transport, self._limits = transport, limits or ClientLimits()
        #: The API server's time, which also stamps objects.
        self.clock = ServerClock(clock or SystemClock())
        self._random = random or Random()
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._observe = observe
        self._ordinary = threading.BoundedSemaphore(self._limits.in_flight - 1)
        self._lease = threading.BoundedSemaphore(1)
        self._fence: Callable[[], float] | None = None

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self._transport.host

    def close(self) -> None:
        """Cancel waiting retries, and close idle connections."""
        self._closed.set()
        self._transport.close()

    def fenced(self, left: Callable[[], float]) -> "Cluster":
        """Return a copy of this client for a leader.

        The copy writes only while the leader's lease has time left, which ``left()`` returns in
        seconds; ``left`` raises NotLeading when no time remains. The copy gives up a write before
        the lease ends.
        """
        fenced = copy(self)
        fenced._fence = left
        return fenced

    def observed(self, observe: Observer) -> "Cluster":
        """Return a copy that calls ``observe`` after every answer."""
        observed = copy(self)
        observed._observe = observe
        return observed

    def hasty(self, seconds: float) -> "Cluster":
        """Return a copy that sends each request once and waits up to ``seconds`` for an answer."""
        hasty = copy(self)
        hasty._limits = replace(self._limits, request_seconds=seconds, attempts=1)
        return hasty

    # -- reading ---------------------------------------------------------------------------------

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        limit: int = 500,
        continue_: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """Return one page of at most ``limit`` objects, of all namespaces if none is named.

        Raises:
            Gone: ``continue_`` is too old; list again from the start.
        """
        query: dict[str, str | int] = {"limit": limit}
        query |= given(
            {
                "continue": continue_,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "resourceVersion": resource_version,
            }
        )
        request = TransportRequest(method="GET", path=kind.path(namespace), query=query)
        return page(self._answer("list", request, safe=True).body, kind, request)

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        timeout_seconds: int = 270,
        label_selector: str = "",
        field_selector: str = "",
    ) -> WatchStream:
        """Watch changes after ``resource_version``; the server ends the watch after the time-out.

        Raises:
            Gone: the server no longer keeps the version; list again. Iteration may raise this, too.
        """
        query: dict[str, str | int] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": timeout_seconds,
        }
        query |= given({"labelSelector": label_selector, "fieldSelector": field_selector})
        request = TransportRequest(method="GET", path=kind.path(namespace), query=query)
        began, code = self.clock.elapsed(), 0
        try:
            stream = self._transport.stream(
                request,
                connect_seconds=self._limits.request_seconds,
                silence_seconds=min(self._limits.silence_seconds, timeout_seconds + 30.0),
            )
            code = stream.code
            if code != 200:
                raise failure(code, stream.read(), stream.headers, f"watch {kind}")
            self.clock.heard(stream.headers.get("Date"), began)
        finally:
            self._observe("watch", code, self.clock.elapsed() - began)
        return WatchStream(stream, f"watch {kind}")

    def get(self, kind: Kind, namespace: str, name: str, *, sub: str = "") -> dict[str, Any]:
        """Return one object, or a part of it; raise NotFound if it does not exist."""
        request = TransportRequest(method="GET", path=kind.path(namespace, name, sub))
        return self._object("get", request, safe=True, lane=self._lane(kind))

    def read(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """Return the decoded content of any path: discovery, metrics, a kubelet's report on its
        node.
        """
        request = TransportRequest(method="GET", path=path, query=query)
        return anything(self._answer("get", request, safe=True).body, request)

    def ready(self) -> None:
        """Return if the server says that it is ready; else raise an error.

        Raises:
            Unreachable: the server is not ready; it has not read its roles yet, for example.
        """
        self._answer("get", TransportRequest(method="GET", path="/readyz"), safe=True)

    def log(self, namespace: str, pod: str, container: str, *, tail: int, follow: bool) -> Stream:
        """Return the last ``tail`` lines of a container's output; with ``follow``, later lines
        follow.

        The caller closes the stream.

        Raises:
            NotFound: there is no such pod.
            Invalid: the container has not started yet.
        """
        query: dict[str, str | int] = {"container": container, "tailLines": tail}
        query |= {"follow": "true"} if follow else {}
        path = POD.path(namespace, pod, "log")
        stream = self._transport.stream(
            TransportRequest(method="GET", path=path, query=query),
            connect_seconds=self._limits.request_seconds,
            silence_seconds=_LONGEST_SILENCE if follow else self._limits.request_seconds,
        )
        if stream.code != 200:
            raise failure(stream.code, stream.read(), stream.headers, f"log of {namespace}/{pod}")
        return stream

    # -- writing ---------------------------------------------------------------------------------

    def create(
        self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object; its own namespace takes precedence over ``namespace``.

        The request is never repeated.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: a field cannot be used; ``causes`` names each such field.
        """
        where = obj["metadata"].get("namespace") or namespace
        request = TransportRequest(
            method="POST", path=kind.path(where), body=obj, query=dry(dry_run)
        )
        return self._write("create", request, safe=False, lane=self._lane(kind))

    def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        owner: str = "brain-scaler",
        force: bool = True,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Set the fields of ``obj`` by server-side apply; creates a missing object.

        ``owner`` is the field manager: the server removes fields that ``owner`` applied before and
        leaves out now.
        """
        metadata = obj["metadata"]
        query = {"fieldManager": owner, "force": "true" if force else "false"} | dry(dry_run)
        request = TransportRequest(
            method="PATCH",
            path=kind.path(metadata.get("namespace", ""), metadata["name"]),
            query=query,
            body={"apiVersion": kind.api_version, "kind": kind.kind, **obj},
            content_type=APPLY,
        )
        return self._write("apply", request, safe=True)

    def merge(
        self, kind: Kind, namespace: str, name: str, patch: Object, *, sub: str = ""
    ) -> dict[str, Any]:
        """Merge ``patch`` into an object (RFC 7386): a null removes a field, and a list replaces
        the old list.

        A ``metadata.resourceVersion`` in the patch makes it apply to that version only.

        Raises:
            Conflict: the object has another version.
        """
        request = TransportRequest(
            method="PATCH",
            path=kind.path(namespace, name, sub),
            body=patch,
            content_type=MERGE,
        )
        # A patch of one version, repeated after a lost answer, conflicts: its sender looks again.
        return self._write("patch", request, safe=True, lane=self._lane(kind))

    def merge_status(self, kind: Kind, namespace: str, name: str, patch: Object) -> dict[str, Any]:
        return self.merge(kind, namespace, name, patch, sub="status")

    def scale(self, kind: Kind, namespace: str, name: str, replicas: int) -> dict[str, Any]:
        """Request a number of replicas through the scale subresource."""
        return self.merge(kind, namespace, name, {"spec": {"replicas": replicas}}, sub="scale")

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Delete an object; with ``uid`` only the object of that uid.

        Raises:
            NotFound: the object is gone already.
            Conflict: another object has the name by now.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            **_ending(uid, grace_seconds),
        }
        request = TransportRequest(method="DELETE", path=kind.path(namespace, name), body=body)
        # A repeated deletion by name alone could meet a successor.
        self._write("delete", request, safe=uid is not None)

    def evict(
        self, namespace: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None
    ) -> None:
        """Ask the server to evict a pod, within the limits of disruption budgets.

        Raises:
            TooMany: a budget does not allow the eviction now.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _ending(uid, grace_seconds),
        }
        request = TransportRequest(
            method="POST", path=POD.path(namespace, name, "eviction"), body=body
        )
        self._write("evict", request, safe=False, patient=False)

    # -- how -------------------------------------------------------------------------------------

    def _write(
        self,
        verb: str,
        request: TransportRequest,
        *,
        safe: bool,
        patient: bool = True,
        lane: threading.BoundedSemaphore | None = None,
    ) -> dict[str, Any]:
        return self._object(verb, request, safe=safe, patient=patient, lane=lane, writes=True)

    def _object(
        self,
        verb: str,
        request: TransportRequest,
        *,
        safe: bool,
        patient: bool = True,
        lane: threading.BoundedSemaphore | None = None,
        writes: bool = False,
    ) -> dict[str, Any]:
        answer = self._answer(verb, request, safe=safe, patient=patient, lane=lane, writes=writes)
        return whole(answer.body, request)

    def _answer(
        self,
        verb: str,
        request: TransportRequest,
        *,
        safe: bool,
        patient: bool = True,
        lane: threading.BoundedSemaphore | None = None,
        writes: bool = False,
    ) -> TransportAnswer:
        waited = 0.0
        for attempt in range(1, self._limits.attempts + 1):
            try:
                return self._once(verb, request, lane or self._ordinary, writes)
            except (TooMany, Unreachable) as why:
                pause = self._limits.pause(why, attempt, self._random, safe=safe, patient=patient)
                waited += pause or 0.0
                if pause is None or waited > self._limits.patience_seconds:
                    raise
                self._sleep(pause)
                if self._closed.is_set():
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _once(
        self, verb: str, request: TransportRequest, lane: threading.BoundedSemaphore, writes: bool
    ) -> TransportAnswer:
        with lane:
            seconds = self._limits.request_seconds
            if writes and self._fence is not None:
                # Checked as late as possible: the wait for a slot may have taken long.
                seconds = min(seconds, self._fence())
            began, code = self.clock.elapsed(), 0
            try:
                answer = self._transport.send(request, seconds=seconds)
                code = answer.code
            finally:
                self._observe(verb, code, self.clock.elapsed() - began)
        if not 200 <= answer.code < 300:
            raise failure(answer.code, answer.body, answer.headers, f"{verb} {request.path}")
        # Other programs on the way, with clocks of their own, write only errors.
        self.clock.heard(answer.headers.get("Date"), began)
        return answer

    def _lane(self, kind: Kind) -> threading.BoundedSemaphore:
        return self._lease if kind == LEASE else self._ordinary


def _ending(uid: str | None, grace_seconds: int | None) -> dict[str, Any]:
    """Return the options with which one object of a name ends."""
    options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid is not None else {}
    return options if grace_seconds is None else options | {"gracePeriodSeconds": grace_seconds}
