"""Long polls and event streams, which wait for the ``Bell`` of this process.

A committed change rings the bell; ``watch`` rings it for commits of other processes. A waiting
request uses no thread: its task waits on the event loop, and reads in the thread pool only after a
ring. One task reads for all streams, at most once a second.
"""

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from threading import Lock
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from brain import wire
from brain.api.bell import Bell
from brain.api.fanout import Bunch, Connected, Fanout, Follower, Place, heard_within
from brain.api.lists import ListMarks
from brain.api.rows import JobRows
from brain.errors import Unavailable
from brain.ports import Stores
from brain.types.record import Event

T = TypeVar("T")

#: Seconds between updates of all streams, so that a browser gets at most one per second.
COALESCE_SECONDS = 1.0
#: Seconds between checks of rows that change without an event: with time, or in other processes.
SWEEP_SECONDS = 10.0
#: Seconds between checks for commits of other processes.
WATCH_SECONDS = 1.0
#: Number of events in memory for streams; a stream that needs older ones reads the stores.
_HELD = 2000
#: Number of frames without an id in memory; a stream that needs older ones ends and reconnects.
_HELD_PASSING = 60


@dataclass(frozen=True, slots=True)
class _Held:
    """All events with ids above ``since`` up to ``last``, each as a frame."""

    since: int
    last: int
    frames: tuple[tuple[int, bytes], ...] = ()

    def with_news(self, news: Sequence[Event]) -> "_Held":
        """Return these frames and those of ``news``; only the newest ``_HELD`` are kept."""
        if not news:
            return self
        frames = (*self.frames, *((event.id, _frame(event)) for event in news))
        gone, kept = frames[:-_HELD], frames[-_HELD:]
        return _Held(gone[-1][0] if gone else self.since, news[-1].id, kept)


class Feed:
    """The frames (server-sent events) that streams send: the newest events, and the newest changes
    of rows and lists.

    Any thread may use it. One task reads the stores while there are streams, and all streams use
    its result.
    """

    def __init__(
        self,
        bell: Bell,
        stores: Stores,
        rows: JobRows,
        lists: ListMarks,
        *,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._bell, self._stores, self._rows, self._lists = bell, stores, rows, lists
        self._sweep_seconds = sweep_seconds
        self._reading = Lock()
        # Replaced, never changed, so that readers need no lock.
        self._held: _Held | None = None
        self._rung = -1
        #: Number of times that an older copy replaced the database.
        self.copies = 0
        #: Newest frames without an id, each with its number.
        self._passing: deque[tuple[int, bytes]] = deque(maxlen=_HELD_PASSING)
        #: Jobs with new events, whose rows are checked next.
        self._touched: set[str] = set()
        #: Jobs with new samples that streams have not been told of yet.
        self._measured: frozenset[str] = frozenset()
        self._swept_at = time.monotonic()
        self._publisher: asyncio.Task[None] | None = None
        #: Delivers frames to all open streams.
        self.fanout = Fanout(bell, self.bunch)
        #: Done once the lists' state at the beginning of the present streams is read.
        self._begun: asyncio.Task[None]
        self._followers = 0

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[asyncio.Task[None]]:
        """Within the block, one task reads the stores for all streams; yield this task."""
        if self._publisher is None or self._publisher.done():
            # Earlier measurements concern none of the present streams.
            self._bell.take_measured()
            # They work for all streams, not for the request that happens to be the first.
            beginning = run_in_threadpool(self._begin, time.monotonic())
            self._begun = asyncio.create_task(beginning, context=Context())
            self._publisher = asyncio.create_task(self._publish(self._begun), context=Context())
            # Streams end with the task and begin anew; its exception is logged.
            self._publisher.add_done_callback(lambda _: self.fanout.wake())
        self._followers += 1
        try:
            # A client reads the lists at its stream's first line, so no earlier state of them may
            # be what later ones are compared with.
            await asyncio.wait({self._begun})
            yield self._publisher
        finally:
            self._followers -= 1
            if not self._followers and self._publisher is not None:
                self._publisher.cancel()
                self._publisher = None

    def start(self, after: int | None = None) -> int:
        """Return the id after which a new stream sends events: ``after`` or, if ``after`` is None,
        the newest event's id.

        If ``after`` is above the newest event's id, an older copy has replaced the database. New
        events would have ids below ``after`` for a long time, so the stream then starts after the
        newest event.

        Raises:
            Unavailable: the stores cannot be read.
        """
        with self._reading:
            before = self._held
            beyond = before is not None and after is not None and after > before.last
            held = self._caught_up(anew=beyond)
        if held is not before:
            self._bell.publish()
        return held.last if after is None else min(after, held.last)

    def catch_up(self) -> None:
        """Read new events, rows and lists; wake the streams if there are new frames.

        If the stores cannot be read, this method raises nothing, because the requests that write
        report the error.
        """
        before, told = self._held, self.told
        with suppress(Unavailable), self._reading:
            self._caught_up()
            self._tell_changes()
        if self._held is not before or self.told != told:
            self._bell.publish()

    def after(self, id: int) -> list[tuple[int, bytes]] | None:
        """Return the events above ``id``, oldest first; None if some of them are no longer in
        memory.
        """
        held = self._held
        if held is None or id < held.since:
            return None
        return list(held.frames[bisect_right(held.frames, id, key=itemgetter(0)) :])

    @property
    def told(self) -> int:
        """Return the number of the newest frame without an event id; 0 if there was
        no such frame.
        """
        return self._passing[-1][0] if self._passing else 0

    def passing(self, told: int) -> list[tuple[int, bytes]] | None:
        """Return the frames without an id that follow number ``told``; None if some are no longer
        in memory.
        """
        held = list(self._passing)
        if held and held[0][0] > told + 1:
            return None
        return [frame for frame in held if frame[0] > told]

    def read(self, id: int) -> list[tuple[int, bytes]]:
        """Return some events above ``id``, oldest first; return no events if the stores cannot be
        read.
        """
        try:
            with self._stores.transaction(read_only=True) as tx:
                return [(event.id, _frame(event)) for event in tx.events.after(id)]
        except Unavailable:
            return []

    def bunch(self, place: Place, found: Sequence[tuple[int, bytes]] | None = None) -> Bunch | None:
        """Return the frames after a position in the feed; None if memory no longer has some of
        them.

        ``found`` has events that were read from the stores, because memory no longer has them; None
        if memory has them.
        """
        after, told = place
        found, passing = self.after(after) if found is None else found, self.passing(told)
        if found is None or passing is None:
            return None
        chunk = b"".join(frame for _, frame in (*found, *passing))
        return Bunch(chunk, (found[-1][0] if found else after, told + len(passing)))

    async def _publish(self, begun: "asyncio.Task[None]") -> None:
        await begun
        with self._bell.listening(samples=True) as heard:
            rang = True
            while not self._bell.closed:
                if not rang:
                    await heard_within(heard, self._sweep_seconds)
                heard.clear()
                await run_in_threadpool(self.catch_up)
                rang = await _gathered(self._bell, heard)

    def _begin(self, at: float) -> None:
        # Earlier frames concern none of the present streams.
        with self._reading:
            self._rows.forget()
            self._touched.clear()
            self._measured, self._swept_at = frozenset(), at
            self._lists.forget()
            with suppress(Unavailable), self._stores.transaction(read_only=True) as tx:
                self._lists.changes(tx, all=True)

    def _caught_up(self, *, anew: bool = False) -> _Held:
        """Read the events since the last time, if the bell rang since then, or ``anew`` is True."""
        rung, held = self._bell.rings, self._held
        if held is not None and self._rung == rung and not anew:
            return held
        with self._stores.transaction(read_only=True) as tx:
            if held is None:
                last = tx.events.last_id()
                held = _Held(last, last)
            while len(news := tx.events.after(held.last, limit=_HELD)) == _HELD:
                held = self._with_news(held, news)
            if not news and (last := tx.events.last_id()) < held.last:
                # Events are never deleted, so an older copy replaced the database.
                held, self.copies = _Held(last, last), self.copies + 1
        held = self._with_news(held, news)
        self._held, self._rung = held, rung
        return held

    def _with_news(self, held: _Held, news: Sequence[Event]) -> _Held:
        self._touched.update(event.job for event in news if event.job is not None)
        if any(event.job is None for event in news):
            # A freeze or a node changes rows that its event does not name.
            self._swept_at = -inf
        return held.with_news(news)

    def _tell_changes(self) -> None:
        """Add frames for jobs with new samples, and for changed rows and lists."""
        now = time.monotonic()
        self._measured |= self._bell.take_measured()
        is_sweep = now - self._swept_at >= self._sweep_seconds
        touched = self._touched | self._measured
        if touched or is_sweep:
            with self._stores.transaction(read_only=True) as tx:
                rows = self._rows.changes(tx, touched, unfinished=is_sweep)
            self._pass(_measured(sorted(self._measured)), rows)
        self._touched, self._measured = set(), frozenset()
        if is_sweep:
            self._swept_at = now
        if touched or is_sweep:
            with self._stores.transaction(read_only=True) as tx:
                self._pass(self._lists.changes(tx, all=is_sweep))

    def _pass(self, *frames: bytes) -> None:
        for frame in filter(None, frames):
            self._passing.append((self.told + 1, frame))


async def poll(bell: Bell, read: Callable[[], T], done: Callable[[T], bool], wait: float) -> T:
    """Call ``read`` now and after each ring of ``bell`` until ``done`` accepts the result, ``wait``
    seconds have passed, or the service stops; return the last result.
    """
    deadline = time.monotonic() + wait
    with bell.listening() as heard:
        while True:
            heard.clear()
            value = await run_in_threadpool(read)
            left = deadline - time.monotonic()
            if done(value) or left <= 0 or bell.closed:
                return value
            await heard_within(heard, left)


async def watch(bell: Bell, stores: Stores) -> None:
    """Ring the bell for commits of other processes, until the service stops."""
    seen = -1
    while not bell.closed:
        try:
            last = await run_in_threadpool(lambda: last_event_id(stores))
        except Unavailable:
            # The tick and every request report the failure; here it only means that there is no
            # news.
            last = seen
        if seen not in (-1, last):
            bell.ring()
        seen = last
        await asyncio.sleep(WATCH_SECONDS)


def last_event_id(stores: Stores) -> int:
    """Return the newest event's id; 0 if there is no event."""
    with stores.transaction(read_only=True) as tx:
        return tx.events.last_id()


async def stream(
    bell: Bell,
    feed: Feed,
    *,
    after: int,
    heartbeat_seconds: float,
    ended: Callable[[], Awaitable[bool]],
    connected: Connected | None = None,
) -> AsyncIterator[bytes]:
    """Yield server-sent events with ids above ``after``; new events are sent together, at most once
    a second.

    Each event has an ``id`` and ``data`` (an ``Event`` as JSON). Three other kinds of frames have
    no id, because they are not repeated after a reconnect: ``event: measured`` names jobs with new
    samples, ``event: jobs`` has the changed fields of rows in the list of jobs, and ``event:
    changed`` names other lists that changed.

    The stream ends if ``ended``, which is called after every wait, returns True. It also ends if
    the client is so far behind that changes of rows are no longer in memory, or if an older copy
    replaced the database. With ``connected``, most events are written directly to the connection
    while this function waits, and are not yielded.
    """
    async with feed.followed() as publisher:
        follower, copies = Follower((after, feed.told), connected), feed.copies
        yield b"retry: 1000\n: hello\n\n"
        with feed.fanout.joined(follower):
            while not (bell.closed or publisher.done() or feed.copies != copies or await ended()):
                follower.heard.clear()
                bunch = feed.bunch(follower.place)
                if bunch is None:
                    found = await run_in_threadpool(feed.read, follower.place[0])
                    bunch = feed.bunch(follower.place, found)
                if bunch is None:
                    return
                follower.place = bunch.place
                if bunch.chunk:
                    follower.wrote_at = time.monotonic()
                    yield bunch.chunk
                elif not await follower.wait(heartbeat_seconds):
                    follower.wrote_at = time.monotonic()
                    yield b": heartbeat\n\n"


def _frame(event: Event) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (event.id, wire.encode(event))


def _measured(jobs: Sequence[str]) -> bytes:
    return b"event: measured\ndata: %s\n\n" % wire.encode({"jobs": jobs}) if jobs else b""


async def _gathered(bell: Bell, heard: asyncio.Event) -> bool:
    """Wait until the next update is due, or the service stops; return True if the bell rang."""
    deadline, rang = time.monotonic() + COALESCE_SECONDS, heard.is_set()
    while not bell.closed and (left := deadline - time.monotonic()) > 0:
        heard.clear()
        rang |= await heard_within(heard, left)
    return rang
