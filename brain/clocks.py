"""Senders' clocks: the conversion of times on a wrong clock to service time.

A batch carries the time at which it was sent. Its *offset* is the service's clock on arrival less
that time. The offset is the sum of the sender's clock error and the batch's latency, which differ
only in size. So each source keeps an offset of its own, which begins at zero and moves only if a
batch's offset differs from it by more than ``TOLERANCE``: neither latency nor its jitter moves a
time.

At any offset, the service times of a source rise as its stamps rise. If an offset falls (a clock
was set forward, or a batch was much delayed), a sample that would sort before the newest time of
its source gets a time one microsecond after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

#: Largest offset that counts as latency of network and service, not as an error of the clock.
TOLERANCE = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceClock:
    """The offset of one source's clock, and the newest stamp of the source."""

    #: Service time less the source's; 0, or more than ``TOLERANCE`` at the moment that it was
    #: adopted.
    offset: timedelta = timedelta(0)
    #: The newest stamp of the source as it was sent, and its service time.
    newest: tuple[datetime, datetime] | None = None


def beyond_latency(offset: timedelta) -> timedelta:
    """Return ``offset`` if it is larger than latency explains, else 0."""
    return offset if abs(offset) > TOLERANCE else timedelta(0)


def corrected(
    clock: SourceClock, stamps: Iterable[datetime], offset: timedelta
) -> tuple[Mapping[datetime, datetime], SourceClock]:
    """Return the service time of each stamp of a source, and the source's clock after them.

    ``offset`` is that of the batch, as measured. Stamps that are not newer than the source's
    earlier ones get the earlier offset, and change nothing.

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
    assert last is not None, "there are newer timestamps"
    return instants, SourceClock(offset=kept, newest=(newer[-1], last))


def _moved(kept: timedelta, measured: timedelta) -> timedelta:
    return kept if abs(measured - kept) <= TOLERANCE else beyond_latency(measured)
