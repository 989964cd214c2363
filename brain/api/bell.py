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
        #: Those who write to streams the frames that one task reads for all.
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
        """Return the jobs whose samples were stored since the last call; only one caller may use
        this.
        """
        with self._counting:
            taken, self._measured = self._measured, set()
        return frozenset(taken)

    @contextmanager
    def listening(self, *, samples: bool = False) -> Iterator[asyncio.Event]:
        """Within the block each ring sets the event; with ``samples``, rings for samples do,
        too.
        """
        heard, more = asyncio.Event(), [self._measuring] if samples else []
        with self._heard_by(heard.set, self._listeners, *more):
            yield heard

    @contextmanager
    def following(self, act: Callable[[], None]) -> Iterator[None]:
        """Within the block, ``act`` runs on the event loop whenever frames are ready for
        streams.
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
