"""Clocks and pauses: how long to wait before something is tried again."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Protocol


class Clock(Protocol):
    """A clock for programs and for people."""

    def elapsed(self) -> float:
        """Seconds since some moment of the past. Never set back; counts a machine's sleep."""

    def now(self) -> datetime:
        """The wall clock, timezone-aware: written for people, never compared."""


class SystemClock:
    """This machine's clocks."""

    def elapsed(self) -> float:
        # Time asleep counts: who slept through its lease must not take it for valid.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that double with every failure in a row, up to a longest one."""

    first_seconds: float = 0.3
    longest_seconds: float = 30.0
    #: Share of a pause that chance may take off, so that many do not come back together.
    jitter: float = 0.5

    def pause(self, failures: int, random: Random) -> float:
        """Seconds to wait after so many failures in a row (1 or more).

        >>> [Backoff(jitter=0.0).pause(count, Random(1)) for count in (1, 2, 3, 99)]
        [0.3, 0.6, 1.2, 30.0]
        """
        # 2.0 ** 1024 overflows; anything beyond a few dozen is the longest pause anyway.
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(max(0, failures - 1), 60))
        return full * (1.0 - self.jitter * random.random())


def spread(seconds: float, random: Random, share: float = 0.2) -> float:
    """``seconds`` up to ``share`` longer, so that what began together does not stay together."""
    return seconds * (1.0 + share * random.random())
