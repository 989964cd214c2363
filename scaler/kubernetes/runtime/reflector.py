"""Keeps a store in sync with the API server's objects: list once, then watch until stopped.

A watch that was cut or timed out continues from the last version received, including bookmarks. If
the server has forgotten that version (410), the reflector lists everything again. Objects missing
from that list were deleted meanwhile.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from brain.errors import BrainError, Overloaded
from scaler.kubernetes.runtime.cluster.answers import ListPage, WatchStream
from scaler.kubernetes.runtime.cluster.errors import Gone, Unreachable
from scaler.kubernetes.runtime.cluster.kind import Key, Kind, key_of, version_of
from scaler.kubernetes.runtime.pace import Backoff, Clock, spread
from scaler.kubernetes.runtime.store import Store, StoreChange

log = logging.getLogger(__name__)

#: Seconds after which the server ends a watch, lengthened by chance so that watches do not end
#: together.
WATCH_SECONDS = 240.0
#: Seconds below which a watch without events was useless; an immediate retry would be a storm.
_SHORT_SECONDS = 1.0
#: Most seconds between attempts to reach a server that does not answer, unless it names a time: an
#: attempt costs such a server nothing, and a long pause outlasts the outage.
_AWAY_SECONDS = 5.0
#: Objects per page: a page of 500 pods is about 4 MB.
PAGE = 500


class Listed(Protocol):
    """The methods of ``Cluster`` that a reflector needs."""

    def list(
        self, kind: Kind, namespace: str = "", *, limit: int, continue_: str, label_selector: str
    ) -> ListPage:
        """Return one page of objects; takes the same arguments as ``Cluster.list``."""

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        timeout_seconds: int,
        label_selector: str,
    ) -> WatchStream:
        """Watch changes; takes the same arguments as ``Cluster.watch``."""


class Reflector:
    """Reflects the objects of one kind, in one namespace or in all, in a store.

    Other sources may write into the same store, too.
    """

    def __init__(
        self,
        cluster: Listed,
        kind: Kind,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        namespace: str = "",
        label_selector: str = "",
        told: Callable[[StoreChange], None] = lambda change: None,
        pauses: Backoff = Backoff(),
        page: int = PAGE,
    ) -> None:
        self._cluster, self.kind, self._store = cluster, kind, store
        self._clock, self._random, self._pauses, self._page = clock, random, pauses, page
        longest = min(_AWAY_SECONDS, pauses.longest_seconds)
        self._away = replace(pauses, longest_seconds=longest)
        self.namespace, self._selector, self._told = namespace, label_selector, told
        #: The newest version heard; None to list everything in the next step.
        self.version: str | None = None
        #: Set once the store holds a whole list.
        self.synced = threading.Event()
        #: Why the store may be out of date; empty while it is current.
        self.trouble = ""
        self._failures = 0
        #: Number of lists in a row that were soon useless, and the end of the last one.
        self._useless, self._listed_at = 0, -float("inf")
        self._watch: WatchStream | None = None
        self._stopped = False

    def run(self, stop: threading.Event) -> None:
        """List and watch until ``stop`` is set."""
        while not stop.is_set():
            try:
                pause = self.step()
            except Exception:
                # A bug must not leave a store stale for ever.
                log.exception("%s", self.kind)
                self.version, pause = None, self._pauses.longest_seconds
            stop.wait(pause)

    def stop(self) -> None:
        """End the watch that another thread reads."""
        self._stopped = True
        watch = self._watch
        if watch is not None:
            watch.close()

    def step(self) -> float:
        """List if necessary, then watch until the watch ends; return seconds until the next
        step.
        """
        try:
            if self.version is None:
                self.version = self._list()
            if self._follow(self.version):
                self._failures = 0
            else:
                self._failures += 1
        except Gone as why:
            self.version = None
            recent = self._clock.elapsed() - self._listed_at < self._pauses.longest_seconds
            self._useless = self._useless + 1 if recent else 1
            return max(self._failed(why), self._pauses.pause(self._useless, self._random))
        except BrainError as why:
            return self._failed(why)
        return self._pauses.pause(self._failures, self._random) if self._failures else 0.0

    def _failed(self, why: BrainError) -> float:
        self._failures += 1
        self.trouble = str(why)
        level = logging.WARNING if self._failures > 1 else logging.INFO
        log.log(level, "%s: %s", self.kind, why)
        asked = why.retry_after_seconds if isinstance(why, Overloaded | Unreachable) else None
        pauses = self._away if isinstance(why, Unreachable) else self._pauses
        return max(pauses.pause(self._failures, self._random), asked or 0.0)

    def _list(self) -> str:
        """List everything into the store; return the version of the list."""
        missing = set(self._store.keys_in(self.namespace))
        continue_ = ""
        while True:
            page = self._cluster.list(
                self.kind,
                self.namespace,
                limit=self._page,
                continue_=continue_,
                label_selector=self._selector,
            )
            for item in page.items:
                missing.discard(key_of(item))
                self._put(item, listed=True)
            continue_ = page.continue_
            if not continue_:
                break
        self._store.listed(page.resource_version)
        for key in missing:
            self._drop(key)
        self.trouble, self._listed_at = "", self._clock.elapsed()
        self.synced.set()
        return page.resource_version

    def _follow(self, version: str) -> bool:
        """Watch from ``version`` until the server ends the watch; False if it brought nothing."""
        began, heard = self._clock.elapsed(), False
        timeout = round(spread(WATCH_SECONDS, self._random, 0.25))
        with self._cluster.watch(
            self.kind,
            self.namespace,
            resource_version=version,
            timeout_seconds=timeout,
            label_selector=self._selector,
        ) as watch:
            self._watch, self.trouble, opened = watch, "", self._clock.elapsed()
            try:
                for event in () if self._stopped else watch:
                    heard = True
                    self._failures, self.trouble = 0, ""
                    self._hear(event.type, event.object)
            except BrainError:
                # Some servers send no bookmarks for a kind that nobody changes, and some proxies
                # cut connections that are silent: a watch that stood for long did not fail.
                if self._clock.elapsed() - opened >= self._pauses.longest_seconds:
                    self._failures = 0
                raise
            finally:
                self._watch = None
        return heard or self._clock.elapsed() - began >= _SHORT_SECONDS

    def _hear(self, type: str, obj: dict[str, Any]) -> None:
        match type:
            case "ADDED" | "MODIFIED":
                self._put(obj, listed=False)
            case "DELETED":
                self._drop(key_of(obj))
            case "BOOKMARK":
                pass
            case _:
                log.warning("%s: an event of unknown type %r", self.kind, type)
                return
        self.version = version_of(obj) or self.version

    def _put(self, obj: dict[str, Any], *, listed: bool) -> None:
        # A third of an object's bytes says who wrote which field, and nobody here reads that.
        obj["metadata"].pop("managedFields", None)
        if change := self._store.put(obj, listed=listed):
            self._told(change)

    def _drop(self, key: Key) -> None:
        if change := self._store.drop(key):
            self._told(change)
