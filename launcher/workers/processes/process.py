"""One worker process, and helpers for processes."""

import contextlib
import errno
import importlib.util
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from brain.errors import BadInput
from launcher.values.workers import LEASE_EXIT, Doing, Progress, WorkerExit
from launcher.workers.processes import evidence, failures, output, reaper
from launcher.workers.processes.control import Control

#: Below what Linux gives out by itself (32768), and below what Kubernetes does (30000).
_QUIET_PORTS = range(15_000, 30_000)
#: Longest path of a Unix socket.
_SOCKET_PATH_BYTES = 107


class Running(Protocol):
    """A started process, forked or not."""

    @property
    def pid(self) -> int:
        """Process id, which is not reused until ``poll`` has returned the exit code."""
        ...

    def poll(self) -> int | None:
        """Return the exit code, negative if a signal ended the process; None while it runs."""
        ...


class WorkerProcess:
    """One worker process, with its control file and output."""

    def __init__(
        self,
        rank: int,
        local_rank: int,
        process: Running,
        control: Control,
        streams: Sequence[output.OutputStream],
        error_file: Path,
        before: evidence.Baseline,
    ) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.process = process
        self.control = control
        self.streams = streams
        self.pidfd = os.pidfd_open(process.pid)
        self._error_file = error_file
        self._before = before
        self._last: Progress | None = None

    @property
    def mark(self) -> bytes:
        """Text in the environment of all the worker's children, by which leftover processes are
        found.
        """
        return os.fsencode(self._error_file)

    def progress(self) -> Progress:
        """Progress from the control file; after it is closed, the last progress."""
        control = self.control
        return self._last or Progress(
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.process.pid,
            steps=control.steps,
            last_step_ns=control.last_step_ns,
            saved_step=control.saved_step,
            parked=control.parked,
            first_step_ns=control.first_step_ns,
            life_ns=control.life_ns,
            doing=Doing(min(control.doing, max(Doing))),
            waited_ns=control.waited_ns,
            waits=control.waits,
        )

    def ended(self, code: int, *, stopped: bool) -> WorkerExit:
        """Return the worker's exit, with the content of its error file."""
        error = failures.error_in(self._error_file)
        message, failed_at = failures.read_error(error)
        tail = self.streams[1].end() if code else b""
        words = failures.last_words(tail) if code > 0 else ""
        seen, now_ns = datetime.now().astimezone(), time.monotonic_ns()
        signs = evidence.signs(
            self._before,
            code=code,
            steps=self.progress().steps,
            raised=Path(f"{self.control.path}.raised"),
            error=error,
            tail=tail,
            now_ns=now_ns,
            parent_signal=getattr(self.process, "parent_signal", "") if code else "",
        )
        return WorkerExit(
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.process.pid,
            code=code,
            at_ns=now_ns,
            stopped=stopped,
            # A script may end with that code, too.
            lapsed=self.control.held or (code == LEASE_EXIT and self.control.lapsed),
            failed_at=seen if failed_at is None else datetime.fromtimestamp(failed_at).astimezone(),
            message=message or failures.message_for(code, self.process.pid) or words,
            error=error if len(error) <= failures.CARRIED_BYTES else b"",
            error_file=str(self._error_file) if error and self._kept else "",
            last_words=words,
            signs=signs if code else None,
        )

    @property
    def _kept(self) -> bool:
        """True if the error file outlives the world, since it is not beside the control file."""
        return self.control.path.parent not in self._error_file.parents

    def close(self) -> None:
        """Store the last progress, and close the control file."""
        self._last = self.progress()
        self.control.close()


def bind(pid: int, cpus: Sequence[int]) -> None:
    """Restrict a new process and all its children to these CPUs."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cpus)


def catches(pid: int, signum: int) -> bool:
    """True if the process handles the signal: it has a handler (SigCgt in ``/proc/<pid>/status``),
    or blocks the signal (SigBlk) and may receive it with ``sigwait``.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    masks = (line.split()[1] for line in status.splitlines() if line[:7] in ("SigCgt:", "SigBlk:"))
    return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks)


def probe_path() -> str | None:
    """Return the path of the probe; None if it is not installed. The probe's package is not
    imported.
    """
    spec = importlib.util.find_spec("collectors")
    places = (spec.submodule_search_locations if spec else None) or ()
    paths = [Path(place, "probe", "__init__.py") for place in places]
    return next((str(path) for path in paths if path.is_file()), None)


def private_directory() -> Path:
    """Make a directory (mode 0700) whose path is short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="brain-run-"))
    if len(os.fsencode(made / "agent")) > _SOCKET_PATH_BYTES:
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="brain-run-", dir="/tmp"))
    return made


def reaped() -> list[str]:
    """Return the command that runs a program and ends it when this process ends."""
    # Isolated and without site: it must start fast, and nothing of the job's environment may
    # reach it.
    return [sys.executable, "-I", "-S", reaper.__file__]


class Guard:
    """The reaper: it outlives a killed agent and ends all processes that the agent started."""

    def __init__(self) -> None:
        """Start the reaper."""
        self._process = subprocess.Popen(
            [*reaped(), "guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )

    def watch(self, directory: Path) -> None:
        """Let the reaper watch this private directory from now on."""
        self._tell(b"watch", os.fsencode(directory))

    def add(self, directory: Path, pid: int, mark: bytes) -> None:
        """Inform the reaper of a worker of the watched directory, by process id and error file."""
        self._tell(b"add", os.fsencode(directory), b"%d" % pid, mark)

    def done(self, directory: Path) -> None:
        """Inform the reaper that no worker of the watched directory is left."""
        self._tell(b"done", os.fsencode(directory))

    def close(self) -> None:
        """End the reaper."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, *words: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed it
            self._process.stdin.write(b"\0".join(words) + b"\n")


def unignore(names: Sequence[str]) -> None:
    """Restore the default action of those signals in ``names`` that this process ignores, because
    ``nohup`` or a shell's ``&`` started it.

    Call this before the process starts a child, because a child would ignore the signals, too.
    """
    for signum in (signal.Signals[name] for name in names):
        if signal.getsignal(signum) == signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


def listen(path: Path) -> socket.socket:
    """Return a datagram socket at ``path`` that never blocks."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(path))
    listening.setblocking(False)
    return listening


def port_taken(host: str, port: int) -> bool:
    """True if a process listens on a port of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as cannot:
        return cannot.errno == errno.EADDRINUSE
    return False


def free_port(host: str) -> int:
    """Return a TCP port that is free now on ``host``, for MASTER_PORT.

    Rank 0 binds the port seconds later, once it has imported torch. Ports of the kernel's ephemeral
    range are avoided, because on a busy machine another program may take such a port meanwhile.

    Raises:
        BadInput: ``host`` is no address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        for port in [*random.SystemRandom().sample(_QUIET_PORTS, 20), 0]:
            with socket.socket(family, kind, protocol) as probe:
                try:
                    probe.bind((address[0], port, *address[2:]))
                except OSError as taken:
                    if taken.errno == errno.EADDRINUSE:
                        continue
                    raise
                return int(probe.getsockname()[1])
    except OSError as cannot:
        raise BadInput(
            f"{host} is not an address of this machine: {cannot}", field="master_addr"
        ) from cannot
    raise BadInput(f"{host} has no free port", field="master_addr")
