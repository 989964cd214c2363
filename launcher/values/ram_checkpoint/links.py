"""Resolves names that are links into shared memory to the files on storage that will replace them.

Processes on the same machine use this module to read; the shim and the flusher write the links.
"""

import errno
import json
import os
import stat
import time
from pathlib import Path

#: Where shared memory is.
SHARED = Path("/dev/shm")
#: Prefix of every path into an agent's memory.
MEMORY = f"{SHARED}/brain-"
_LOOK_SECONDS = 0.005


def mark() -> str:
    """Return the prefix of every link into this user's memory."""
    return f"{SHARED}/brain-{os.getuid()}-"


def mine(directory: Path) -> bool:
    """True if this user created ``directory``; any user can create any name in ``SHARED``."""
    try:
        seen = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid()


def in_memory(path: str) -> str | None:
    """Return the slot to which ``path`` links; None if ``path`` is no link into memory."""
    try:
        target = os.readlink(path)
    except OSError:
        return None
    return os.path.dirname(target) if target.startswith(mark()) else None


def real(path: str) -> str:
    """Return the path with links resolved, except a link into memory."""
    if not in_memory(path):
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def inode(path: str) -> int | None:
    """Return the inode that a file has or will have on storage; None if there is no file."""
    slot = in_memory(path)
    try:
        return _inode_in(slot) if slot is not None else os.stat(path).st_ino
    except (OSError, ValueError):
        pass
    try:  # it came to storage meanwhile
        return os.stat(path).st_ino
    except OSError:
        return None


def link_durable(path: str, name: str) -> int | None:
    """Make ``name`` a hard link to the file on storage that will replace ``path``. Return the inode
    of that file; None if ``path`` is not, or no longer, a link into memory.

    Raises:
        OSError: the link cannot be made.
    """
    while (slot := in_memory(path)) is not None:
        try:
            temporary = json.loads(Path(slot, "manifest").read_text())["temporary"]
            expected = _inode_in(slot)
            os.link(temporary, name, follow_symlinks=False)
        except (FileNotFoundError, ValueError):
            time.sleep(_LOOK_SECONDS)  # it is coming to storage at this moment
            continue
        seen = os.lstat(name)
        if stat.S_ISREG(seen.st_mode) and seen.st_ino == expected:
            return expected
        os.unlink(name)
    return None


def settle(path: str, inode: int | None = None) -> None:
    """Wait until ``path`` and the file with this ``inode`` are on storage.

    If ``path`` is a directory, wait for the files in it.

    Raises:
        OSError: storage refuses a file.
    """
    while True:
        waited = [slot for slot in _pending(path) if os.path.isdir(slot)]
        if inode is not None:
            waited += [slot for slot in _slots() if _becomes(slot, inode)]
        if not waited:
            return
        for slot in waited:
            refused = Path(slot, "error")
            if refused.exists():
                number = json.loads(refused.read_text())["errno"]
                raise OSError(number, os.strerror(number), path)
            if not os.path.exists(Path(slot).parent / "lock"):
                raise OSError(errno.EIO, "its memory is gone", path)
        time.sleep(_LOOK_SECONDS)


def _pending(path: str) -> list[str]:
    paths = [path]
    if os.path.isdir(path):
        paths += [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]
    return [slot for slot in map(in_memory, paths) if slot is not None]


def _slots() -> list[str]:
    roots = [path for path in SHARED.glob(f"brain-{os.getuid()}-*") if mine(path)]
    return [str(path) for root in roots for path in root.glob("slot-*")]


def _becomes(slot: str, inode: int) -> bool:
    try:
        return _inode_in(slot) == inode
    except (OSError, ValueError):
        return False


def _inode_in(slot: str) -> int:
    return int(json.loads(Path(slot, "inode").read_text()))
