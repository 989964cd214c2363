"""Delivery of frames to all open streams together.

A frame is one server-sent event as bytes. Streams at the same position of the feed get the same
bytes, which are built once. One callback writes these bytes to every connection. A stream's own
task wakes only for other work: to check its token, to read older events, to wait for a client that
does not read, or to send a heartbeat.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from brain.api.bell import Bell
from brain.api.compression import GzipStream

#: Writes a part of an answer's body; returns False if it must wait until the client reads.
Write = Callable[[bytes], bool]
#: A stream's position: the id of its last event, and the number of its last frame without an id.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Connected:
    """Functions and state with which ``Fanout.deliver`` writes to a stream without waking the
    stream's task.
    """

    write: Write
    #: Returns True if the stream's token must be checked before more frames are sent.
    due: Callable[[], bool]
    #: Compresses the stream; None if it is not compressed.
    gzip: GzipStream | None = None


@dataclass(slots=True, eq=False)
class Follower:
    """A stream: its position in the feed, and the event that wakes its task."""

    place: Place
    connected: Connected | None = None
    #: Set when the stream's task must read the feed.
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    #: True while the stream's task waits, so that it is not sending anything.
    waits: bool = False
    #: Time of the last frame, in seconds on the monotonic clock.
    wrote_at: float = field(default_factory=time.monotonic)

    async def wait(self, heartbeat_seconds: float) -> bool:
        """Wait until the task has work; return False once a heartbeat must be sent."""
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
    """The frames after a position of the feed, as one chunk, and the position after them."""

    chunk: bytes
    place: Place


class Fanout:
    """The streams of a process; used only on the event loop."""

    def __init__(self, bell: Bell, bunch: Callable[[Place], Bunch | None]) -> None:
        """``bunch`` returns the frames after a position; None if memory no longer has all."""
        self._bell, self._bunch = bell, bunch
        self._followers: dict[Follower, None] = {}
        self._listening = ExitStack()

    @contextmanager
    def joined(self, follower: Follower) -> Iterator[None]:
        """Within the block, new frames are written to this stream, or the stream's
        task is woken.
        """
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
        """Write to each stream the frames that it has not received yet, or wake the
        stream's task.
        """
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
    """True if the callback may write to a stream now; otherwise the stream's task must write."""
    to = follower.connected
    return to is not None and follower.waits and not to.due()


def _delivered(follower: Follower, bunch: Bunch, plain: bytes, now: float) -> bool:
    """Write a bunch to a stream; return False if the stream's task must write it."""
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
    """Return a chunk in the chunked transfer coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)


async def heard_within(heard: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return False if it is not set within ``seconds``."""
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the event.
        async with asyncio.timeout(seconds):
            await heard.wait()
    except TimeoutError:
        return False
    return True
