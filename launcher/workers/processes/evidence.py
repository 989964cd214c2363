"""Evidence of why a worker ended: kernel counters, the kernel's log, the driver's list of devices.

A ``Baseline`` is read when workers start; a count that has changed when a worker ends is a sign.
This module needs no privileges, and ignores sources that it cannot read.
"""

import json
import os
import re
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from launcher.values.diagnosis.signs import Signs
from launcher.workers.processes import failures

#: Longer tails and tracebacks do not travel.
_CHARACTERS = 6000
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_LOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Counters of this machine, read before workers started."""

    oom_kills: int = 0
    host_oom_kills: int = 0
    cards: frozenset[str] = frozenset()
    #: Seconds since the machine started, as the kernel's log has them (CLOCK_MONOTONIC).
    at_seconds: float = 0.0


def baseline(root: Path = Path("/")) -> Baseline:
    """Read the counters; this takes some tens of microseconds."""
    return Baseline(
        oom_kills=oom_kills(root),
        host_oom_kills=host_oom_kills(root),
        cards=cards(root),
        at_seconds=time.monotonic(),
    )


def signs(
    before: Baseline,
    *,
    code: int,
    steps: int,
    raised: Path,
    error: bytes,
    tail: bytes,
    now_ns: int,
    parent_signal: str = "",
    root: Path = Path("/"),
) -> Signs:
    """Return the signs that show why a worker ended.

    Args:
        before: the counts when the worker was started.
        code: exit code; negative for a signal. A code of 0 gives no signs.
        raised: file in which ``launcher/inject/bootstrap.py`` notes the script's exception.
        error: content of the worker's error file.
        tail: the end of the worker's standard error.
        now_ns: CLOCK_MONOTONIC at which the worker's end was seen.
        parent_signal: name of the signal that ended the worker's fork server.
    """
    if code == 0:
        return Signs(steps=steps)
    said = _raised(raised)
    at_ns, traceback = said.at_ns, said.traceback
    if not traceback:
        traceback, _ = failures.read_error(error)
    more = oom_kills(root) - before.oom_kills
    host = host_oom_kills(root) - before.host_oom_kills
    return Signs(
        steps=steps,
        lag_seconds=max(0.0, (now_ns - at_ns) / 1e9) if at_ns else 0.0,
        traceback=traceback[-_CHARACTERS:],
        tail=tail.decode(errors="replace")[-_CHARACTERS:],
        saving=said.saving,
        free_bytes=said.free_bytes,
        limits=said.limits or _processor_limit(code),
        unread=said.unread,
        parent_signal=parent_signal,
        oom_kills=max(0, more),
        # Another container's want of memory is none of ours where ours has a count of its own.
        host_oom_kills=0 if _events(root) is not None else max(0, host),
        shm_bytes=shm_bytes(root),
        xids=xids(before.at_seconds, root) if before.cards else (),
        lost_cards=tuple(sorted(before.cards - cards(root))) if before.cards else (),
    )


def _processor_limit(code: int) -> tuple[str, ...]:
    """Return the hard limit on processor time, which workers inherit from this process, if SIGKILL
    ended a worker: the kernel sends SIGKILL to a process that reaches the limit.
    """
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    return (f"RLIMIT_CPU {hard}",) if killed and hard != resource.RLIM_INFINITY else ()


def shm_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of ``/dev/shm`` in bytes; None if there is no ``/dev/shm``."""
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes of this control group were killed because memory ran out."""
    path = _events(root)
    return 0 if path is None else _field(path, "oom_kill")


def host_oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes of the machine were killed because memory ran out."""
    return _field(root / "proc/vmstat", "oom_kill")


def cards(root: Path = Path("/")) -> frozenset[str]:
    """Return the accelerators that NVIDIA's driver lists, without those lost from the PCI bus."""
    try:
        return frozenset(os.listdir(root / "proc/driver/nvidia/gpus"))
    except OSError:
        return frozenset()


def xids(since_seconds: float, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the Xid errors in the kernel's log since ``since`` (seconds after boot); none if the
    log cannot be read.
    """
    found = []
    for line in _log(root / "dev/kmsg").splitlines():
        head, _, said = line.partition(";")
        micros = head.split(",")[2:3]
        match = _XID.search(said)
        if match and micros and micros[0].isdigit() and int(micros[0]) / 1e6 >= since_seconds:
            found.append(f"{match[2]} {match[1]}")
    return tuple(dict.fromkeys(found))


def _log(path: Path) -> str:
    """Read the kernel's log without waiting for new records; each read gives one record."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    lines, size = [], 0
    try:
        while size < _LOG_BYTES and (record := os.read(fd, 8192)):
            lines.append(record)
            size += len(record)
    except OSError:  # the end, or a record that was overwritten meanwhile
        pass
    finally:
        os.close(fd)
    return b"".join(lines).decode(errors="replace")


def _events(root: Path) -> Path | None:
    """Return the file that counts out-of-memory kills in this control group, of version 2 or 1."""
    try:
        own = (root / "proc/self/cgroup").read_text()
    except OSError:
        return None
    mounted = root / "sys/fs/cgroup"
    for line in own.splitlines():
        number, names, path = (*line.split(":", 2), "", "")[:3]
        inside = path.strip("/")
        if number == "0" and not names:
            found = [mounted / inside / "memory.events", mounted / "memory.events"]
        elif "memory" in names.split(","):
            found = [
                mounted / "memory" / inside / "memory.oom_control",
                mounted / "memory" / "memory.oom_control",
            ]
        else:
            continue
        for each in found:
            if each.is_file():
                return each
    return None


def _field(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    values = (line.split() for line in lines)
    return next((int(each[1]) for each in values if len(each) == 2 and each[0] == name), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raised:
    """Read a worker's note of the exception that left its script."""

    #: CLOCK_MONOTONIC nanoseconds; 0 = nothing was noted.
    at_ns: int = 0
    traceback: str = ""
    saving: str = ""
    free_bytes: int | None = None
    limits: tuple[str, ...] = ()
    unread: str = ""


def _raised(path: Path) -> _Raised:
    try:
        said = json.loads(path.read_bytes())
        saving, free_bytes = said.get("saving") or ("", None)
        return _Raised(
            at_ns=int(said["at_ns"]),
            traceback=str(said["traceback"]),
            saving=str(saving),
            free_bytes=None if free_bytes is None else int(free_bytes),
            limits=tuple(f"{name} {int(size)}" for name, size in said.get("limits", {}).items()),
            unread=str(said.get("unread") or ""),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _Raised()
