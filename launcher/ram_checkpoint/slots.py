"""One file in memory that is being written to storage. This module uses only the standard library.

The file is copied next to its link and synced. Then the copy is exchanged with the link, even if
the link was renamed. Afterwards the module checks that the exchange replaced the link, and not a
newer file of the script.
"""

import contextlib
import ctypes
import errno
import json
import os
import shutil
import stat
import time

_EXCHANGE = 2
_CHUNK_BYTES = 8 << 20
#: Seconds between attempts after an error.
_RETRY_SECONDS = 0.5
_libc = ctypes.CDLL(None, use_errno=True)


class Slot:
    """One accepted file in memory, on its way to storage."""

    def __init__(self, path: str) -> None:
        """Raises OSError or ValueError if the slot is not complete."""
        self.path = path
        self.pid = int(os.path.basename(path).split("-")[1])
        with open(os.path.join(path, "manifest")) as file:
            self.manifest = json.load(file)
        with open(os.path.join(path, "inode")) as file:
            self.inode = json.load(file)
        self.first = self.manifest["path"]
        self.memory = os.path.join(path, os.path.basename(self.first))
        self.copied = False
        self.missed_since: float | None = None
        self.refused_since: float | None = None
        self.next_try = 0.0

    @property
    def accepted(self) -> float | None:
        """The time (Unix seconds) at which ``torch.save`` returned.

        None if ``torch.save`` has not returned yet, or if the worker died before the return.
        """
        try:
            with open(os.path.join(self.path, "accepted")) as file:
                return float(json.load(file))
        except (OSError, ValueError):
            return None

    def told(self) -> "list[dict[str, str]]":
        """Return the changes to this slot's names that the worker's hook recorded."""
        try:
            with open(os.path.join(self.path, "names")) as file:
                return [json.loads(line) for line in file]
        except (OSError, ValueError):
            return []

    def names(self) -> "list[str]":
        """All names that the file has had, the newest first."""
        names = [told["name"] for told in self.told() if "name" in told]
        return [*reversed(names), self.first]

    def moved(self, path: str) -> "list[str]":
        """Return the paths that ``path`` may have now, if its directory was renamed."""
        name = os.path.basename(path)
        return [os.path.join(os.path.dirname(each), name) for each in self.names()]

    @property
    def temporary(self) -> str:
        """Path of the copy on storage, which later replaces the link."""
        told: str = self.manifest["temporary"]
        return next((path for path in self.moved(told) if os.path.lexists(path)), told)

    def name(self) -> str | None:
        """Return the present path of the slot's link; None if it cannot be found."""
        names = self.names()
        # What is not renamed yet is no name: its worker may not live to do it.
        ours = {os.path.basename(self.manifest[kind]) for kind in ("temporary", "link")}
        for name in names:
            if points(name, self.memory):
                return name
        for directory in dict.fromkeys(map(os.path.dirname, names)):
            with contextlib.suppress(OSError):
                for entry in os.scandir(directory):
                    if entry.name not in ours and points(entry.path, self.memory):
                        return entry.path
        return None

    def copy(self) -> None:
        """Copy the bytes to the file ``temporary`` on storage, and sync this file.

        Raises:
            OSError: storage cannot be written, or the memory has fewer bytes than the file.
        """
        if self.copied:
            return
        source = os.open(self.memory, os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            seen = os.fstat(source)
            left, at = seen.st_size, 0
            while left:
                sent = os.sendfile(target, source, at, min(left, _CHUNK_BYTES))
                if sent == 0:
                    raise OSError(errno.EIO, "the memory has fewer bytes than the file")
                at, left = at + sent, left - sent
            os.ftruncate(target, seen.st_size)
            os.fchmod(target, stat.S_IMODE(seen.st_mode))
            os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            os.fsync(target)
            self.inode = os.fstat(target).st_ino
        finally:
            os.close(source)
            os.close(target)
        self.copied = True

    def land(self) -> bool:
        """Replace the link by the durable file; return False if the link is not found."""
        if points(self.temporary, self.memory):  # a flusher before us did
            return True
        self._undo()
        if self.name() is None:
            return False
        self.copy()
        while (name := self.name()) is not None:
            with contextlib.suppress(FileNotFoundError):
                exchange(self.temporary, name)
                if points(self.temporary, self.memory):
                    sync(os.path.dirname(name))
                    return True
                # The script has put something newer there in the same instant.
                exchange(self.temporary, name)
        return False

    def _undo(self) -> None:
        """Undo an exchange, if an earlier flusher ended before it could."""
        try:
            here = os.lstat(self.temporary).st_ino
        except FileNotFoundError:
            return
        if here == self.inode:
            return
        for name in self.names():
            if inode_of(name) == self.inode:
                exchange(self.temporary, name)
                return

    def give_up(self) -> None:
        """Replace the link, if it still exists, with the durable file that had its name before."""
        name = self.name()
        if name is None:
            return
        keeps = [
            told["keep"] for told in self.told() if told.get("name") == name and "keep" in told
        ]
        for keep in reversed(keeps):
            if os.path.lexists(keep):
                os.replace(keep, name)
                return
        remove(name)

    def clear(self) -> None:
        """Remove all files of the slot, its memory last."""
        self._tidy()
        shutil.rmtree(self.path, ignore_errors=True)

    def retire(self) -> None:
        """Keep a durable save in memory for readers, and remove from memory the previous save that
        has the same name pattern.
        """
        self._tidy()
        above, name = os.path.split(self.path)
        before = [kept for kept in kept_in(above) if row_of(kept) == self.manifest["row"]]
        try:
            seen = os.stat(self.memory)
            durable = {"inode": self.inode, "bytes": seen.st_size, "mtime_ns": seen.st_mtime_ns}
            write(os.path.join(self.path, "durable"), durable)
            os.rename(self.path, os.path.join(above, "kept-" + name.partition("-")[2]))
        except OSError:  # no room for a word more: nobody but a reader misses it
            shutil.rmtree(self.path, ignore_errors=True)
        for kept in before:
            shutil.rmtree(kept, ignore_errors=True)

    def _tidy(self) -> None:
        keeps = [told["keep"] for told in self.told() if "keep" in told]
        moved = [path for ours in (*keeps, self.manifest["link"]) for path in self.moved(ours)]
        for path in (*moved, self.temporary):
            with contextlib.suppress(OSError):  # storage may refuse that, too
                remove(path)

    def refuse(self, error: OSError) -> None:
        """Store a storage error, which the script's next save raises, and schedule another
        attempt.
        """
        now = time.monotonic()
        self.refused_since = self.refused_since or now
        self.next_try = now + _RETRY_SECONDS
        with contextlib.suppress(OSError):
            write(os.path.join(self.path, "error"), {"errno": error.errno, "text": str(error)})


def kept_in(root: str) -> "list[str]":
    """Return the durable slots of a directory of shared memory, which are kept for readers."""
    return [os.path.join(root, name) for name in os.listdir(root) if name.startswith("kept-")]


def row_of(slot: str) -> str | None:
    """Return the slot's series (*row*), which all saves of one name pattern share; None if the slot
    is being removed.
    """
    try:
        with open(os.path.join(slot, "manifest")) as file:
            return str(json.load(file)["row"])
    except (OSError, ValueError):
        return None


def points(name: str, memory: str) -> bool:
    """True if ``name`` is a link to ``memory``."""
    try:
        return os.readlink(name) == memory
    except OSError:
        return False


def inode_of(name: str) -> int | None:
    """Return the inode of a name itself, without following a link; None if the name does not
    exist.
    """
    try:
        return os.lstat(name).st_ino
    except OSError:
        return None


def exchange(one: str, other: str) -> None:
    """Exchange two names atomically.

    Raises:
        OSError: one of the names does not exist, or the file system cannot exchange names.
    """
    if _libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), other)


def sync(directory: str) -> None:
    """Sync a directory, which makes its names durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a name if it exists."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def write(path: str, value: object) -> None:
    """Replace a small file."""
    with open(path + ".part", "w") as file:
        json.dump(value, file)
    os.replace(path + ".part", path)


def alive(pid: int, ticks: str = "") -> bool:
    """True if the process ``pid`` runs and has the given start time."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in ("Z", "X") and (not ticks or fields[19] == ticks)
