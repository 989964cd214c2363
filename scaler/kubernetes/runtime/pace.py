"""Clocks, and pauses before another attempt."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Protocol


class Clock(Protocol):
    """A clock with monotonic time and the time of day."""

    def elapsed(self) -> float:
        """Return the seconds since a fixed moment in the past.

        The value never decreases, and it includes the time for which the machine sleeps.
        """

    def now(self) -> datetime:
        """Return the time of day with a time zone; it may be set at any moment."""


class SystemClock:
    """This machine's clocks."""

    def elapsed(self) -> float:
        # Time asleep counts: a process that slept through its lease must not think it valid.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses between attempts, which double with every failure in a row, up to a maximum."""

    first_seconds: float = 0.3
    longest_seconds: float = 30.0
    #: Share of a pause that chance may take off, so that many clients do not return together.
    jitter: float = 0.5

    def pause(self, failures: int, random: Random) -> float:
        """Return the seconds to wait after a number of failures in a row (1 or more).

        >>> [Backoff(jitter=0.0).pause(count, Random(1)) for count in (1, 2, 3, 99)]
        [0.3, 0.6, 1.2, 30.0]
        """
        # 2.0 ** 1024 overflows; the pause is the longest one from a few dozen failures on.
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(max(0, failures - 1), 60))
        return full * (1.0 - self.jitter * random.random())


def spread(seconds: float, random: Random, share: float = 0.2) -> float:
    """Return ``seconds`` plus a random part of up to ``share``, so that simultaneous clients spread
    out.
    """
    return seconds * (1.0 + share * random.random())
