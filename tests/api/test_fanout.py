"""Frames go to all streams in one callback; a stream's task wakes for other work alone."""

import asyncio
import zlib
from collections.abc import Callable
from contextlib import ExitStack

from brain.api.bell import Bell
from brain.api.compression import GzipStream
from brain.api.fanout import Bunch, Connected, Fanout, Follower, Place

CHUNK = b"id: 2\ndata: {}\n\n" * 20


def _delivered(*followers: Follower, bell: Bell | None = None) -> None:
    """Let frames come up to place (2, 0), while the tasks of some streams wait."""

    def bunch(place: Place) -> Bunch | None:
        return None if place[0] < 1 else Bunch(b"" if place[0] == 2 else CHUNK, (2, 0))

    async def deliver() -> None:
        fanout = Fanout(bell or Bell(), bunch)
        with ExitStack() as joined:
            for each in followers:
                joined.enter_context(fanout.joined(each))
            fanout.deliver()

    asyncio.run(deliver())


def _follower(
    write: Callable[[bytes], bool],
    *,
    after: int = 1,
    due: bool = False,
    gzip: GzipStream | None = None,
    waits: bool = True,
) -> Follower:
    return Follower((after, 0), Connected(write, lambda: due, gzip), waits=waits)


def test_streams_at_one_place_get_the_same_bytes_and_their_tasks_sleep_on() -> None:
    written: list[bytes] = []
    followers = [_follower(lambda part: written.append(part) is None) for _ in range(3)]
    _delivered(*followers)
    assert written == [b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)] * 3
    assert written[0] is written[2]
    assert [(each.place, each.heard.is_set()) for each in followers] == [((2, 0), False)] * 3


def test_no_frames_are_made_for_a_client_that_does_not_read() -> None:
    asked: list[Place] = []

    async def deliver() -> None:
        fanout = Fanout(Bell(), lambda place: asked.append(place))
        stalled = _follower(lambda part: True, waits=False)
        with fanout.joined(stalled):
            fanout.deliver()
        assert stalled.heard.is_set()

    asyncio.run(deliver())
    assert asked == []


def test_a_packed_stream_counts_what_is_written_beside_it() -> None:
    written: list[bytes] = []
    gzip = GzipStream()
    begun = gzip.packed(b"hello")
    _delivered(_follower(lambda part: written.append(part) is None, gzip=gzip))
    (part,) = written
    body = part.partition(b"\r\n")[2].removesuffix(b"\r\n")
    assert zlib.decompress(begun + body + gzip.end(), wbits=31) == b"hello" + CHUNK


def test_a_task_is_woken_for_whatever_needs_it() -> None:
    written: list[bytes] = []

    def write(part: bytes) -> bool:
        return written.append(part) is None

    followers = [
        _follower(lambda part: False),  # its client does not read
        _follower(write, due=True),  # its sign-in has to be checked
        _follower(write, after=0),  # it is too far behind
        _follower(write, waits=False),  # an earlier chunk may be on its way
        Follower((1, 0)),
    ]
    _delivered(*followers)
    assert written == []
    assert [(each.place[0] < 2, each.heard.is_set()) for each in followers] == [(True, True)] * 5


def test_a_stream_that_has_everything_is_left_alone_until_the_service_stops() -> None:
    idle = _follower(lambda part: True, after=2)
    _delivered(idle)
    assert not idle.heard.is_set()
    bell = Bell()
    bell.closed = True
    _delivered(idle, bell=bell)
    assert idle.heard.is_set()
