"""Brings what workers saved into memory to storage. A program; standard library only.

python -m launcher.memory.keeper <directory>
    makes durable what appears in the agent's shared memory, and says on standard output, a line of
    JSON at each change, what is ahead of storage. A number on standard input (a worker has failed)
    brings steps to storage, too, that were to stay in memory, and comes back once they are. When
    standard input ends (the agent let go of it, or was killed) it finishes what was accepted,
    removes the directory and ends.

What is in the directory stands in docs/reference/protocols.md. All of it is in the file system, so
a keeper that was killed is followed by another one that goes on where it was.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import time
from pathlib import Path

from launcher.memory import parts
from launcher.memory.storing import Storing

EXCHANGE = 2
CHUNK_BYTES = 8 << 20
#: Seconds between looks when nobody rings, between attempts after an error, and for names that
#: were not found.
LOOK_SECONDS, RETRY_SECONDS, LOST_SECONDS = 0.25, 0.5, 1.0
#: Seconds that storage may refuse a save whose worker has ended before it is given up.
GIVE_UP_SECONDS = 10.0
#: Seconds that workers may outlive their agent, and pieces of a step the agents that have them.
ORPHANS_SECONDS, PIECES_SECONDS = 15.0, 30.0

_libc = ctypes.CDLL(None, use_errno=True)


class Slot:
    """One accepted file in memory, on its way to storage."""

    def __init__(self, path: str) -> None:
        """Raises OSError or ValueError where it is not complete."""
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
        """When ``torch.save`` returned; None before it did, or where its process died first."""
        try:
            with open(os.path.join(self.path, "accepted")) as file:
                return float(json.load(file))
        except (OSError, ValueError):
            return None

    def told(self) -> "list[dict[str, str]]":
        """What became of its names, as the worker's hook saw it."""
        try:
            with open(os.path.join(self.path, "names")) as file:
                return [json.loads(line) for line in file]
        except (OSError, ValueError):
            return []

    def names(self) -> "list[str]":
        """Every name that it had, the newest first."""
        names = [told["name"] for told in self.told() if "name" in told]
        return [*reversed(names), self.first]

    def moved(self, path: str) -> "list[str]":
        """Where ``path`` may be, if its directory was renamed."""
        name = os.path.basename(path)
        return [os.path.join(os.path.dirname(each), name) for each in self.names()]

    @property
    def temporary(self) -> str:
        """The file that will be the durable one."""
        told: str = self.manifest["temporary"]
        return next((path for path in self.moved(told) if os.path.lexists(path)), told)

    def name(self) -> str | None:
        """Where its link is now; None where it cannot be found."""
        names, temporary = self.names(), self.temporary
        for name in names:
            if points(name, self.memory):
                return name
        for directory in dict.fromkeys(map(os.path.dirname, names)):
            with contextlib.suppress(OSError):
                for entry in os.scandir(directory):
                    if entry.path != temporary and points(entry.path, self.memory):
                        return entry.path
        return None

    def copy(self) -> None:
        """Copy the bytes to the file that will be the durable one, and sync it."""
        if self.copied:
            return
        source = os.open(self.memory, os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            seen = os.fstat(source)
            left, at = seen.st_size, 0
            while left:
                sent = os.sendfile(target, source, at, min(left, CHUNK_BYTES))
                if sent == 0:
                    raise OSError(errno.EIO, "the memory ends early")
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
        """Put the durable file where the link is; False where the link is not found."""
        if points(self.temporary, self.memory):  # a keeper before us did
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
        """A keeper before us ended between an exchange and its undoing."""
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
        """Put back what was durable before, where the link still is."""
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
        """Remove all that was ours, memory last."""
        for told in self.told():
            for keep in self.moved(told["keep"]) if "keep" in told else ():
                remove(keep)
        remove(self.temporary)
        shutil.rmtree(self.path, ignore_errors=True)

    def refuse(self, error: OSError) -> None:
        """Remember an error of storage, for the script's next save, and try again later."""
        now = time.monotonic()
        self.refused_since = self.refused_since or now
        self.next_try = now + RETRY_SECONDS
        with contextlib.suppress(OSError):
            write(os.path.join(self.path, "error"), {"errno": error.errno, "text": str(error)})


class Keeper:
    """The loop over one directory of shared memory."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.slots: dict[str, Slot] = {}
        self.lost: list[str] = []
        self.reported = ""
        self.storing, self.behind = Storing(Path(root)), False
        #: Numbers that the agent sent, and that were answered.
        self.asked = self.answered = 0
        self.bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.bell.setblocking(False)
        bell = os.path.join(root, "bell")
        remove(bell)
        self.bell.bind(bell)

    def run(self) -> None:
        """Work until the agent is gone and nothing is ahead of storage."""
        gone_since = None
        while True:
            busy = self.turn()
            self.behind = self.storing.turn(breakpoint=self.asked != self.answered)
            self.answered = self.answered if self.behind else self.asked
            self.report()
            if gone_since is not None and not busy and self.finished(gone_since):
                break
            listened = [self.bell] if gone_since is not None else [self.bell, sys.stdin]
            pause = 0.01 if busy or self.behind or gone_since is not None else LOOK_SECONDS
            ready, _, _ = select.select(listened, [], [], pause)
            if self.bell in ready:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self.bell.recv(16)
            if sys.stdin in ready:
                told = os.read(0, 4096)
                self.asked = int(told.split()[-1]) if told else self.asked
                gone_since = None if told else time.monotonic()
        shutil.rmtree(self.root, ignore_errors=True)

    def turn(self) -> bool:
        """Bring every slot one step on; returns whether something is still ahead."""
        names = sorted(n for n in os.listdir(self.root) if n.startswith(("slot-", "writing-")))
        for name in names:
            path = os.path.join(self.root, name)
            if name.startswith("writing-"):
                self.sweep(path)
            elif path not in self.slots:
                with contextlib.suppress(OSError, ValueError):
                    self.slots[path] = Slot(path)
        for path, slot in list(self.slots.items()):
            if not os.path.isdir(path) or self.persist(slot):
                del self.slots[path]
        return bool(self.slots)

    def sweep(self, writing: str) -> None:
        """Remove what a worker did not live to write to its end."""
        if alive(int(os.path.basename(writing).split("-")[1])):
            return
        with contextlib.suppress(OSError, ValueError), open(f"{writing}/manifest") as file:
            remove(json.load(file)["temporary"])
        shutil.rmtree(writing, ignore_errors=True)

    def persist(self, slot: Slot) -> bool:
        """Try to make it durable; returns whether it is done with."""
        now = time.monotonic()
        if now < slot.next_try:
            return False
        dead, accepted = not alive(slot.pid), slot.accepted is not None
        if not accepted and slot.name() is None:
            if dead:
                slot.clear()
            return dead
        try:
            done = slot.land() or self.forgotten(slot, now)
        except OSError as error:
            slot.refuse(error)
            done = dead and now - (slot.refused_since or now) > GIVE_UP_SECONDS
            if done:
                self.lost.append(f"{slot.first}: {error.strerror}")
                slot.give_up()
        if done:
            slot.clear()
        return done

    def forgotten(self, slot: Slot, now: float) -> bool:
        """Whether nobody has a name for it any more."""
        if any("removed" in told for told in slot.told()):
            return True
        slot.missed_since = slot.missed_since or now
        if now - slot.missed_since < LOST_SECONDS:
            return False
        self.lost.append(f"{slot.first}: its name is gone")
        return True

    def finished(self, since: float) -> bool:
        """Whether nothing can come any more, and what pieces are waited for will not."""
        waited = time.monotonic() - since > PIECES_SECONDS
        return self.deserted(since) and (waited or not self.behind)

    def deserted(self, since: float) -> bool:
        """Whether no worker that may still save runs, or has for too long without its agent."""
        if time.monotonic() - since > ORPHANS_SECONDS:
            return True
        for name in os.listdir(self.root):
            if name.startswith("worker-"):
                with open(os.path.join(self.root, name)) as file:
                    if alive(int(name.split("-")[1]), file.read()):
                        return False
        return True

    def report(self) -> None:
        """Tell the agent what is ahead of storage, where that has changed."""
        ahead = [
            {
                "pid": slot.pid,
                "path": slot.first,
                "bytes": slot.manifest["bytes"],
                "accepted": slot.accepted,
                "refused": slot.refused_since is not None,
            }
            for slot in self.slots.values()
        ]
        held = [part for part in parts.found(Path(self.root, "steps")) if not part.copied]
        line = json.dumps(
            {
                "ahead": ahead,
                "lost": self.lost,
                "steps": sorted({part.key.step for part in held}),
                "behind": self.behind,
                "answered": self.answered,
                "accepted": max((part.accepted for part in held), default=None),
            }
        )
        if line != self.reported:
            self.reported = line
            with contextlib.suppress(OSError):  # the agent is gone
                os.write(1, line.encode() + b"\n")


def points(name: str, memory: str) -> bool:
    """Whether ``name`` is a link to ``memory``."""
    try:
        return os.readlink(name) == memory
    except OSError:
        return False


def inode_of(name: str) -> int | None:
    """The inode of a name itself."""
    try:
        return os.lstat(name).st_ino
    except OSError:
        return None


def exchange(one: str, other: str) -> None:
    """Let two names change places, atomically."""
    if _libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), other)


def sync(directory: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a name that may be gone already."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def write(path: str, value: object) -> None:
    """Replace a small file."""
    with open(path + ".part", "w") as file:
        json.dump(value, file)
    os.replace(path + ".part", path)


def alive(pid: int, ticks: str = "") -> bool:
    """Whether a process lives (and is the one that was started then)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in ("Z", "X") and (not ticks or fields[19] == ticks)


def held(root: str) -> bool:
    """Whether an agent or a keeper has the lock of a directory of shared memory."""
    try:
        descriptor = os.open(os.path.join(root, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def main(root: str) -> None:
    """Keep one directory; its lock came with us, or is free."""
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(asked, signal.SIG_IGN)
    with contextlib.suppress(FileNotFoundError):  # another one has finished it
        Keeper(root).run()


if __name__ == "__main__":
    main(sys.argv[1])
