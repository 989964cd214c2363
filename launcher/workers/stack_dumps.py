"""An agent's examination of silent workers: their stacks, their use of processors, the bytes that
they read and write, and their flight recorder.

Stacks come from py-spy if it is installed and allowed, else from the handler that
``launcher/inject/bootstrap.py`` registered in the worker. A process without that handler gets no
signal.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.values.hang.inspection import StackLook, main_thread
from launcher.workers.processes.control import Control
from launcher.workers.processes.process import catches

#: As ``launcher/inject/bootstrap.py`` has it.
STACKS_SIGNAL = signal.SIGRTMAX - 3
#: Seconds that a worker may take to write its stacks, py-spy to read them.
_STACKS_SECONDS, _SPY_SECONDS = 2.0, 15.0
_STACKS_CHARACTERS, _RECORDER_CHARACTERS = 6_000, 8_000
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpTarget:
    """A worker whose stacks are dumped."""

    rank: int
    pid: int
    control: Control
    #: Interpreter beside which py-spy may be.
    beside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    at: float
    cpu_seconds: float
    bytes: int


def look(targets: Sequence[DumpTarget], seconds: float) -> tuple[StackLook, ...]:
    """Examine the workers twice, ``seconds`` apart, and return one result per worker.

    The call blocks for this time, and for the time that it takes to read the stacks twice.
    """
    before = {target.rank: _stacks(target) for target in targets}
    used = {target.rank: use(target.pid) for target in targets}
    for target in targets:
        target.control.ask()
    time.sleep(seconds)
    return tuple(_second(target, before[target.rank], used[target.rank]) for target in targets)


def use(pid: int) -> _Use:
    """Return the resource use so far of a worker and of all processes of its Unix session."""
    cpu, moved = 0.0, 0
    for each in _session(pid):
        cpu += _cpu_seconds(each)
        moved += _bytes(each)
    return _Use(at=time.monotonic(), cpu_seconds=cpu, bytes=moved)


def _second(target: DumpTarget, before: tuple[str, str], used: _Use) -> StackLook:
    now = use(target.pid)
    stacks, means = _stacks(target)
    span = max(now.at - used.at, 0.001)
    known = main_thread(before[0]), main_thread(stacks)
    return StackLook(
        rank=target.rank,
        stacks=stacks[:_STACKS_CHARACTERS],
        means=means,
        moved=bool(known[0] and known[1]) and known[0] != known[1],
        cpu_share=max(0.0, now.cpu_seconds - used.cpu_seconds) / span,
        bytes_per_second=max(0, now.bytes - used.bytes) / span,
        state=(_stat(target.pid) or ["?"])[0],
        kernel=_kernel(target.pid),
        recorder=_recorder(target),
    )


def _stacks(target: DumpTarget) -> tuple[str, str]:
    """Return the stacks of all threads, and the tool that read them."""
    if spied := _spied(target):
        return spied, "py-spy"
    if not catches(target.pid, STACKS_SIGNAL):
        return "", "py-spy is not installed or not allowed, and the process lacks Brain's handler"
    path = Path(f"{target.control.path}.stacks")
    begin = _size(path)
    try:
        os.kill(target.pid, STACKS_SIGNAL)
    except ProcessLookupError:
        return "", "it has ended"
    until, size = time.monotonic() + _STACKS_SECONDS, -1
    # Written by one handler in one go: complete once it has grown and grows no more.
    while time.monotonic() < until and not (size > begin and size == _size(path)):
        size = _size(path)
        time.sleep(0.02)
    try:
        return path.read_bytes()[begin:].decode(errors="replace"), "faulthandler"
    except OSError as cannot:
        return "", f"stacks cannot be read: {cannot.strerror}"


def _spied(target: DumpTarget) -> str:
    beside = Path(target.beside).parent / "py-spy"
    spy = str(beside) if beside.is_file() else shutil.which("py-spy")
    if spy is None:
        return ""
    command = [spy, "dump", "--nonblocking", "--full-filenames", "--pid", str(target.pid)]
    try:
        said = subprocess.run(
            command, capture_output=True, timeout=_SPY_SECONDS, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):  # not allowed, most often
        return ""
    return said.stdout


def _recorder(target: DumpTarget) -> str:
    try:
        said = Path(f"{target.control.path}.flight").read_text(errors="replace")
    except OSError:
        return ""
    return said[:_RECORDER_CHARACTERS]


def _session(leader: int) -> Iterable[int]:
    """Return the processes of the session that a worker leads, the worker first."""
    yield leader
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != leader:
            stat = _stat(int(entry))
            if stat is not None and len(stat) > 3 and stat[3] == str(leader):
                yield int(entry)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return content.rpartition(")")[2].split()


def _cpu_seconds(pid: int) -> float:
    stat = _stat(pid)
    return 0.0 if stat is None or len(stat) < 13 else (int(stat[11]) + int(stat[12])) / _TICKS


def _bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    return int(values.get("rchar", 0)) + int(values.get("wchar", 0))


def _kernel(pid: int) -> str:
    try:
        where = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        return ""
    return "" if where == "0" else where


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
