"""Decides for which directories a checkpoint may go through memory.

The decision depends on free memory and on features of the file system. The shim loads this module
as ``_brain_places``; it uses only the standard library and supports CPython 3.8 and later.
"""

from __future__ import annotations

import os
import re

#: File systems that only this machine writes; elsewhere a link into our memory would dangle.
LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "overlay", "tmpfs")
)
#: Of these, the ones that set space aside at once; tmpfs would fill it with zeros first.
ALLOCATES = frozenset(("ext4", "xfs", "btrfs", "f2fs"))
_EXCHANGE = 2


def room(root: str) -> int:
    """Return the bytes of memory that checkpoints may still use; a tenth is left to other
    programs.
    """
    shm = os.statvfs(root)
    rooms = [(shm.f_bavail - shm.f_blocks // 10) * shm.f_frsize]
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    total, free = (int(fields[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    rooms.append(free - total // 10)
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.stat") as now:
            limit = int(most.read())
            used = dict(line.split() for line in now)
            rooms.append(limit - limit // 10 - sum(int(used[k]) for k in ("anon", "shmem")))
    except (OSError, ValueError, KeyError):  # no limit, or none that can be read
        pass
    return min(rooms)


def file_system(directory: str) -> str:
    """Return the type of the file system on which a directory is."""
    best, kind = "", "an unknown file system"
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", _character, before.split(" ")[4])
            inside = point == "/" or (directory + os.sep).startswith(point + os.sep)
            if inside and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return kind


def _character(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))


def try_directory(directory: str, target: str) -> None:
    """Test that links, hard links and exchanges work in a directory, and remove the test files.

    Raises:
        OSError: one of these operations does not work.
    """
    base = os.path.join(directory, ".brain-try-%d-%s" % (os.getpid(), os.urandom(4).hex()))
    names = [base + end for end in ("-file", "-link", "-hard")]
    try:
        os.close(os.open(names[0], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.symlink(target, names[1])
        os.link(names[0], names[2])
        _exchange(names[0], names[1])
    finally:
        for name in names:
            if os.path.lexists(name):
                os.unlink(name)


def _exchange(one: str, other: str) -> None:
    """Exchange two names, atomically."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(-100, names[0], -100, names[1], _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), other)


def area(declared: str | None) -> str:
    """Return the directory for saves of a declared checkpoint, with a separator at its end."""
    if not declared:
        return ""
    path = os.path.realpath(declared)
    if not (os.path.isdir(path) or declared.endswith(os.sep)):
        path = os.path.dirname(path)
    return path.rstrip(os.sep) + os.sep
