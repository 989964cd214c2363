"""Finds workers that are stopped (SIGSTOP) while their peers wait, and ends them."""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from launcher import messages
from launcher.values.console import say
from launcher.workers.processes.reaper import Lasting
from launcher.workers.workers import Workers

#: Leases that a worker is held for before it is ended and its world begins again.
_HELD_LEASES = 2
_HELD = (
    "the leases of processes {} ran out; the processes pause until it is certain that no other "
    "world began"
)
_NOT_RENEWED = (
    "process {} paused for {:g} s, and another world may have begun; the agent ends the process, "
    "and its world starts again from the checkpoint"
)


class Standstill:
    """The time for which workers have been stopped, not counting pauses of this agent."""

    def __init__(self) -> None:
        self._stopped = Lasting(messages.HEARTBEAT_SECONDS)
        #: Workers that stopped themselves because their lease ran out.
        self._held = Lasting(messages.HEARTBEAT_SECONDS)
        self._told_held: frozenset[int] = frozenset()
        #: Their coordinator asks if others succeeded them: they are held until it knows.
        self.asking = False

    def end_stopped(self, workers: Workers) -> None:
        """End workers that have been stopped by a signal for about as long as a lease.

        The peers of a stopped worker wait for it. A lease is also the time after which a silent
        host is considered lost. In a world without leases no worker is ended, because the peers
        could not continue without it. The messages are printed even in a job started by hand,
        because its user sees that training has stopped.
        """
        if not (lease := workers.world.lease_seconds):
            return
        workers.resume_held()
        now = time.monotonic()
        held = frozenset(workers.held)
        if new := held - self._told_held:
            say(_HELD.format(", ".join(map(str, sorted(new)))))
        self._told_held = held
        for pid, seconds in self._held.seen(() if self.asking else held, now).items():
            if seconds >= _HELD_LEASES * lease:
                say(_NOT_RENEWED.format(pid, seconds))
                os.kill(pid, signal.SIGKILL)
        others = held | {exit.pid for exit in workers.exits}
        running = [pid for pid in workers.pids if pid not in others]
        stopped_seconds = max(lease - messages.HEARTBEAT_SECONDS, 0.0)
        for pid in self.overdue(states(running), now, stopped_seconds):
            say(
                f"process {pid} was stopped by a signal for {stopped_seconds:g} s, and its world "
                "waits for it; the agent ends the process"
            )
            os.kill(pid, signal.SIGKILL)

    def overdue(self, states: Mapping[int, str], now: float, seconds: float) -> tuple[int, ...]:
        """Return the ids of processes that every look in the last ``seconds`` found stopped.

        ``states`` maps process ids to the states that the function ``states`` returns.
        """
        stopped = self._stopped.seen((pid for pid in states if states[pid] == "T"), now)
        return tuple(pid for pid, lasted in stopped.items() if lasted >= seconds)


def states(pids: Iterable[int]) -> dict[int, str]:
    """Return the state of each process, as in ``/proc/<pid>/stat``: T if a signal stopped it, t if
    a debugger did.
    """
    found = {}
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        found[pid] = stat.rpartition(")")[2].split()[0]
    return found
