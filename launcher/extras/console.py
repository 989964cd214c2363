"""What an agent says on standard error: by hand only what a person waits for."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable

#: What is waited for longer than this is said by hand, too.
PATIENCE_SECONDS = 10.0
_WAITING = "waiting: "


def say(text: str) -> None:
    """Write one line of ours."""
    write(f"brain: {text}\n")


def write(text: str) -> None:
    """Write to standard error; a full disk behind it, or a terminal that is gone, costs what was to
    be said, never the agent."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


class Discreet:
    """By hand the console belongs to the script, unless somebody debugs us or waits for long.

    What starts with ``waiting: `` is written once it has lasted; the next thing said ends it.
    """

    def __init__(
        self, write: Callable[[str], None] = say, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._write, self._patience_seconds = write, patience_seconds
        self._waiting: asyncio.TimerHandle | None = None

    def __call__(self, text: str) -> None:
        if os.environ.get("BRAIN_DEBUG"):
            self._write(text)
            return
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if text.startswith(_WAITING):
            loop = asyncio.get_running_loop()
            self._waiting = loop.call_later(self._patience_seconds, self._write, text)
