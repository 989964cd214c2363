"""How long a test or a benchmark waits: longer where the machine is busy, never for ever."""

import os
import time
from collections.abc import Callable
from pathlib import Path

#: However busy the machine is, a wait takes at most so many times as long.
SLOWEST = 20.0


def share(runnable: int, cores: int) -> float:
    """How much of a core each process gets that wants one.

    >>> share(runnable=1, cores=2), share(runnable=8, cores=2)
    (1.0, 0.25)
    """
    return max(1 / SLOWEST, min(1.0, cores / max(runnable, 1)))


def runnable() -> int:
    """Processes and threads that run or wait for a core, on the whole machine."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


class Patience:
    """Counts down seconds of a machine that has a core for each process that wants one."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        runnable: Callable[[], int] = runnable,
        cores: int | None = None,
    ) -> None:
        self._left, self._clock, self._runnable = seconds, clock, runnable
        self._cores = cores or len(os.sched_getaffinity(0))
        self._looked = clock()

    @property
    def over(self) -> bool:
        """True once the seconds are spent; ask often, each look counts the time since the last."""
        now = self._clock()
        self._left -= (now - self._looked) * share(self._runnable(), self._cores)
        self._looked = now
        return self._left < 0
