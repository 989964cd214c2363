"""Destinations of the workers' output: console, files, a replica's log.

If a stream goes only to the console, the worker inherits it. If it goes only to a file, the worker
gets the open file. All other streams go through a pipe and a thread, so that a blocked console
never stops the agent's loop.
"""

import itertools
import os
import re
import select
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from brain.errors import BadInput
from launcher.values.config import LogConfig, Std
from launcher.workers.processes.rotated import RotatedLog, append

INHERIT = None
#: Progress bars end their lines with a carriage return alone.
_LINE_END = re.compile(rb"\r\n|\r|\n")
#: A line longer than this is passed on in pieces.
_LINE_LIMIT_BYTES = 65536
#: What a pipe holds.
_PIPE_BYTES = 65536
#: How much is kept to say what a worker said last.
_END_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The destinations of one stream of one worker."""

    console: bool
    #: ``stdout.log`` or ``stderr.log``; None where it is neither redirected nor teed.
    file: Path | None = None
    #: Gets every line as ``tagged``.
    replica_log: Path | None = None
    #: Bytes at which that file is renamed to ``….1`` and begun anew: twice as many are kept.
    replica_log_bytes: int = 64 * 1024 * 1024
    #: Gets prefixed lines that contain one of ``filters``.
    filtered: Path | None = None
    filters: tuple[str, ...] = ()
    #: In front of lines on the console; empty where they are passed as they are.
    prefix: str = ""
    #: In front of lines in the replica's log.
    tag: str = ""

    @property
    def piped(self) -> bool:
        """True if the output must be processed line by line."""
        ways = self.console + (self.file is not None) + (self.replica_log is not None)
        return ways > 1 or self.replica_log is not None or bool(self.prefix)


def run_directory(directory: str, run_id: str) -> Path:
    """Create this run's own directory inside ``--log-dir``, which several runs may share; return
    its path.

    Raises:
        BadInput: no directory can be made there.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{run_id}_", dir=directory))
    except OSError as cannot:
        raise BadInput(
            f"--log-dir={directory}: no directory can be made there: {cannot.strerror}; give a "
            "directory that you can write to",
            field="log_dir",
        ) from cannot


def attempt_directory(run: Path, restart_count: int, epoch: int) -> Path:
    """Return the directory of one world: ``attempt_<n>``, or ``…_epoch_<e>`` if a change of size
    formed another world in the same attempt.
    """
    first = run / f"attempt_{restart_count}"
    made = first if not first.exists() else run / f"attempt_{restart_count}_epoch_{epoch}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    return made


def routes(
    logs: LogConfig, directory: Path, *, role: str, rank: int, local_rank: int
) -> tuple[Route, Route]:
    """Return the routes of standard output and standard error.

    ``directory`` is the directory of the attempt.
    """
    shown = not logs.local_ranks or local_rank in logs.local_ranks
    prefix = prefix_of(logs, role=role, rank=rank, local_rank=local_rank)
    tee = _of(logs.tee, local_rank)
    kept = _of(logs.redirects, local_rank) | tee

    def route(stream: Std, name: str, filters: tuple[str, ...]) -> Route:
        teed = bool(tee & stream)
        console = shown and (teed or not kept & stream)
        return Route(
            console=console,
            file=directory / str(local_rank) / f"{name}.log" if kept & stream else None,
            replica_log=Path(logs.replica_log) if logs.replica_log else None,
            filtered=directory / f"filtered_{name}.log" if filters and teed and shown else None,
            filters=filters,
            prefix=prefix if teed or logs.replica_log else "",
            tag=f"[{role}{rank}]:",
        )

    return (
        route(Std.OUT, "stdout", logs.stdout_filters),
        route(Std.ERR, "stderr", logs.stderr_filters),
    )


def prefix_of(logs: LogConfig, *, role: str, rank: int, local_rank: int) -> str:
    """Return the prefix of a worker's lines on the console."""
    template = logs.prefix or "[${role_name}${local_rank}]:"
    return Template(template).safe_substitute(role_name=role, rank=rank, local_rank=local_rank)


def _of(streams: Mapping[int | None, Std], local_rank: int) -> Std:
    return streams.get(local_rank, streams.get(None, Std.NONE))


class OutputStream:
    """One stream of one worker while it runs."""

    def __init__(
        self, route: Route, console_fd: int, *, after: "OutputStream | None" = None
    ) -> None:
        """Open the files or pipe of the route; ``fd`` is then for the worker.

        Output written to ``after`` so far is passed on before later output of this stream.
        """
        self._after = after
        self._thread: threading.Thread | None = None
        #: Held by the thread that reads and passes on.
        self._passing = threading.Lock()
        self._ended = False
        #: What follows the last end of a line.
        self._rest = b""
        self._file: int | None = None
        self._lines: list[tuple[int, Callable[[bytes], bytes]]] = []
        #: The replica's log, and what stands before each of its lines.
        self._replica_log: RotatedLog | None = None
        self._tag = route.tag.encode()
        self._opened: list[int] = []
        self._path = None if route.piped else route.file
        #: The last that came through the pipe.
        self._end = b""
        #: What the worker gets; None = it inherits the agent's.
        self.fd: int | None = INHERIT
        if route.piped:
            self._read, self.fd = os.pipe()
            self._open_sinks(route, console_fd)
            self._thread = threading.Thread(target=self._pump, daemon=True, name="brain-output")
        elif route.file is not None:
            self.fd = append(route.file)
        elif not route.console:
            self.fd = os.open(os.devnull, os.O_WRONLY)

    def given(self) -> None:
        """Close this process's copy of the descriptor that the worker has inherited."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def read(self) -> None:
        """Start to forward the worker's output."""
        if self._thread is not None:
            self._thread.start()

    def end(self) -> bytes:
        """The last few kilobytes of received output; empty if the worker writes directly to the
        console.
        """
        if self._path is None:
            return self._end
        try:
            with open(self._path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
                return file.read()
        except OSError:  # somebody cleaned up
            return b""

    @property
    def flows(self) -> bool:
        """True if output may still arrive."""
        return self._thread is not None and self._thread.is_alive()

    def finish(self, seconds: float) -> None:
        """Wait, at most ``seconds``, until all output of the worker has been forwarded."""
        if self.flows and self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """Discard unread output, because the world was never formed."""
        if self._thread is not None and self._thread.ident is None:
            self._close()

    def _open_sinks(self, route: Route, console_fd: int) -> None:
        prefix = route.prefix.encode()
        needles = tuple(needle.encode() for needle in route.filters)
        if route.file is not None:
            self._file = self._open(route.file)
        if route.replica_log is not None:
            self._replica_log = RotatedLog(route.replica_log, route.replica_log_bytes)
        if route.filtered is not None:
            keep = self._open(route.filtered)
            self._lines.append(
                (keep, lambda line: prefix + line if any(n in line for n in needles) else b"")
            )
        if route.console:
            self._lines.append((console_fd, lambda line: prefix + line))

    def _open(self, path: Path) -> int:
        self._opened.append(append(path))
        return self._opened[-1]

    def _pump(self) -> None:
        while _wait(self._read, None) and self._advance():
            pass
        with self._passing:
            self._pass_on([self._rest] if self._rest else [])
            self._close()
            self._ended = True

    def _close(self) -> None:
        for fd in [self._read, *self._opened]:
            os.close(fd)
        if self._replica_log is not None:
            self._replica_log.close()

    def _advance(self) -> bool:
        """Pass on the output that waits in the pipe; return False at the end of the stream."""
        with self._passing:
            if self._thread is None or self._ended or not _wait(self._read, 0):
                return True
            chunk = os.read(self._read, _PIPE_BYTES)
            if self._after is not None:
                self._after._advance()
            self._take(chunk)
            return bool(chunk)

    def _take(self, chunk: bytes) -> None:
        if self._file is not None:
            _write(self._file, chunk)
        self._end = (self._end + chunk)[-_END_BYTES:]
        *lines, self._rest = _split(self._rest + chunk)
        self._pass_on(lines)

    def _pass_on(self, lines: list[bytes]) -> None:
        for line in lines:
            if self._replica_log is not None:
                self._replica_log.write(self._tag + line.rstrip(b"\r\n") + b"\n")
            for fd, shape in self._lines:
                _write(fd, shape(line.rstrip(b"\r\n") + b"\n"))


def streams(ways: Sequence[Route]) -> list[OutputStream]:
    """The standard output and standard error of one worker.

    A traceback appears after output that was flushed earlier, although the traceback uses another
    pipe.
    """
    out = OutputStream(ways[0], 1)
    return [out, OutputStream(ways[1], 2, after=out)]


def finish(streams: Sequence[OutputStream], seconds: float) -> None:
    """Wait, at most ``seconds``, until all output of the workers has been forwarded."""
    deadline = time.monotonic() + seconds
    for stream in streams:
        stream.finish(max(0.0, deadline - time.monotonic()))


def _wait(fd: int, milliseconds: int | None) -> bool:
    """Wait until something can be read, or the other end is closed; False if neither came."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))


def _split(data: bytes) -> list[bytes]:
    """Split into complete lines and, last, the incomplete rest."""
    # Ends are looked for, not whole lines: in a long line without an end that would take minutes.
    ends = [0, *(found.end() for found in _LINE_END.finditer(data))]
    lines = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    rest = data[ends[-1] :]
    return [*lines, rest, b""] if len(rest) > _LINE_LIMIT_BYTES else [*lines, rest]


def _write(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        # A full disk or a closed terminal costs the line; a pump that stopped reading would
        # stop the worker.
        return
