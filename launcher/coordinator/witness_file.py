"""The witness of a world: a file that only one half can take if the two halves lose contact.

The agent that coordinates writes ``.brain-witness-<job>-<epoch>-<random>`` next to the checkpoint.
A half takes the witness by renaming this file to ``<that name>.<replica>``, and only one rename can
succeed. If the file is lost, no half can take it, so two halves never continue.

Storage on a network may hang, so each access has a separate thread, and callers limit how long they
wait.
"""

import asyncio
import contextlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from launcher import messages
from launcher.coordinator import pins
from launcher.values.witness import WitnessObserved

#: Seconds until a witness that could not be asked is asked again.
_AGAIN_SECONDS = 1.0
#: Seconds that its storage may take to remove one that nobody needs.
_FORGET_SECONDS = 2.0

T = TypeVar("T")


class WitnessFile:
    """An agent's knowledge of its latest world's witness, and its access to the witness's file."""

    def __init__(self, rename: Callable[[str, str], None] = os.rename) -> None:
        self._rename = rename
        self.seen = WitnessObserved()
        #: Files that this agent made, or gave another name.
        self._names: list[str] = []
        #: Called when more is known; the coordinator sets it.
        self.changed: Callable[[], object] = lambda: None
        #: The question that is under way; one is enough.
        self._asking: asyncio.Task[None] | None = None

    def begin(self, epoch: int) -> None:
        """Store that a world has begun, which has no witness yet."""
        self.seen = WitnessObserved(epoch=epoch)

    async def offer(self, checkpoint: str, *, job: str, epoch: int) -> None:
        """Write a witness for the world ``epoch``.

        Raises:
            OSError: the directory is not there, or cannot be written.
        """
        path = await _in_thread(lambda: _write(checkpoint, job, epoch))
        self._names.append(path)
        self.told(messages.Witness(epoch=epoch, path=path))

    def told(self, message: messages.Witness) -> bool:
        """Handle the coordinator's message about the witness; return True if this agent accepts it.

        A witness in force stays the witness of its world, as its coordinator promised.
        """
        seen = self.seen
        if message.epoch != seen.epoch or (seen.in_force and message.path != seen.path):
            return False
        if message.path != seen.path:
            self.seen = WitnessObserved(epoch=message.epoch, path=message.path)
        self._note(message.path, in_force=self.seen.in_force or message.in_force)
        return True

    def refused(self, trouble: str) -> None:
        """Store that a member does not see the witness's file, with the reason ``trouble``."""
        self._note(self.seen.path, trouble=trouble)

    async def look(self, message: messages.Witness) -> messages.Witnessed:
        """Handle the coordinator's message about a witness; return the answer, which says if this
        agent sees the witness's file.
        """
        there = self.told(message)
        if there and not message.in_force:
            there = await _in_thread(lambda: os.path.lexists(message.path))
            if not there:
                self._note(
                    message.path,
                    trouble=(
                        f"this host does not see the witness {message.path}; mount the "
                        "checkpoint's storage there"
                    ),
                )
        return messages.Witnessed(epoch=message.epoch, path=message.path, seen=there)

    def take(self, known: WitnessObserved, replica: int) -> None:
        """Try to take the witness for the half of ``replica``; the result is stored."""
        self.seen = replace(known, asked=True)
        self._asking = asyncio.create_task(self._take(known.path, replica))

    async def forget(self) -> None:
        """Remove the files of this agent, which no agent needs any more."""
        names, self._names = self._names, []
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FORGET_SECONDS):
                await _in_thread(lambda: _remove(names))

    async def _take(self, path: str, replica: int) -> None:
        try:
            won = await _in_thread(lambda: self._renamed(path, replica))
            self._names.append(_taken(path, replica))
        except OSError as cannot:
            self._note(path, trouble=f"the witness {path} cannot be taken: {cannot.strerror}")
            await asyncio.sleep(_AGAIN_SECONDS)
            self._note(path, asked=False)
        else:
            trouble = "" if won else f"the other half took the witness {path}"
            holder = replica if won else None
            self._note(path, holder=holder, lost=not won, trouble=trouble)

    def _renamed(self, path: str, replica: int) -> bool:
        """Take the file by a rename; return True if this half has it."""
        mine = _taken(path, replica)
        try:
            self._rename(path, mine)
        except FileNotFoundError:
            return os.path.lexists(mine)  # a server may have lost its answer
        return True

    def _note(self, path: str, **changes: Any) -> None:
        if self.seen.path == path:
            self.seen = replace(self.seen, **changes)
            self.changed()


def sweep(directory: Path, job: str) -> None:
    """Remove the witness files of earlier worlds of the job."""
    for name in os.listdir(directory):
        if name.startswith(_prefix(job)):
            (directory / name).unlink(missing_ok=True)


def _write(checkpoint: str, job: str, epoch: int) -> str:
    directory = pins.directory_of(checkpoint)
    sweep(directory, job)
    path = directory / f"{_prefix(job)}{epoch}-{secrets.token_hex(8)}"
    path.touch(mode=0o600, exist_ok=False)
    return str(path)


def _remove(names: Iterable[str]) -> None:
    for name in names:
        Path(name).unlink(missing_ok=True)


def _taken(path: str, replica: int) -> str:
    return f"{path}.{replica}"


def _prefix(job: str) -> str:
    return f".brain-witness-{re.sub(r'[^A-Za-z0-9_.]', '_', job)}-"


async def _in_thread(work: Callable[[], T]) -> T:
    """Like ``asyncio.to_thread``, but in a daemon thread, so that a hang cannot keep the process
    alive.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: "T | OSError") -> None:
        if answer.done():
            return
        if isinstance(result, OSError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def run() -> None:
        result: T | OSError
        try:
            result = work()
        except OSError as refused:
            result = refused
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, daemon=True, name="witness").start()
    return await answer
