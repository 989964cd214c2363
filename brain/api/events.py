"""Waking those who wait: long polls and event streams.

A committed change rings the ``Bell`` of this process; ``watch`` rings it for what other processes
committed. Waiting holds no thread: the waiter sleeps on the event loop and reads in the thread
pool only after a ring.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
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


class Bell:
    """Rings in every waiting task of this process. Safe to ring from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}
        #: True once the service stops; every waiter then goes home.
        self.closed = False
        #: Grows whenever a token was revoked.
        self.revocations = 0
        #: Jobs of which samples were stored, by the monotonic second.
        self._measured: dict[str, float] = {}

    def ring(self, *, measured: frozenset[str] = frozenset()) -> None:
        """Wake all who listen; ``measured`` names jobs of which samples were committed."""
        now = time.monotonic()
        for job in measured:
            self._measured[job] = now
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
    def listening(self) -> Iterator[asyncio.Event]:
        """Within the block, each ring sets the event."""
        loop, heard, me = asyncio.get_running_loop(), asyncio.Event(), object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.set)

        self._listeners[me] = wake
        try:
            yield heard
        finally:
            del self._listeners[me]


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
    """Ring for what other processes committed, until the service stops."""
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
    stores: Stores,
    *,
    after: int | None,
    heartbeat_seconds: float,
    ended: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Server-sent events from ``after`` on (None: from now), in bunches one a second at most.

    Each event is ``id`` and ``data`` (an ``Event`` as JSON). ``event: measured`` names jobs of
    which samples came in; it has no id, because it need not be repeated. The stream is over once
    ``ended``, asked after every wait.
    """
    if after is None:
        after = await run_in_threadpool(lambda: last_event_id(stores))
    looked = time.monotonic()
    yield b"retry: 1000\n: hello\n\n"
    with bell.listening() as heard:
        while not (bell.closed or await ended()):
            heard.clear()
            since, looked = looked, time.monotonic()
            events = await run_in_threadpool(_events_after, stores, after)
            lines = [_frame(event) for event in events]
            if jobs := bell.measured_since(since):
                lines.append(b"event: measured\ndata: " + wire.encode({"jobs": jobs}) + b"\n\n")
            if events:
                after = events[-1].id
            if lines:
                yield b"".join(lines)
                await _pause(bell, heard)
            elif not await _wait(heard, heartbeat_seconds):
                yield b": heartbeat\n\n"


def _events_after(stores: Stores, after: int) -> list[Event]:
    with stores.transaction(read_only=True) as tx:
        return list(tx.events.after(after))


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
