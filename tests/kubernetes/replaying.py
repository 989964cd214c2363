"""Plays a recorded conversation with a real API server to another, and says where they differ."""

import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import httpx2

Json = dict[str, Any]

#: What a recording leaves open.
ANYTHING = "<anything>"
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
#: What the server makes up, by field.
_ASSIGNED = {
    "uid": "<uid>",
    "resourceVersion": "<resourceVersion>",
    "creationTimestamp": "<creationTimestamp>",
    "deletionTimestamp": "<deletionTimestamp>",
    "time": "<time>",
    "continue": "<continue>",
}


def normalised(value: Any, field: str = "") -> Any:
    """Return ``value`` with what a server makes up replaced by words."""
    if isinstance(value, Mapping):
        return {_text(key): normalised(below, key) for key, below in value.items()}
    if isinstance(value, list):
        return [normalised(below) for below in value]
    if isinstance(value, str) and value and field in _ASSIGNED:
        return _ASSIGNED[field]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    for pattern, word in ((_UID, "<uid>"), (_TOKEN_VOLUME, "<token>"), (_TIME, "<time>")):
        text = pattern.sub(word, text)
    return re.sub(r"\bgen-[a-z0-9]{5}\b", "<generated>", text)


class Replay:
    """The state of a replay: what the recorded values are called here."""

    def __init__(
        self,
        connect: Callable[[], httpx2.Client],
        *,
        between: Mapping[int, Callable[[], object]] | None = None,
        end_watches: Callable[[], None] | None = None,
        patience_seconds: float = 0.0,
    ) -> None:
        """``between``: what else happens before an exchange, by number.

        ``end_watches``: ends all watches once everything is played; without it each takes the
        time that was recorded. ``patience_seconds``: a GET is asked again for so long until its
        answer agrees, since a real server's controllers take their time.
        """
        self._patience_seconds = patience_seconds
        self._connect = connect
        self._between = between or {}
        self._end_watches = end_watches
        self._client = connect()
        #: A recorded value -> ours, bound where it is first sent.
        self._ours: dict[str, str] = {}
        self._last_list_version = ""
        self._last_continue = ""
        self._seen: dict[str, Json] = {}
        self._watches: list[threading.Thread] = []
        #: check -> the events that its watches saw.
        self.events: dict[str, list[Json]] = defaultdict(list)
        self.differences: dict[str, list[str]] = defaultdict(list)

    def run(self, exchanges: list[Json]) -> None:
        """Play everything in order."""
        for number, exchange in enumerate(exchanges):
            self._between.get(number, lambda: None)()
            if exchange.get("stream"):
                self._watch(exchange)
            else:
                self._exchange(number, exchange)
        if self._end_watches is not None:
            self._end_watches()
        for watch in self._watches:
            watch.join(60)
        self._client.close()

    def _path(self, path: str) -> str:
        return re.sub(r"gen-[a-z0-9]{5}$", lambda m: self._ours.get(m[0], m[0]), path)

    def _query(self, query: Json) -> Json:
        result = dict(query)
        if self._end_watches is not None and int(query.get("timeoutSeconds", 0)) > 1:
            # A slow machine gets longer than the recording took; the end ends them all.
            result["timeoutSeconds"] = "120"
        elif self._patience_seconds and "sendInitialEvents" in query:
            # A server's store may tell only every few seconds how far it is.
            result["timeoutSeconds"] = "12"
        # Version 1 is older than every server's history, ours too.
        if query.get("resourceVersion", "1") != "1":
            result["resourceVersion"] = self._last_list_version
        if "continue" in query:
            result["continue"] = self._last_continue
        return result

    def _body(self, path: str, body: Any) -> Any:
        """Return a request's body with our versions and identities for the recorded ones."""
        if not isinstance(body, dict):
            return body
        text = json.dumps(body)
        metadata = body.get("metadata") or {}
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        seen = (self._seen.get(path.removesuffix("/status")) or {}).get("metadata", {})
        if uid:
            self._ours.setdefault(uid, seen["uid"])
        if version and version != "1":
            self._ours.setdefault(f"version {version}", seen["resourceVersion"])
        for reference in metadata.get("ownerReferences") or ():
            owner = self._seen[f"{path}/{reference['name']}"]
            self._ours.setdefault(reference["uid"], owner["metadata"]["uid"])
        text = _UID.sub(lambda match: self._ours.get(match[0], match[0]), text)
        changed: Json = json.loads(text)
        if version and version != "1":
            changed["metadata"]["resourceVersion"] = self._ours[f"version {version}"]
        return changed

    def _exchange(self, number: int, exchange: Json) -> None:
        path = self._path(exchange["path"])
        headers = {"Accept": exchange["accept"]}
        content = None
        if exchange["request"] is not None:
            headers["Content-Type"] = exchange["content_type"]
            content = json.dumps(self._body(path, exchange["request"])).encode()
        query = self._query(exchange["query"])
        until = time.monotonic() + self._patience_seconds
        while True:
            answer = self._client.request(
                exchange["method"], path, params=query, headers=headers, content=content
            )
            patient = exchange["method"] == "GET" and time.monotonic() < until
            if not patient or _agrees(exchange, answer):
                break
            time.sleep(0.2)
        if exchange["status"] == 429 and answer.status_code == 200:
            # A definition's storage was up before it was asked for.
            return
        ours = _decoded(answer)
        self._note(exchange, path, ours)
        if answer.status_code != exchange["status"]:
            self._differ(number, exchange, f"status {answer.status_code}: {answer.text[:300]}")
        warnings = answer.headers.get_list("Warning")
        if exchange.get("warnings", warnings) != warnings:
            self._differ(number, exchange, f"warnings {warnings}")
        for line in differences(normalised(exchange["response"]), normalised(ours)):
            self._differ(number, exchange, line)

    def _note(self, exchange: Json, path: str, ours: Any) -> None:
        """Remember what later requests refer to."""
        if not isinstance(ours, dict) or exchange["response"] == ANYTHING:
            return
        metadata = ours.get("metadata") or {}
        if "items" in ours:
            self._last_list_version = metadata["resourceVersion"]
            self._last_continue = metadata.get("continue", "")
        elif "name" in metadata:
            self._seen[path] = ours
            self._seen[f"{path}/{metadata['name']}"] = ours
            recorded = exchange["response"].get("metadata", {}).get("name")
            if recorded:
                self._ours[recorded] = metadata["name"]

    def _differ(self, number: int, exchange: Json, what: str) -> None:
        told = f"#{number} {exchange['method']} {exchange['path']}: {what}"
        self.differences[exchange["check"]].append(told)

    def _watch(self, exchange: Json) -> None:
        """Watch beside what follows, as the recording did."""
        query, started = self._query(exchange["query"]), threading.Event()

        def read() -> None:
            with (
                self._connect() as client,
                client.stream("GET", exchange["path"], params=query) as answer,
            ):
                started.set()
                if answer.status_code != exchange["status"]:
                    self._differ(-1, exchange, f"status {answer.status_code}")
                for line in answer.iter_lines():
                    self.events[exchange["check"]].append(json.loads(line))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        started.wait(60)
        self._watches.append(thread)


def _agrees(exchange: Json, answer: httpx2.Response) -> bool:
    recorded, ours = normalised(exchange["response"]), normalised(_decoded(answer))
    return answer.status_code == exchange["status"] and not differences(recorded, ours)


def _decoded(answer: httpx2.Response) -> Any:
    if answer.headers.get("Content-Type", "").startswith("application/json"):
        return answer.json()
    return answer.text


def differences(recorded: Any, ours: Any, path: str = "") -> list[str]:
    """Return where two bodies differ."""
    if recorded == ANYTHING:
        return []
    if isinstance(recorded, Mapping) and isinstance(ours, Mapping):
        found = []
        for key in sorted(recorded.keys() | ours.keys()):
            if key not in ours:
                found.append(f"{path}.{key}: missing, recorded {recorded[key]!r}")
            elif key not in recorded:
                found.append(f"{path}.{key}: {ours[key]!r}, not recorded")
            else:
                found += differences(recorded[key], ours[key], f"{path}.{key}")
        return found
    if isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        return [
            line
            for i, (one, other) in enumerate(zip(recorded, ours, strict=True))
            for line in differences(one, other, f"{path}[{i}]")
        ]
    return [] if recorded == ours else [f"{path}: {ours!r}, recorded {recorded!r}"]
