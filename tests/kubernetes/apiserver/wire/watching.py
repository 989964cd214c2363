"""Watches: replay, selectors, bookmarks, and how they end."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping

import msgspec

from tests.kubernetes.apiserver.core.api import Api
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.core.reading import selection, shown, version_of
from tests.kubernetes.apiserver.core.store import Change, Stored, event_line
from tests.kubernetes.apiserver.documents.tables import of_one
from tests.kubernetes.apiserver.objects.errors import Refused, bad_request, expired

_BOOKMARKS_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """One watcher's position and what it has yet to be sent."""

    def __init__(
        self,
        api: Api,
        kind: Kind,
        namespace: str,
        query: Mapping[str, str],
        bookmark_seconds: float,
    ) -> None:
        self._api = api
        self._kind = kind
        self._namespace = namespace
        self._matches = selection(kind, query)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._bookmark_seconds = bookmark_seconds
        self._initial = query.get("sendInitialEvents") in ("true", "1")
        self._seconds = float(query.get("timeoutSeconds") or 1800)
        if self._initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        self._from = version_of(api, query)
        self._queue: deque[Change] = deque()
        self._news = asyncio.Event()
        self._ended: Refused | None = None
        self._stopped = False
        self._table = False
        self._headed = False

    def tell(self, change: Change) -> None:
        """Hear of a write."""
        if change.resource == self._kind.resource and self._inside(change):
            self._queue.append(change)
            self._news.set()

    def as_table(self) -> None:
        """Send tables, as ``kubectl get --watch`` wants them."""
        self._table = True

    def end(self, why: Refused | None = None) -> None:
        """End the stream; with an error event if there is a reason."""
        self._ended, self._stopped = why, True
        self._news.set()

    def _inside(self, change: Change) -> bool:
        return not self._namespace or change.new.key[0] == self._namespace

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the stream, some lines at a time, until its time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        next_mark = loop.time() + self._bookmark_seconds
        unlisten = self._api.store.listen(self.tell)
        try:
            yield b"".join(self._beginning())
            while not self._stopped and loop.time() < until:
                await self._some_news(min(until, next_mark) - loop.time())
                if lines := self._drained():
                    yield lines
                elif loop.time() >= next_mark:
                    next_mark = loop.time() + self._bookmark_seconds
                    if self._bookmarks:
                        yield self._bookmark()
            if lines := self._drained():
                yield lines
            if self._ended is not None:
                yield _error(self._ended)
            elif self._bookmarks and not self._stopped:
                yield self._bookmark()
        finally:
            unlisten()

    async def _some_news(self, seconds: float) -> None:
        if self._queue or self._stopped:
            return
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), max(seconds, 0))

    def _drained(self) -> bytes:
        lines = []
        while self._queue:
            if (line := self._line(self._queue.popleft())) is not None:
                lines.append(line)
        return b"".join(lines)

    def _beginning(self) -> list[bytes]:
        """Return what happened before the watch: the state, or the history since a version."""
        store = self._api.store
        if self._from is None or self._initial:
            lines = [
                self._told("ADDED", stored)
                for stored in store.all_of(self._kind.resource, self._namespace)
                if self._matches is None or self._matches(stored.obj)
            ]
            if self._initial and self._bookmarks:
                lines.append(self._bookmark(_BOOKMARKS_END))
            return lines
        try:
            changes = store.since(self._kind.resource, self._from)
        except Refused as refused:
            self.end(refused)
            return []
        told = (self._line(change) for change in changes if self._inside(change))
        return [line for line in told if line is not None]

    def _line(self, change: Change) -> bytes | None:
        """Return a write as this watcher sees it; None: not at all."""
        if self._matches is None:
            if change.new.obj.get("apiVersion") == self._kind.api_version and not self._table:
                return change.line
            return self._told(change.type, change.new)
        now = change.type != "DELETED" and self._matches(change.new.obj)
        before = change.old is not None and self._matches(change.old.obj)
        if not now and not before:
            return None
        if now:
            return self._told("MODIFIED" if before else "ADDED", change.new)
        return self._told("DELETED", self._last_seen(change))

    def _told(self, type: str, stored: Stored) -> bytes:
        if not self._table:
            return event_line(type, shown(self._kind, stored))
        table = of_one(self._kind, stored, "Object", self._api.seconds(), head=not self._headed)
        self._headed = True
        return event_line(type, msgspec.json.encode(table))

    def _last_seen(self, change: Change) -> Stored:
        """Return what left the selection: as it was when it last matched, at the new version."""
        if change.old is None or change.type == "DELETED":
            return change.new
        metadata = {**change.old.obj["metadata"], "resourceVersion": str(change.version)}
        return Stored({**change.old.obj, "metadata": metadata}, change.new.key, change.version)

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: Json = {
            "resourceVersion": str(self._api.store.version),
            "creationTimestamp": None,
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        obj = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        return event_line("BOOKMARK", msgspec.json.encode(obj))


def _error(refused: Refused) -> bytes:
    return event_line("ERROR", msgspec.json.encode(refused.status()))


def gone(api: Api) -> Refused:
    """Return why a watch ends whose history was forgotten."""
    return expired(api.store.compacted - 1, api.store.compacted)
