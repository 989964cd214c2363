"""Tests if memory suffices for a second set of workers, which waits while the first one trains."""

from collections.abc import Iterable
from pathlib import Path

#: Bytes that the machine must keep free, whatever workers take.
_MARGIN_BYTES = 256 * 1024 * 1024
_CGROUP = Path("/sys/fs/cgroup")


def enough(available_bytes: int, workers_bytes: int) -> bool:
    """True if a second set of workers fits into ``available_bytes``. Workers that wait need no more
    memory than the ``workers_bytes`` of those that run.

    >>> enough(8 * 2**30, 4 * 2**30), enough(4 * 2**30, 4 * 2**30)
    (True, False)
    """
    return available_bytes >= workers_bytes + _MARGIN_BYTES


def shortage(pids: Iterable[int]) -> str:
    """Return the reason why a second set of workers cannot wait while the processes ``pids`` train;
    empty if there is none.
    """
    if enough(available_bytes(), held_bytes(pids)):
        return ""
    return "the machine has too little memory for new workers in addition to those that train"


def available_bytes() -> int:
    """Return the smaller of the machine's free memory and this control group's free memory, in
    bytes.
    """
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    return free if limit is None or used is None else min(free, limit - used)


def held_bytes(pids: Iterable[int]) -> int:
    """Return the private memory of processes in bytes; a process that is gone counts as 0."""
    return sum(_anonymous(pid) for pid in pids)


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    kilobytes = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return next(kilobytes, 0) * 1024


def _number(path: Path) -> int | None:
    try:
        said = path.read_text().strip()
    except OSError:
        return None
    return int(said) if said.isdigit() else None
