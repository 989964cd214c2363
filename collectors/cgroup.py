"""Reads the resource limits and the usage of this process's control group.

Inside a container, psutil and /proc still show the host's processors and memory, even if the
container may use only a tenth of them. The control group has the container's own numbers.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
#: Larger limits mean "no limit": version 1 then has a number near 2^63.
_UNLIMITED_BYTES = 1 << 60
#: Beginning of the names of the groups that the local scaler creates: a checksum of its home.
_REPLICA = re.compile(r"brain-[0-9a-f]{8}-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """Limits and usage of this process's control groups; None for a limit that is not set."""

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    #: Processor time, in seconds, that the group with the CPU limit has used.
    cpu_seconds: float | None = None
    #: Working set: used memory without the file cache that the kernel can drop.
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUse:
    """Usage of the control groups of one replica: those that the local scaler created, or those of
    its container.
    """

    #: Working set; None if the local scaler created no group.
    memory_bytes: int | None = None
    #: Number of periods of the CPU quota; ``throttled`` counts those in which it stopped a process.
    periods: int = 0
    throttled: int = 0


def read_replica(own: str, root: Path = ROOT) -> GroupUse:
    """Read the control groups of a replica, given the content of its agent's
    ``/proc/<pid>/cgroup``.
    """
    memory: int | None = None
    periods = throttled = 0
    for group in _replica_groups(own, root):
        cpu = _stat(group / "cpu.stat")
        periods, throttled = cpu.get("nr_periods", periods), cpu.get("nr_throttled", throttled)
        stat = _stat(group / "memory.stat")
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes")
        if used is not None:
            cache = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            memory = max(0, used - cache)
    return GroupUse(memory_bytes=memory, periods=periods, throttled=throttled)


def read_container(own: str, root: Path = ROOT) -> GroupUse:
    """Read how often a container was stopped by its CPU quota, given the content of
    ``/proc/<pid>/cgroup`` of one of the container's processes.
    """
    found = _cpu_quota(own, root)
    cpu = {} if found is None else _stat(found[1] / "cpu.stat")
    return GroupUse(periods=cpu.get("nr_periods", 0), throttled=cpu.get("nr_throttled", 0))


def leave_replica(own: str | None = None, root: Path = ROOT) -> None:
    """Move this process out of the control groups of the replica whose agent started it.

    Otherwise the collector would report the limits of the replica as limits of the machine, and the
    usage of the collector would count as usage of the replica.
    """
    own = _text(Path("/proc/self/cgroup")) or "" if own is None else own
    for group in _replica_groups(own, root):
        with suppress(OSError):  # it may be gone, or not ours: then we stay
            beside = group.parent / "brain-collector"
            beside.mkdir(exist_ok=True)
            (beside / "cgroup.procs").write_text(str(os.getpid()))


def _replica_groups(own: str, root: Path) -> Iterator[Path]:
    for _, controllers, path in _split(own):
        group = root / controllers / path.strip("/")
        if _REPLICA.match(group.name):
            yield group


def read_cgroup(own: str | None = None, root: Path = ROOT) -> Cgroup:
    """Read the limits and usage of this process's control groups.

    Args:
        own: content of ``/proc/self/cgroup``; None to read this file.
        root: directory at which the hierarchy is mounted.
    """
    if own is None:
        own = _text(Path("/proc/self/cgroup")) or ""
    result, found = Cgroup(), _cpu_quota(own, root)
    if found is not None:
        millis, group = found
        result = Cgroup(cpu_millis=millis, cpu_seconds=_cpu_seconds(group))
    paths = _paths(own)
    if _is_version2(root):
        return _memory2(result, list(_upwards(root, paths.get("", "/"))))
    return _memory1(result, root, paths)


def _cpu_quota(own: str, root: Path) -> tuple[int, Path] | None:
    """Return the smallest CPU quota of a process, in mCPU, and the group that has it."""
    paths = _paths(own)
    if _is_version2(root):
        groups = _upwards(root, paths.get("", "/"))
        quotas = [(millis, group) for group in groups if (millis := _quota2(group)) is not None]
        return min(quotas, key=lambda entry: entry[0], default=None)
    for group in _upwards(root / "cpu", paths.get("cpu", "/")):
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if quota and period and quota > 0:
            return 1000 * quota // period, group
    return None


def _cpu_seconds(group: Path) -> float | None:
    micros = _stat(group / "cpu.stat").get("usage_usec")
    if micros is not None:
        return micros / 1e6
    # Both controllers of version 1 are one hierarchy nearly everywhere; where not, use is unknown.
    nanos = _number(group / "cpuacct.usage")
    return None if nanos is None else nanos / 1e9


def _memory2(result: Cgroup, groups: list[Path]) -> Cgroup:
    memory = [(most, group) for group in groups if (most := _number(group / "memory.max"))]
    if not memory:
        return result
    most, group = min(memory, key=lambda entry: entry[0])
    cache = _stat(group / "memory.stat").get("inactive_file", 0)
    return _with_memory(result, most, _number(group / "memory.current"), cache)


def _memory1(result: Cgroup, root: Path, paths: dict[str, str]) -> Cgroup:
    for group in _upwards(root / "memory", paths.get("memory", "/")):
        most = _number(group / "memory.limit_in_bytes")
        if most and most < _UNLIMITED_BYTES:
            cache = _stat(group / "memory.stat").get("total_inactive_file", 0)
            used = _number(group / "memory.usage_in_bytes")
            return _with_memory(result, most, used, cache)
    return result


def _with_memory(cpu: Cgroup, most: int, used: int | None, cache: int) -> Cgroup:
    return Cgroup(
        cpu_millis=cpu.cpu_millis,
        cpu_seconds=cpu.cpu_seconds,
        memory_bytes=most,
        memory_used_bytes=None if used is None else max(0, used - cache),
    )


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """Yield a group and its parents; only the root if the path does not exist in this container."""
    group = root / path.strip("/")
    if not group.is_dir() or ".." in Path(path).parts:
        group = root
    while group != root:
        yield group
        group = group.parent
    yield root


def _is_version2(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def _paths(own: str) -> dict[str, str]:
    return {name: line[2] for line in _split(own) for name in line[1].split(",")}


def _quota2(group: Path) -> int | None:
    words = (_text(group / "cpu.max") or "max").split()
    if words[0] == "max" or len(words) != 2:
        return None
    return 1000 * int(words[0]) // int(words[1])


def _split(own: str) -> list[list[str]]:
    lines = [line.split(":", 2) for line in own.splitlines()]
    return [line for line in lines if len(line) == 3]


def _stat(path: Path) -> dict[str, int]:
    pairs = [line.split() for line in (_text(path) or "").splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
