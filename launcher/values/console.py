"""Messages of an agent on standard error; in a job started by hand, only those that the user
needs.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from launcher.values.streams import write

#: Seconds after which a wait is printed even in a job started by hand.
PATIENCE_SECONDS = 10.0
_WAITING = "waiting: "


def say(text: str) -> None:
    """Write one line with the launcher's prefix."""
    write(f"brain: {text}\n")


class Discreet:
    """Keeps the console of a job started by hand free for the script, but prints long waits.

    A text that starts with ``waiting: `` is written only if the wait lasts; the next text ends the
    wait. If a wait begins again soon after its end, both count as one wait, because an agent may
    search for peers in between. With BRAIN_DEBUG every text is printed.
    """

    def __init__(
        self, write: Callable[[str], None] = say, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._write, self._patience_seconds = write, patience_seconds
        self._waiting: asyncio.TimerHandle | None = None
        self._waits: dict[str, _Wait] = {}

    def __call__(self, text: str) -> None:
        if os.environ.get("BRAIN_DEBUG"):
            self._write(text)
            return
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if text.startswith(_WAITING):
            self._wait(text, asyncio.get_running_loop())

    def _wait(self, text: str, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        wait = self._waits.get(text)
        if wait is None or now - wait.said_at >= self._patience_seconds:
            wait = self._waits[text] = _Wait(began_at=now)
        wait.said_at = now
        if not wait.written:
            due = wait.began_at + self._patience_seconds
            self._waiting = loop.call_at(due, self._write_once, text, wait)

    def _write_once(self, text: str, wait: "_Wait") -> None:
        wait.written = True
        self._write(text)


@dataclass(slots=True, kw_only=True)
class _Wait:
    """One obstacle that an agent waits for, however often it is reported."""

    began_at: float
    said_at: float = 0.0
    written: bool = False
