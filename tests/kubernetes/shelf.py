"""A few pages of an API server without a network: enough for the runtime, and wholly scripted."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from scaler.kubernetes.runtime.cluster import Kind, Unreachable
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer, TransportRequest

THING = Kind("test.example", "v1", "things", "Thing")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class VirtualClock:
    """Time that moves when it is told to."""

    def __init__(self, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.seconds, self._rate, self._offset = 0.0, rate, offset

    def elapsed(self) -> float:
        return self._offset + self._rate * self.seconds

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.elapsed())

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def thing(name: str, *, namespace: str = "team", **more: Any) -> dict[str, Any]:
    """An object of kind Thing."""
    return {
        "apiVersion": THING.api_version,
        "kind": THING.kind,
        "metadata": {"namespace": namespace, "name": name},
        **more,
    }


def refused(
    code: int, reason: str = "", *, after: float | None = None, **details: Any
) -> TransportAnswer:
    """An answer that says no."""
    body = {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": f"no, {reason}",
        "details": details,
    }
    headers = {} if after is None else {"Retry-After": f"{after:g}"}
    return TransportAnswer(code=code, body=json.dumps(body).encode(), headers=headers)


def event(type: str, obj: Mapping[str, Any]) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": type, "object": obj}).encode() + b"\n"


class Lines:
    """A watch that says what it was given, then ends or is cut."""

    def __init__(self, chunks: list[bytes], *, cut: bool = False, code: int = 200) -> None:
        self._chunks, self._cut = chunks, cut
        self.code, self.headers = code, dict[str, str]()

    def read(self) -> bytes:
        return b"".join(self._chunks)

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._cut:
            raise Unreachable("cut")

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


class Shelf:
    """Keeps objects of any kind. ``faults`` are met by requests in turn before anything else.

    A watch tells what happened since its version and ends; with ``live`` it waits for more.
    """

    host = "http://shelf"

    def __init__(self, *, live: bool = False) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[int, str, str, dict[str, Any]]] = []
        self.requests: list[TransportRequest] = []
        #: What the next requests meet: an answer, an error, or None for nothing special.
        self.faults: deque[TransportAnswer | Exception | None] = deque()
        #: Versions up to this one are forgotten.
        self.forgotten = 0
        #: Asked before every request; raises what the request shall meet.
        self.gate: Callable[[TransportRequest], None] = lambda request: None
        self.seconds: list[float] = []
        self._version, self._live = 0, live
        self._changed = threading.Condition(threading.RLock())

    def put(self, obj: dict[str, Any], kind: Kind = THING) -> dict[str, Any]:
        """As if somebody had created or replaced it."""
        metadata = obj["metadata"]
        return self._keep(kind.path(metadata.get("namespace", ""), metadata["name"]), obj)

    def drop(self, namespace: str, name: str, kind: Kind = THING) -> None:
        """As if somebody had deleted it."""
        with self._changed:
            self._version += 1
            path = kind.path(namespace, name)
            gone = self.objects.pop(path)
            gone["metadata"]["resourceVersion"] = str(self._version)
            self.log.append((self._version, "DELETED", path, gone))
            self._changed.notify_all()

    def forget(self) -> None:
        """No watch can go on from what was."""
        self._version += 1
        self.forgotten = self._version

    def asked(self, verb: str) -> list[str]:
        """Paths of the requests that were lists (``list``), watches or of a method."""
        return [request.path for request in self.requests if _verb(request) == verb]

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        self.seconds.append(seconds)
        self._meet(request)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        with self._changed:
            return fault or self._answer(request)

    def stream(
        self, request: TransportRequest, *, connect_seconds: float, silence_seconds: float
    ) -> Any:
        self._meet(request)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        assert request.query is not None
        since = int(request.query["resourceVersion"])
        if fault is None and since < self.forgotten:
            fault = refused(410, "Expired")
        if fault is not None:
            return Lines([fault.body], code=fault.code)
        return _Live(self, request.path, since)

    def close(self) -> None:
        pass

    def _meet(self, request: TransportRequest) -> None:
        self.requests.append(request)
        self.gate(request)

    def _answer(self, request: TransportRequest) -> TransportAnswer:
        path, body = request.path, dict(request.body or {})
        match request.method:
            case "POST":
                path = f"{path}/{body['metadata']['name']}"
                if path in self.objects:
                    return refused(409, "AlreadyExists")
                return _good(self._keep(path, body), 201)
            case "GET" if path.rpartition("/")[2] in ("things", "leases", "pods", "nodes"):
                return self._list(request)
        path = path.removesuffix("/status")
        known = self.objects.get(path)
        if known is None and "apply" not in request.content_type:
            return refused(404, "NotFound")
        match request.method:
            case "PATCH":
                asked = body.get("metadata", {}).get("resourceVersion")
                if known and asked not in (None, known["metadata"]["resourceVersion"]):
                    return refused(409, "Conflict")
                return _good(self._keep(path, merged(known or {}, body)))
            case "DELETE":
                assert known is not None
                self.drop(known["metadata"]["namespace"], known["metadata"]["name"], _kind(path))
                return _good({"kind": "Status"})
        assert known is not None
        return _good(known)

    def _list(self, request: TransportRequest) -> TransportAnswer:
        query = dict(request.query or {})
        found = [obj for path, obj in sorted(self.objects.items()) if _within(request.path, path)]
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        rest = str(start + limit) if start + limit < len(found) else ""
        meta = {"resourceVersion": str(self._version), "continue": rest}
        return _good({"metadata": meta, "items": found[start : start + limit]})

    def _keep(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            self._version += 1
            type = "MODIFIED" if path in self.objects else "ADDED"
            known = self.objects.get(path, {}).get("metadata", {})
            uid = known.get("uid", f"uid-{self._version}")
            meta = {"uid": uid, **obj["metadata"], "resourceVersion": str(self._version)}
            kept = self.objects[path] = {**obj, "metadata": meta}
            self.log.append((self._version, type, path, kept))
            self._changed.notify_all()
            return kept


class _Live:
    code = 200

    def __init__(self, shelf: Shelf, path: str, since: int) -> None:
        self._shelf, self._path, self._since, self._closed = shelf, path, since, False
        self.headers = dict[str, str]()

    def read(self) -> bytes:
        return b""

    def chunks(self) -> Iterator[bytes]:
        while not self._closed:
            for version, type, path, obj in list(self._shelf.log):
                if version <= self._since:
                    continue
                # Of others' objects, too: else every one of them has this look without a pause.
                self._since = version
                if _within(self._path, path):
                    yield event(type, obj)
            if not self._shelf._live:
                return
            with self._shelf._changed:
                self._shelf._changed.wait_for(
                    lambda: self._closed or self._shelf._version > self._since, 0.2
                )

    def interrupt(self) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True


def merged(known: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """``known`` after a JSON merge patch (RFC 7386)."""
    result = dict(known)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            before = result.get(name)
            result[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def _good(obj: Mapping[str, Any], code: int = 200) -> TransportAnswer:
    return TransportAnswer(code=code, body=json.dumps(obj).encode(), headers={})


def _verb(request: TransportRequest) -> str:
    if request.method != "GET":
        return request.method
    query = request.query or {}
    return "watch" if "watch" in query else "list" if "limit" in query else "get"


def _within(collection: str, path: str) -> bool:
    head, _, plural = collection.rpartition("/")
    return path.startswith(f"{collection}/") or ("namespaces" not in head and f"/{plural}/" in path)


def _kind(path: str) -> Kind:
    return THING if "/things/" in path else Kind("", "v1", path.split("/")[-2], "")
