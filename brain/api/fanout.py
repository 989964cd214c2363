"""Delivery of frames to all open streams together.

Streams at the same position of the feed get the same bytes, which are built once, and one callback
writes them to every connection. A stream's own task wakes only for other work: to check its
sign-in, to read older events, to wait for a client that does not read, to send a heartbeat.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from brain.api.bell import Bell
from brain.api.compression import GzipStream

#: Writes a part of an answer's body at once; False if it has to wait for its client.
Write = Callable[[bytes], bool]
#: Place of a stream: the id of its last event, and the number of its last frame without an id.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Connected:
    """The objects that allow writing to a stream without its task."""

    write: Write
    #: True once the sign-in of the stream has to be checked before it gets more.
    due: Callable[[], bool]
    #: Packs the stream; None for a plain one.
    gzip: GzipStream | None = None


@dataclass(slots=True, eq=False)
class Follower:
    """A stream: its position in the feed, and the way to wake its task."""

    place: Place
    connected: Connected | None = None
    #: Set when its task has to look at the feed.
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    #: True while its task waits, so that nothing of it is on its way to the client.
    waits: bool = False
    #: Seconds on the monotonic clock of its last frame.
    wrote_at: float = field(default_factory=time.monotonic)

    async def wait(self, heartbeat_seconds: float) -> bool:
        """Wait until the task has work; return False after ``heartbeat_seconds`` without any."""
        self.waits = True
        try:
            while (left := self.wrote_at + heartbeat_seconds - time.monotonic()) > 0:
                if await heard_within(self.heard, left):
                    return True
            return False
        finally:
            self.waits = False


@dataclass(frozen=True, slots=True)
class Bunch:
    """The frames after a position, as one chunk, and the next position."""

    chunk: bytes
    place: Place


class Fanout:
    """The streams of a process; used only on the event loop."""

    def __init__(self, bell: Bell, bunch: Callable[[Place], Bunch | None]) -> None:
        """``bunch`` returns the frames behind a place; None if not all of them are held."""
        self._bell, self._bunch = bell, bunch
        self._followers: dict[Follower, None] = {}
        self._listening = ExitStack()

    @contextmanager
    def joined(self, follower: Follower) -> Iterator[None]:
        """Within the block, a stream gets new frames, or its task is woken for them."""
        if not self._followers:
            self._listening.enter_context(self._bell.following(self.deliver))
        self._followers[follower] = None
        try:
            yield
        finally:
            del self._followers[follower]
            if not self._followers:
                self._listening.close()

    def deliver(self) -> None:
        """Write to each stream what it has not received yet, or wake its task."""
        if self._bell.closed:
            self.wake()
            return
        now, bunches = time.monotonic(), dict[Place, tuple[Bunch, bytes] | None]()
        for each in self._followers:
            if not _takes(each):
                each.heard.set()
                continue
            if each.place not in bunches:
                found = self._bunch(each.place)
                bunches[each.place] = (found, framed(found.chunk)) if found else None
            known = bunches[each.place]
            if known is None or not _delivered(each, *known, now):
                each.heard.set()

    def wake(self) -> None:
        """Wake the tasks of all streams."""
        for each in self._followers:
            each.heard.set()


def _takes(follower: Follower) -> bool:
    """Return True if a stream can be written to now. Else its task has to write, and no bunch is
    made for the place of a client that does not read.
    """
    to = follower.connected
    return to is not None and follower.waits and not to.due()


def _delivered(follower: Follower, bunch: Bunch, plain: bytes, now: float) -> bool:
    """Write a bunch to a stream that takes it; return False if its task has to."""
    to = follower.connected
    if to is None:
        return False
    if not bunch.chunk:
        return True
    if not to.write(plain if to.gzip is None else framed(to.gzip.repeated(bunch.chunk))):
        return False
    if to.gzip is not None:
        to.gzip.count(bunch.chunk)
    follower.place, follower.wrote_at = bunch.place, now
    return True


def framed(chunk: bytes) -> bytes:
    """Return a chunk as HTTP/1.1 sends it."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)


async def heard_within(heard: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return False after this many seconds without it."""
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the event.
        async with asyncio.timeout(seconds):
            await heard.wait()
    except TimeoutError:
        return False
    return True
