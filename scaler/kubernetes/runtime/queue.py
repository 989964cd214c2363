"""A queue of keys. No key is processed by two workers at once; a key that failed waits before it is
processed again, longer after each failure in a row.
"""

import heapq
import threading
from collections import deque
from random import Random
from typing import Protocol

from scaler.kubernetes.runtime.cluster.kind import Key
from scaler.kubernetes.runtime.pace import Backoff, Clock


class QueueObserver(Protocol):
    def depth(self, keys: int) -> None:
        """Record that ``keys`` keys wait for a worker."""

    def added(self) -> None:
        """Record that a key started to wait."""

    def taken(self, waited_seconds: float) -> None:
        """Record that a worker took a key."""

    def worked(self, seconds: float) -> None:
        """Record that a worker has finished with a key."""

    def retried(self) -> None:
        """Record that a failed key is tried again."""


class QueueUnobserved:
    """The observer that records nothing."""

    def depth(self, keys: int) -> None: ...
    def added(self) -> None: ...
    def taken(self, waited_seconds: float) -> None: ...
    def worked(self, seconds: float) -> None: ...
    def retried(self) -> None: ...


UNSEEN = QueueUnobserved()
#: Pauses before a failed key is retried: half a second at first, a minute at most.
PAUSES = Backoff(first_seconds=0.5, longest_seconds=60.0)


class WorkQueue:
    """Keys in order of arrival. Many threads may use an instance.

    A key that is added while it waits is queued once. A key that is added while a worker processes
    it waits until that worker has finished, so two workers never process the same key.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        *,
        pauses: Backoff = PAUSES,
        sight: QueueObserver = UNSEEN,
    ) -> None:
        self._clock, self._random, self._pauses, self._sight = clock, random, pauses, sight
        self._ready: deque[Key] = deque()
        #: When each waiting key was added, and when each key in work was taken.
        self._wanted: dict[Key, float] = {}
        self._worked: dict[Key, float] = {}
        #: When each delayed key is due; older entries of the key in the heap have no effect.
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Return the number of keys that wait for a worker now."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """True if no key waits and none is being processed; keys that are due later do not
        count.
        """
        return not self._ready and not self._worked

    def add(self, key: Key) -> None:
        with self._changed:
            self._add(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Queue ``key`` later; if it is already due later, the earlier of the two times applies."""
        with self._changed:
            if seconds <= 0.0:
                self._add(key)
                return
            due = self._clock.elapsed() + seconds
            if self._closed or self._due.get(key, float("inf")) <= due:
                return
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._changed.notify()

    def retry(self, key: Key, at_least_seconds: float = 0.0) -> None:
        """Queue ``key`` after a failure, with a pause that grows with each failure in a row."""
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = self._pauses.pause(failures, self._random)
        self._sight.retried()
        self.add_after(key, max(pause, at_least_seconds))

    def forget(self, key: Key) -> None:
        """Record that ``key`` succeeded, so that its next failure counts as its first."""
        with self._changed:
            self._failures.pop(key, None)

    def take(self, wait_seconds: float = 0.0) -> Key | None:
        """Wait for a key to work on and return it; None if none came, or the queue is closed.

        The caller must call ``done`` once the work on the key ends.
        """
        with self._changed:
            until = self._clock.elapsed() + wait_seconds
            while not self._closed:
                now = self._clock.elapsed()
                self._ripen(now)
                if self._ready:
                    return self._begin(self._ready.popleft(), now)
                if now >= until:
                    return None
                due = self._heap[0][0] if self._heap else until
                self._changed.wait(min(until, due) - now)
            return None

    def done(self, key: Key) -> None:
        """Record that the work on ``key`` ended, successfully or not."""
        with self._changed:
            now = self._clock.elapsed()
            self._sight.worked(now - self._worked.pop(key))
            if key in self._wanted:
                self._wanted[key] = now
                self._ready.append(key)
                self._tell()

    def close(self) -> None:
        """Give out no more keys, and wake waiting workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, key: Key) -> None:
        if self._closed or key in self._wanted:
            return
        self._wanted[key] = self._clock.elapsed()
        self._sight.added()
        if key not in self._worked:
            self._ready.append(key)
            self._tell()

    def _begin(self, key: Key, now: float) -> Key:
        self._sight.taken(now - self._wanted.pop(key))
        self._sight.depth(len(self._ready))
        self._worked[key] = now
        return key

    def _tell(self) -> None:
        self._sight.depth(len(self._ready))
        self._changed.notify()

    def _ripen(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
