"""Workers that were stopped (SIGSTOP): neither alive nor dead, and all their peers wait."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launcher import frames
from launcher.workers import Workers


class Standstill:
    """Remembers since when workers are seen stopped. Instants are CLOCK_MONOTONIC seconds."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def overdue(self, states: Mapping[int, str], now: float, seconds: float) -> tuple[int, ...]:
        """Those that were stopped at every look for so long; ``states`` are by process id.

        >>> seen = Standstill()
        >>> seen.overdue({7: "T", 8: "S"}, 0.0, 2.0), seen.overdue({7: "T", 8: "T"}, 2.0, 2.0)
        ((), (7,))
        """
        stopped = [pid for pid, state in states.items() if state == "T"]
        self._since = {pid: self._since.get(pid, now) for pid in stopped}
        return tuple(pid for pid, since in self._since.items() if now - since >= seconds)

    def end_stopped(self, workers: Workers, say: Callable[[str], None]) -> None:
        """Give up workers that somebody stopped, when a silent host would be: their peers wait for
        them. Without leases nobody could go on, and they are waited for."""
        if not (lease := workers.world.lease_seconds):
            return
        seconds = max(lease - frames.HEARTBEAT_SECONDS, 0.0)
        ended = {exit.pid for exit in workers.exits}
        running = [pid for pid in workers.pids if pid not in ended]
        for pid in self.overdue(states(running), time.monotonic(), seconds):
            say(f"process {pid} was stopped for {seconds:g} s and is ended; its world waits")
            os.kill(pid, signal.SIGKILL)


def states(pids: Iterable[int]) -> dict[int, str]:
    """The letters of ``/proc/<pid>/stat``: T is stopped, t under a debugger."""
    found = {}
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        found[pid] = stat.rpartition(")")[2].split()[0]
    return found
