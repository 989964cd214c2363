"""Keeps programs running: restarts each program after a pause.

If a program exits right after each of several starts, this module does not start it again.
"""

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import assert_never

from brain.errors import Unavailable

#: A program that ends by itself within this time never worked; on a busy machine its imports alone
#: take seconds.
QUICK_SECONDS = 20.0
#: Number of quick ends in a row after which a restart no longer helps.
QUICK_LIMIT = 3
#: Pauses between attempts double, from the first of these values to the second.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
#: Seconds from SIGTERM to SIGKILL; a service with open streams takes up to 5 s.
GRACE_SECONDS = 5.5
#: Size above which a log is set aside, and seconds between two looks at it.
LOG_BYTES, _LOOK_SECONDS = 16 * 2**20, 2.0

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
#: Exits caused by somebody else, which say nothing about the program.
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Restart:
    """The decision to start the program again after a pause.

    ``quick`` is the number of quick exits in a row so far.
    """

    after_seconds: float
    quick: int


@dataclass(frozen=True, slots=True)
class RestartsExhausted:
    """The decision not to start the program again, because it exited right after several starts."""

    times: int


def after_exit(
    code: int, *, lived_seconds: float, quick: int, worked: bool = True
) -> Restart | RestartsExhausted:
    """Decide whether to restart a program that exited with ``code``.

    ``quick`` is the number of earlier quick exits in a row. If the program never ``worked``, its
    exit counts as quick, however long the program ran.
    """
    if code in _FROM_OUTSIDE:
        return Restart(PAUSE_SECONDS, quick)
    if worked and lived_seconds >= QUICK_SECONDS:
        return Restart(PAUSE_SECONDS, 0)
    quick += 1
    if quick >= QUICK_LIMIT:
        return RestartsExhausted(quick)
    return Restart(min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** (quick - 1)), quick)


@dataclass(slots=True)
class Program:
    """A program to keep running; a change of ``environment`` takes effect at the program's next
    start.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    #: File to which the program's output is appended.
    log: Path
    #: False until the program was seen to work; True from the start if that cannot be seen.
    worked: bool = True
    #: Process id while the program runs.
    pid: int | None = None
    #: Offset in the log at which the present run begins.
    log_begin: int = 0

    def said(self) -> str:
        """Return the output of the program since it was started."""
        try:
            with self.log.open("rb") as log:
                log.seek(self.log_begin)
                return log.read(LOG_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def last_words(self, lines: int = 5) -> str:
        """Return the last ``lines`` lines of the output of the present run."""
        return "\n".join(self.said().rstrip().splitlines()[-lines:])


async def keep(program: Program, say: Callable[[str], None]) -> None:
    """Run a program, start it again whenever it exits, and end it when cancelled.

    Raises:
        Unavailable: the program keeps exiting right after its start; the message has its last
            output.
    """
    quick = 0
    while True:
        process, began = _launch(program), time.monotonic()
        looking = asyncio.create_task(_bound_log(program))
        try:
            code = await _ended(process)
        finally:
            looking.cancel()
            program.pid = None
            await _stop(process)
        lived = time.monotonic() - began
        match after_exit(code, lived_seconds=lived, quick=quick, worked=program.worked):
            case Restart(pause, quick):
                say(
                    f"{program.name} ended ({_how(code)}) and restarts in {pause:g} s. Its "
                    f"last output: {program.last_words(1) or 'nothing'}"
                )
                await asyncio.sleep(pause)
            case RestartsExhausted(times):
                raise Unavailable(
                    f"{program.name} ended {times} times as soon as it was started "
                    f"({_how(code)}); its last output:\n{program.last_words()}\n"
                    f"fix the cause, then start again; the whole output is in {program.log}"
                )
            case other:
                assert_never(other)


def _launch(program: Program) -> subprocess.Popen[bytes]:
    program.log.parent.mkdir(mode=0o700, exist_ok=True)
    output = os.open(program.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        program.log_begin = os.fstat(output).st_size
        process = subprocess.Popen(
            program.command,
            env=dict(program.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C reaches the supervisor alone, which ends its children in order.
            start_new_session=True,
            # Safe here: this process has one thread, and the call does not allocate.
            preexec_fn=partial(_die_with, os.getpid()),
        )
    finally:
        os.close(output)
    program.pid = process.pid
    return process


async def _bound_log(program: Program) -> None:
    """Copy the log of a running program and empty it, whenever it is too large.

    The program appends, so it goes on at the beginning; it does not know the file's name.
    """
    while True:
        # A full disk keeps the log as it is until there is space for the copy.
        with suppress(OSError):
            if program.log.stat().st_size > LOG_BYTES:
                older = program.log.with_suffix(".log.1")
                older.touch(mode=0o600)
                shutil.copyfile(program.log, older)
                os.truncate(program.log, 0)
                program.log_begin = 0
        await asyncio.sleep(_LOOK_SECONDS)


def _die_with(parent: int) -> None:
    """End with a supervisor that is killed, because its children would hold port and locks."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        # The supervisor was killed before the call above.
        os._exit(0)


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a child without a thread; return its exit code."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


async def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the end.
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await _ended(process)
    finally:
        # Also if the wait itself was cancelled, because no process may be left behind.
        if process.poll() is None:
            process.kill()
            process.wait()


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # real-time signals have no name
        return f"signal {-code}"
