"""The bell that wakes the waiting tasks of a process, whichever thread rings it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Bell:
    """The bell of a process, which wakes its waiting tasks. Any thread may ring it."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}
        #: Listeners that are also woken by samples.
        self._measuring: dict[object, Callable[[], None]] = {}
        #: Streams; one task reads the frames that all of them wait for.
        self._following: dict[object, Callable[[], None]] = {}
        self._counting = Lock()
        #: Number of rings for commits, without those for samples.
        self.rings = 0
        #: True once the service stops; every waiter then returns.
        self.closed = False
        #: Grows whenever a token was revoked.
        self.revocations = 0
        #: Jobs of which samples were stored since ``take_measured`` was last called.
        self._measured: set[str] = set()

    def ring(self, *, measured: frozenset[str] = frozenset()) -> None:
        """Wake all listeners, or those for samples if jobs were ``measured``."""
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
        """Wake all streams, because frames are ready for them."""
        for wake in list(self._following.values()):
            wake()

    def revoked(self) -> None:
        """Wake all listeners, so that they check their tokens."""
        self.revocations += 1
        self.ring()
        self.publish()

    def close(self) -> None:
        """Wake all listeners for the last time."""
        self.closed = True
        self.ring()
        self.publish()

    def take_measured(self) -> frozenset[str]:
        """Return the jobs of which samples were stored since the last call; for a single caller."""
        with self._counting:
            taken, self._measured = self._measured, set()
        return frozenset(taken)

    @contextmanager
    def listening(self, *, samples: bool = False) -> Iterator[asyncio.Event]:
        """Within the block each ring sets the event; with ``samples``, rings for samples do,
        too.
        """
        with self._heard_by(self._listeners, *([self._measuring] if samples else [])) as heard:
            yield heard

    @contextmanager
    def following(self) -> Iterator[asyncio.Event]:
        """Within the block the event is set whenever frames are ready for streams."""
        with self._heard_by(self._following) as heard:
            yield heard

    @contextmanager
    def _heard_by(self, *groups: dict[object, Callable[[], None]]) -> Iterator[asyncio.Event]:
        loop, heard, me = asyncio.get_running_loop(), asyncio.Event(), object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.set)

        for listeners in groups:
            listeners[me] = wake
        try:
            yield heard
        finally:
            for listeners in groups:
                del listeners[me]
