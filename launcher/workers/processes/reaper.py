"""Prevents workers from outliving their agent. It is run by path and uses only the standard
library.

reaper.py exec <parent pid> <program> [argument …]
    becomes the program, and dies with the thread of the parent that started it

reaper.py guard
    outlives an agent that was killed. Standard input names private directories (``watch``), workers
    of a directory (``add``, with process id and error file) and directories that are finished
    (``done``); words end with NUL, lines with a line feed. When the input ends, the reaper ends
    every Unix session of each unfinished directory and removes the directory. Until then the reaper
    checks all leases four times a second. If a lease in a directory has been expired at every check
    for a second, the reaper ends all Unix sessions of that directory. The lease of a held worker
    does not count.
"""

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself stays unimported: this starts beside every worker
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")

PR_SET_PDEATHSIG = 1
LEASE_OFFSET, HELD_OFFSET = 16, 120
#: Seconds between two looks at the lease.
WATCH_SECONDS = 0.25
#: Workers end or hold themselves when the lease is past; the guard gives them this long to do so.
SLACK_SECONDS = 1.0


def become(parent: int, argv: list[str]) -> None:
    """Replace this process by ``argv``, which ends when ``parent`` ends."""
    import ctypes  # late: the guard and the agent do without it

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew that we care
        os._exit(1)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    ignore_warning()
    try:
        os.execvp(argv[0], argv)
    except OSError as cannot:
        sys.stderr.write(f"{argv[0]}: {cannot.strerror}\n")
        os._exit(127 if isinstance(cannot, FileNotFoundError) else 126)


def ignore_warning() -> None:
    """Ignore Slurm's warning signal, because Slurm sends it to every process of a step and would
    kill scripts. A script that handles the signal installs its handler later.
    """
    if "SLURM_STEP_ID" in os.environ:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def guard() -> None:
    """Wait until the agent ends or a lease expires; then end all remaining processes."""
    ignore_warning()
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(asked, signal.SIG_IGN)
    watched: dict[bytes, list[tuple[int, bytes]]] = {}
    past, told = Lasting(WATCH_SECONDS), b""
    while True:
        # With nothing to watch there is nothing to wake up for.
        readable, _, _ = select.select([0], [], [], WATCH_SECONDS if watched else None)
        if readable:
            more = os.read(0, 65536)
            if not more:
                break
            *lines, told = (told + more).split(b"\n")
            for line in lines:
                hear(watched, line.split(b"\0"))
        over = [each for each in watched if lease_over(os.fsdecode(each))]
        for directory, seconds in past.seen(over, time.monotonic()).items():
            if seconds >= SLACK_SECONDS:
                end(watched[directory])
    end([worker for workers in watched.values() for worker in workers])
    for directory in watched:
        import shutil  # late: the programs that become workers must not pay for it

        shutil.rmtree(directory, ignore_errors=True)


def hear(watched: "dict[bytes, list[tuple[int, bytes]]]", words: "list[bytes]") -> None:
    """Carry out one line from the agent."""
    if words[0] == b"watch":
        watched[words[1]] = []
    elif words[0] == b"add":
        watched[words[1]].append((int(words[2]), words[3]))
    elif words[0] == b"done":
        watched.pop(words[1], None)


class Lasting:
    """Measures how long each of several conditions has lasted, by repeated checks.

    Times are CLOCK_MONOTONIC seconds.
    """

    def __init__(self, look_seconds: float) -> None:
        """``look_seconds``: time between two calls of ``seen`` if this process was not paused."""
        self._look_seconds, self._looked_at = look_seconds, 0.0
        self._seconds: dict[Any, float] = {}

    def seen(self, there: "Iterable[T]", now: float) -> "dict[T, float]":
        """Return the seconds for which each of the conditions in ``there`` has lasted.

        After a pause of this process, at most twice the usual time between two checks is added,
        because other processes may have been paused with it.

        >>> lasting = Lasting(0.5)
        >>> [lasting.seen("a", now) for now in (9.0, 9.5, 10.0, 70.0)]
        [{'a': 0.0}, {'a': 0.5}, {'a': 1.0}, {'a': 2.0}]
        >>> lasting.seen("b", 70.5)
        {'b': 0.0}
        """
        late = min(now - self._looked_at, 2 * self._look_seconds)
        self._looked_at, before = now, self._seconds
        found = {each: before[each] + late if each in before else 0.0 for each in there}
        self._seconds = found
        return found


def lease_over(directory: str) -> bool:
    """True if a control file in ``directory`` has an expired lease."""
    names = os.listdir(directory) if os.path.isdir(directory) else ()
    controls = [os.path.join(directory, name) for name in names if name.startswith("control-")]
    return any(0 < lease_in(path) < time.monotonic_ns() for path in controls)


def lease_in(path: str) -> int:
    """Return the lease in a control file, in CLOCK_MONOTONIC nanoseconds. Return 0 if the file has
    no lease or is incomplete, or if its worker is held.
    """
    try:
        with open(path, "rb") as control:
            content = control.read(HELD_OFFSET + 8)
    except OSError:
        return 0
    held = any(content[HELD_OFFSET:])
    return 0 if held else int.from_bytes(content[LEASE_OFFSET : LEASE_OFFSET + 8], "little")


def end(workers: "list[tuple[int, bytes]]") -> None:
    """Kill workers and all their processes; give up after five seconds."""
    sessions, marks = {pid for pid, _ in workers}, {mark for _, mark in workers}
    deadline = time.monotonic() + 5
    while kill(members(sessions, marks)) and time.monotonic() < deadline:
        time.sleep(0.01)


def kill(processes: dict[int, int]) -> bool:
    """Send SIGKILL to processes, given as pid -> start ticks; return False if none is left."""
    left = False
    for pid, started in processes.items():
        stat = read_stat(pid)
        if stat is None or stat[2] != started:
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        left = True
    return left


def members(
    sessions: "set[int]",
    marks: "set[bytes]",
    adopters: "set[int] | frozenset[int]" = frozenset(),
    keep: "set[int] | frozenset[int]" = frozenset(),
) -> "dict[int, int]":
    """Return living processes, as pid -> start ticks.

    These are the processes of the Unix sessions ``sessions``, the processes whose error file is in
    ``marks``, and the descendants of all these. Children of ``adopters`` whose environment names no
    error file are included, except the processes in ``keep``, which are the adopters' own children.
    """
    seen = {}
    for name in os.listdir("/proc"):
        stat = read_stat(int(name)) if name.isdigit() else None
        if stat is not None:
            seen[int(name)] = stat
    inside = {pid for pid, (_, session, _) in seen.items() if session in sessions}
    if marks:
        files = {pid: error_file_of(pid) for pid in seen}
        inside |= {pid for pid, file in files.items() if file in marks}
        orphans = {pid for pid, (parent, _, _) in seen.items() if parent in adopters} - keep
        inside |= {pid for pid in orphans if files[pid] is None}
    grew = True
    while grew:
        more = {pid for pid, (parent, _, _) in seen.items() if parent in inside} - inside
        inside |= more
        grew = bool(more)
    return {pid: seen[pid][2] for pid in inside}


def error_file_of(pid: int) -> "bytes | None":
    """Return the TORCHELASTIC_ERROR_FILE with which a process was started; None if there was none,
    or the process is gone.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            content = environ.read()
    except OSError:  # gone, or another user's
        return None
    _, found, rest = (b"\0" + content).partition(b"\0TORCHELASTIC_ERROR_FILE=")
    return rest.split(b"\0", 1)[0] if found else None


def read_stat(pid: int) -> "tuple[int, int, int] | None":
    """Return (parent, session, start ticks) of a living process; None for zombies and dead
    processes.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            content = stat.read()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; fields count from behind it.
    fields = content[content.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[3]), int(fields[19])


if __name__ == "__main__":
    if sys.argv[1] == "exec":
        become(int(sys.argv[2]), sys.argv[3:])
    else:
        guard()
