"""The bell of a process, which any thread may ring to wake waiting tasks."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Bell:
    """Wakes the waiting tasks of a process. Any thread may call its methods."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}
        #: Listeners that stored samples wake, too.
        self._measuring: dict[object, Callable[[], None]] = {}
        #: Listeners that write new frames to all streams.
        self._following: dict[object, Callable[[], None]] = {}
        self._counting = Lock()
        #: Number of rings for commits other than samples.
        self.rings = 0
        #: True once the service stops; every waiter then returns.
        self.closed = False
        #: Number of revocations of tokens in this process.
        self.revocations = 0
        #: Jobs whose samples were stored since the last call of ``take_measured``.
        self._measured: set[str] = set()

    def ring(self, *, measured: frozenset[str] = frozenset()) -> None:
        """Wake all listeners; if ``measured`` names jobs with new samples, wake only those that
        listen for samples.
        """
        if not measured:
            with self._counting:
                self.rings += 1
            self.wake()
            return
        with self._counting:
            self._measured |= measured
        for wake in list(self._measuring.values()):
            wake()

    def wake(self) -> None:
        for wake in list(self._listeners.values()):
            wake()

    def publish(self) -> None:
        """Wake the event streams, because new frames (server-sent events) wait to be sent to the
        streams' clients.
        """
        for wake in list(self._following.values()):
            wake()

    def revoked(self) -> None:
        """Wake all listeners and streams, so that they check their tokens."""
        self.revocations += 1
        self.ring()
        self.publish()

    def close(self) -> None:
        """Set ``closed`` and wake all listeners for the last time."""
        self.closed = True
        self.ring()
        self.publish()

    def take_measured(self) -> frozenset[str]:
        """Return the jobs whose samples were stored since the last call. Only one task of a process
        may call this.
        """
        with self._counting:
            taken, self._measured = self._measured, set()
        return frozenset(taken)

    @contextmanager
    def listening(self, *, samples: bool = False) -> Iterator[asyncio.Event]:
        """Within the block, each ring sets the event that this method yields; a ring for new
        samples sets it only if ``samples`` is True.
        """
        heard, more = asyncio.Event(), [self._measuring] if samples else []
        with self._heard_by(heard.set, self._listeners, *more):
            yield heard

    @contextmanager
    def following(self, act: Callable[[], None]) -> Iterator[None]:
        """Within the block, the event loop calls ``act`` whenever new frames (server-sent events)
        wait to be sent.
        """
        with self._heard_by(act, self._following):
            yield

    @contextmanager
    def _heard_by(
        self, act: Callable[[], object], *groups: dict[object, Callable[[], None]]
    ) -> Iterator[None]:
        loop, me = asyncio.get_running_loop(), object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(act)

        for listeners in groups:
            listeners[me] = wake
        try:
            yield
        finally:
            for listeners in groups:
                del listeners[me]
