"""Converts times on senders' clocks, which may be wrong, to the service's time.

A batch contains the time at which it was sent. The batch's *offset* is the service's clock at
arrival minus the time of sending. The offset is the sum of the sender's clock error and the batch's
latency, which cannot be separated. So each source has its own offset, which begins at zero and
changes only if a batch's offset differs from it by more than ``TOLERANCE``. Latency and jitter are
smaller than this tolerance and do not change the offset.

The service times of a source increase like its own time stamps. An offset can fall, because a clock
was set forward or a batch was much delayed. Then a sample that would sort before the newest time of
its source gets a time one microsecond after this newest time.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

#: Largest offset that counts as latency of network and service, not as an error of the clock.
TOLERANCE = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_TOLERANCE = TOLERANCE // _MICROSECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SourceClock(NamedTuple):
    """The offset of one source's clock, and the newest stamp of the source, in microseconds."""

    #: Service time less the source's; 0, or more than ``TOLERANCE`` at the moment that it was
    #: adopted.
    offset: int = 0
    #: The newest stamp of the source as it was sent, and its service time, both since 1970.
    newest: tuple[int, int] | None = None


def microseconds_of(at: datetime) -> int:
    """Return whole microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def at_microseconds(count: int) -> datetime:
    """Return the time that is this number of microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=count)


def beyond_latency(seconds: float) -> float:
    """Return an offset if it is too large to be explained by latency, else 0."""
    return seconds if abs(seconds) > TOLERANCE.total_seconds() else 0.0


def corrected(
    clock: SourceClock, stamps: Iterable[int], offset: int
) -> tuple[Mapping[int, int], SourceClock]:
    """Return the service time of each stamp of a source, and the updated clock of the source.

    All times are in microseconds. ``offset`` is the measured offset of the batch. A stamp that is
    not newer than the source's earlier stamps gets the earlier offset, and does not change the
    clock.

    >>> slow = 600_000_000
    >>> instants, clock = corrected(SourceClock(), [0], slow)
    >>> instants
    {0: 600000000}
    >>> corrected(clock, [slow], slow + 40_000)[1].offset == slow
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
        last = instant if last is None else max(instant, last + 1)
        instants[stamp] = last
    assert last is not None, "there are newer timestamps"
    return instants, SourceClock(offset=kept, newest=(newer[-1], last))


def _moved(kept: int, measured: int) -> int:
    if abs(measured - kept) <= _TOLERANCE:
        return kept
    return measured if abs(measured) > _TOLERANCE else 0
