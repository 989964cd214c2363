"""Finds the present names of files that a script saves or loads, and detects changes of files."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class FileCall:
    """The arguments of a save or load call.

    The call's file is looked up in these arguments only in ``path_of``, whose callers catch the
    probe's errors.
    """

    def __init__(self, file_of: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.file_of, self.args, self.kwargs = file_of, args, kwargs


def path_of(file: Any) -> str | None:
    """Return the absolute path of a path or an open file; None for buffers and remote storage."""
    if isinstance(file, FileCall):
        file = file.file_of(file.args, file.kwargs)
    if not isinstance(file, (str, bytes, os.PathLike)):
        file = getattr(file, "name", None)
        if not isinstance(file, (str, bytes)):
            return None
    path = os.path.abspath(os.fsdecode(file))
    # Parts of a distributed checkpoint, written by threads of its own.
    return path if os.path.exists(path) and not path.endswith(".distcp") else None


def free_bytes(path: str) -> int:
    """Return the free bytes of the path's file system; 0 if no file can be created there."""
    found = os.statvfs(path)
    return 0 if found.f_files and not found.f_favail else found.f_bavail * found.f_frsize


def identity(path: str) -> tuple[Any, ...]:
    """Return the inodes of a file and its directory, by which a renamed file is found again."""
    return inode_of(path), os.stat(os.path.dirname(path)).st_ino


def inode_of(path: str) -> int:
    """Return the inode of a file. For a file in memory (``launcher/inject/shim.py``), return the
    inode of the file on storage that will replace it.
    """
    shim = sys.modules.get("_brain_shim")
    return os.stat(path).st_ino if shim is None else int(shim.inode(path))


def final_name(path: str, identity: tuple[Any, ...]) -> str | None:
    """Return the present path of a file by its ``identity``: the same path, another name in the
    same directory, or the same name in a renamed directory. None if the file is gone.
    """
    inode, directory_inode = identity
    directory, name = os.path.split(path)
    found = _named(directory, name, inode)
    if found is None:
        above, directory_name = os.path.split(directory)
        moved = _named(above, directory_name, directory_inode)
        found = None if moved is None else _named(moved, name, inode)
    return found


def _named(directory: str, name: str, inode: int) -> str | None:
    try:
        if inode_of(os.path.join(directory, name)) == inode:
            return os.path.join(directory, name)
    except OSError:
        pass
    try:
        with os.scandir(directory) as entries:
            return next((entry.path for entry in entries if _entry_inode(entry) == inode), None)
    except OSError:
        return None


def _entry_inode(entry: os.DirEntry[str]) -> int:
    try:
        return inode_of(entry.path) if entry.is_symlink() else entry.inode()
    except OSError:  # a link to nothing
        return entry.inode()


def size(path: str) -> int:
    """Return the size in bytes of a file, or of all files below a directory."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    files = (os.path.join(top, name) for top, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files)


def print_of(path: str | None) -> tuple[Any, ...]:
    """Return a value that changes whenever a file or directory changes; () if it does not exist."""
    try:
        if path is None:
            return ()
        if not os.path.isdir(path):
            seen = os.stat(path)
            return ((inode_of(path), seen.st_mtime_ns, seen.st_size),)
        with os.scandir(path) as entries:
            return tuple(
                sorted((_entry_inode(e), e.stat().st_mtime_ns, e.stat().st_size) for e in entries)
            )
    except OSError:
        return ()


class DeclaredCheckpoint:
    """Watches a declared checkpoint for writes that the probe does not see (np.save …)."""

    def __init__(self, path: str | None) -> None:
        self.path = os.path.abspath(path) if path else None
        self.known: Any = print_of(self.path)
        self.last = self.known
        self.unchanged_steps = 0

    def seen(self, path: str) -> None:
        """Record that the probe saw a save to this path, so that ``changed`` does not report it."""
        if self.path and (path + os.sep).startswith(self.path + os.sep):
            self.known = None

    def changed(self, steps: int) -> int | None:
        """Return the number of steps that were completed before the checkpoint changed; None if it
        has not changed. A change is reported only once two calls in a row have found the same
        state.
        """
        if self.path is None:
            return None
        now = print_of(self.path)
        stable, self.last = now == self.last, now
        if now == self.known:
            self.unchanged_steps = steps
        if not stable or now == self.known:
            return None
        news = self.known is not None and now != ()
        self.known = now
        return self.unchanged_steps if news else None
