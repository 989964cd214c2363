"""Wake-ups of waiting requests: long polls and event streams.

A committed change rings the ``Bell`` of this process; ``watch`` rings it for what other processes
committed. Waiting holds no thread: the waiter sleeps on the event loop and reads in the thread
pool only after a ring.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import Lock
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from brain import wire
from brain.errors import Unavailable
from brain.ports import Stores
from brain.types.record import Event

T = TypeVar("T")

#: Seconds between the flushes of one stream: a busy cluster costs a browser one update a second.
COALESCE_SECONDS = 1.0
#: Seconds between looks at what other processes committed.
WATCH_SECONDS = 1.0
#: Events that are held for streams; one that is further behind reads for itself.
_HELD = 2000


class Bell:
    """Rings in every waiting task of this process. Safe to ring from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}
        #: Those who listen to samples, too.
        self._measuring: dict[object, Callable[[], None]] = {}
        self._counting = Lock()
        #: How often it rang for something that was committed, samples apart.
        self.rings = 0
        #: True once the service stops; every waiter then goes home.
        self.closed = False
        #: Grows whenever a token was revoked.
        self.revocations = 0
        #: Jobs of which samples were stored, by the monotonic second.
        self._measured: dict[str, float] = {}

    def ring(self, *, measured: frozenset[str] = frozenset()) -> None:
        """Wake all who listen, or those who listen to samples, for jobs that were ``measured``."""
        if not measured:
            with self._counting:
                self.rings += 1
            self.wake()
            return
        now = time.monotonic()
        for job in measured:
            self._measured[job] = now
        for wake in list(self._measuring.values()):
            wake()

    def wake(self) -> None:
        """Wake all who listen: there is something to be had."""
        for wake in list(self._listeners.values()):
            wake()

    def revoked(self) -> None:
        """Wake all who listen, to look whether they may still."""
        self.revocations += 1
        self.ring()

    def close(self) -> None:
        """Wake all who listen for the last time."""
        self.closed = True
        self.ring()

    def measured_since(self, instant: float) -> list[str]:
        """Jobs of which samples were stored at or after a monotonic instant."""
        return sorted(job for job, at in list(self._measured.items()) if at >= instant)

    @contextmanager
    def listening(self, *, samples: bool = False) -> Iterator[asyncio.Event]:
        """Within the block each ring sets the event; ``samples``: rings for samples do, too."""
        loop, heard, me = asyncio.get_running_loop(), asyncio.Event(), object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.set)

        heard_by = (self._listeners, self._measuring) if samples else (self._listeners,)
        for listeners in heard_by:
            listeners[me] = wake
        try:
            yield heard
        finally:
            for listeners in heard_by:
                del listeners[me]


@dataclass(frozen=True, slots=True)
class _Held:
    """All events of ids above ``since`` up to ``last``, each as it is sent."""

    since: int
    last: int
    frames: tuple[tuple[int, bytes], ...] = ()

    def with_news(self, news: Sequence[Event]) -> "_Held":
        """Return these frames and those of ``news``, without the oldest ones."""
        if not news:
            return self
        frames = (*self.frames, *((event.id, _frame(event)) for event in news))
        gone, kept = frames[:-_HELD], frames[-_HELD:]
        return _Held(gone[-1][0] if gone else self.since, news[-1].id, kept)


class Feed:
    """The newest events as frames. Safe to use from any thread.

    The first stream that hears the bell reads, in one transaction; the others find what it read.
    """

    def __init__(self, bell: Bell, stores: Stores) -> None:
        self._bell, self._stores = bell, stores
        self._reading = Lock()
        # Replaced, never changed: whoever looks needs no lock.
        self._held: _Held | None = None
        self._rung = -1

    @property
    def stale(self) -> bool:
        """True if events may have been committed that no stream reads yet."""
        return self._rung != self._bell.rings and not self._reading.locked()

    def start(self) -> int:
        """The id of the newest event, for a stream that begins now.

        Raises:
            Unavailable: the stores cannot be read.
        """
        with self._reading:
            before, held = self._held, self._caught_up()
        self._wake_others(before)
        return held.last

    def catch_up(self) -> None:
        """Read new events, unless another stream does; then wake the other streams.

        Stores that cannot be read have no news; a request that writes is told so.
        """
        if not self._reading.acquire(blocking=False):
            return
        before = self._held
        try:
            self._caught_up()
        except Unavailable:
            return
        finally:
            self._reading.release()
        self._wake_others(before)

    def after(self, id: int) -> list[tuple[int, bytes]] | None:
        """Events above ``id``, oldest first; None where not all of them are held."""
        held = self._held
        if held is None or id < held.since:
            return None
        return list(held.frames[bisect_right(held.frames, id, key=itemgetter(0)) :])

    def read(self, id: int) -> list[tuple[int, bytes]]:
        """Some events above ``id``, oldest first, from the stores; none where they are away."""
        try:
            with self._stores.transaction(read_only=True) as tx:
                return [(event.id, _frame(event)) for event in tx.events.after(id)]
        except Unavailable:
            return []

    def _wake_others(self, before: _Held | None) -> None:
        # Also where the bell rang meanwhile: those who heard it found somebody reading.
        if self._held is not before or self.stale:
            self._bell.wake()

    def _caught_up(self) -> _Held:
        rung, held = self._bell.rings, self._held
        if held is not None and self._rung == rung:
            return held
        with self._stores.transaction(read_only=True) as tx:
            if held is None:
                last = tx.events.last_id()
                held = _Held(last, last)
            while len(news := tx.events.after(held.last, limit=_HELD)) == _HELD:
                held = held.with_news(news)
        held = held.with_news(news)
        self._held, self._rung = held, rung
        return held


async def poll(bell: Bell, read: Callable[[], T], done: Callable[[T], bool], wait: float) -> T:
    """Read until ``done``, the wait is over or the service stops; return what was read last."""
    deadline = time.monotonic() + wait
    with bell.listening() as heard:
        while True:
            heard.clear()
            value = await run_in_threadpool(read)
            left = deadline - time.monotonic()
            if done(value) or left <= 0 or bell.closed:
                return value
            await _wait(heard, left)


async def watch(bell: Bell, stores: Stores) -> None:
    """Ring the bell for commits of other processes, until the service stops."""
    seen = -1
    while not bell.closed:
        try:
            last = await run_in_threadpool(lambda: last_event_id(stores))
        except Unavailable:
            # Told by the tick and by every request; here it only means nothing to wake for.
            last = seen
        if seen not in (-1, last):
            bell.ring()
        seen = last
        await asyncio.sleep(WATCH_SECONDS)


def last_event_id(stores: Stores) -> int:
    """The newest event's id."""
    with stores.transaction(read_only=True) as tx:
        return tx.events.last_id()


async def stream(
    bell: Bell,
    feed: Feed,
    *,
    after: int,
    heartbeat_seconds: float,
    ended: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Server-sent events from ``after`` on, in bunches one a second at most.

    Each event is ``id`` and ``data`` (an ``Event`` as JSON). ``event: measured`` names jobs of
    which samples came in; it has no id, because it need not be repeated. The stream is over once
    ``ended``, asked after every wait.
    """
    looked = time.monotonic()
    yield b"retry: 1000\n: hello\n\n"
    with bell.listening(samples=True) as heard:
        while not (bell.closed or await ended()):
            heard.clear()
            since, looked = looked, time.monotonic()
            if feed.stale:
                await run_in_threadpool(feed.catch_up)
            found = feed.after(after)
            if found is None:
                found = await run_in_threadpool(feed.read, after)
            lines = [frame for _, frame in found]
            if jobs := bell.measured_since(since):
                lines.append(b"event: measured\ndata: " + wire.encode({"jobs": jobs}) + b"\n\n")
            if found:
                after = found[-1][0]
            if lines:
                yield b"".join(lines)
                await _pause(bell, heard)
            elif not await _wait(heard, heartbeat_seconds):
                yield b": heartbeat\n\n"


def _frame(event: Event) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (event.id, wire.encode(event))


async def _pause(bell: Bell, heard: asyncio.Event) -> None:
    """Let events gather, unless the service stops."""
    deadline = time.monotonic() + COALESCE_SECONDS
    while not bell.closed and (left := deadline - time.monotonic()) > 0:
        heard.clear()
        await _wait(heard, left)


async def _wait(heard: asyncio.Event, seconds: float) -> bool:
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the event.
        async with asyncio.timeout(seconds):
            await heard.wait()
    except TimeoutError:
        return False
    return True
