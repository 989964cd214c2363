"""Senders' clocks: how instants of a clock that is wrong become instants of service time.

A batch says when it was sent. Its *offset* is the service's clock on arrival less that time. The
offset holds the error of the sender's clock and the latency of the batch, and nothing tells the
two apart but their size. So each source keeps an offset of its own, which begins at zero and moves
only where a batch disagrees with it by more than ``TOLERANCE``: neither latency nor its jitter
moves any instant.

Whatever the offset does, instants of a source rise as its stamps rise. Where an offset falls, as it
does when a clock is set forward or a batch was much delayed, what would stand before the newest
instant of its source stands one microsecond after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

#: Below this an offset is the network's and the service's load, not the clock's.
TOLERANCE = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceClock:
    """The offset of one source's clock, and the newest stamp of the source."""

    #: Service time less the source's; 0 or more than ``TOLERANCE`` when it was taken over.
    offset: timedelta = timedelta(0)
    #: The newest stamp of the source as it was sent, and the instant that it stands for.
    newest: tuple[datetime, datetime] | None = None


def beyond_latency(offset: timedelta) -> timedelta:
    """``offset`` where it says something about a clock, else 0."""
    return offset if abs(offset) > TOLERANCE else timedelta(0)


def corrected(
    clock: SourceClock, stamps: Iterable[datetime], offset: timedelta
) -> tuple[Mapping[datetime, datetime], SourceClock]:
    """The instant of each stamp of a source, and its clock after them.

    ``offset`` is that of the batch, as measured. Stamps that are not newer than what the source
    had sent before are old news: they get the offset that it had, and change nothing.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> slow = timedelta(minutes=10)
    >>> instants, clock = corrected(SourceClock(), [noon - slow], slow)
    >>> instants[noon - slow] == noon
    True
    >>> corrected(clock, [noon], slow + timedelta(milliseconds=40))[1].offset == slow
    True
    """
    ordered = sorted(set(stamps))
    known = clock.newest
    instants = {stamp: stamp + clock.offset for stamp in ordered if known and stamp <= known[0]}
    newer = ordered[len(instants) :]
    if not newer:
        return instants, clock
    kept = _moved(clock.offset, offset)
    last = known[1] if known else None
    for stamp in newer:
        instant = stamp + kept
        last = instant if last is None else max(instant, last + _MICROSECOND)
        instants[stamp] = last
    assert last is not None, "there are newer stamps"
    return instants, SourceClock(offset=kept, newest=(newer[-1], last))


def _moved(kept: timedelta, measured: timedelta) -> timedelta:
    return kept if abs(measured - kept) <= TOLERANCE else beyond_latency(measured)
