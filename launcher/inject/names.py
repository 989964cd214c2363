"""Names of files that are still in memory, and the memory slots that hold them.

The shim loads this module as ``_brain_names``; it uses only the standard library and supports
CPython 3.8 and later. A file in memory is a symbolic link into a *slot*, a directory of the agent's
shared memory (docs/reference/protocols.md). All state is in the file system, so every process sees
the same.
"""

from __future__ import annotations

import _thread
import fcntl
import json
import os
import re
import socket
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

_WAIT_SECONDS = (0.001, 0.02)


class Names:
    """The names of files that are in the memory of this process's agent, and the audit hook that
    tracks the names.
    """

    def __init__(self, root: str, job: str, rank: int, say: Callable[[str], None]) -> None:
        self.root, self.job, self.rank, self.say = root, job, rank, say
        #: What the links of all agents of this user point into.
        self.mark = os.path.join(os.path.dirname(root), "brain-%d-" % os.getuid())
        #: Threads that rename and remove for us; the hook lets them.
        self.ours: set[int] = set()

    def listen(self) -> None:
        """Start to track names.

        Raises:
            RuntimeError: another audit hook forbids new ones.
        """
        heard: list[str] = []

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "brain.shim":
                heard.append(event)
            elif event in _WATCHED:
                self.heard(event, args)

        sys.addaudithook(hook)
        sys.audit("brain.shim")
        if not heard:
            raise RuntimeError("another audit hook forbids Brain's")

    def wait_for_previous(self, path: str) -> None:
        """Wait until the previous save of the series is on storage, and raise its error.

        So at most one save is ahead of storage.
        """
        key = row(path)
        for slot, manifest in self.slots():
            same = manifest["rank"] == self.rank and manifest["row"] == key
            if same or path in _names(slot, manifest):
                self.wait(slot, path)

    def keep(self, slot: str, path: str) -> None:
        """Keep the durable file that a link is about to replace, by a second hard link."""
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return
        except FileNotFoundError:
            return
        directory, name = os.path.split(path)
        keep = os.path.join(directory, ".brain-keep-%s-%s~" % (self.job, name))
        append(os.path.join(slot, "names"), json.dumps({"name": path, "keep": keep}))
        if os.path.lexists(keep):
            os.unlink(keep)
        os.link(path, keep)

    # -- what the script does with names ------------------------------------------------------

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event.

        Raises only the storage error of a save for which the script has to wait.
        """
        if _thread.get_ident() in self.ours:
            return
        try:
            getattr(self, "_on_" + _WATCHED[event])(*args)
        except OSError as error:
            if getattr(error, "of_storage", False):
                raise
        except Exception as error:  # noqa: BLE001 - the script's rename is not ours to break
            self.say("a renamed checkpoint is not kept in memory: %r" % (error,))

    def _on_open(self, path: Any, mode: Any, flags: int) -> None:
        if flags & (os.O_WRONLY | os.O_RDWR) and isinstance(path, (str, bytes, os.PathLike)):
            self.settle(os.fsdecode(path))

    def _on_rename(self, source: Any, target: Any, source_fd: int, target_fd: int) -> None:
        source, target = _at(source, source_fd), _at(target, target_fd)
        slot = self.slot_of(source)
        if slot is None:
            self._moved_directory(source, target)
            return
        if os.stat(os.path.dirname(target)).st_dev != os.lstat(source).st_dev:
            self.wait(slot, source)
            return
        self.settle(target)
        try:
            with self.quietly():
                self.keep(slot, target)
                append(os.path.join(slot, "names"), json.dumps({"name": target}))
        except OSError:  # no second link can be made here
            self.wait(slot, source)

    def _moved_directory(self, source: str, target: str) -> None:
        for slot, manifest in self.slots():
            for name in _names(slot, manifest):
                if name.startswith(source + os.sep):
                    moved = target + name[len(source) :]
                    append(os.path.join(slot, "names"), json.dumps({"name": moved}))

    def _on_link(self, source: Any, target: Any, source_fd: int, target_fd: int) -> None:
        self.settle(_at(source, source_fd))

    def _on_truncate(self, path: Any, length: int) -> None:
        if not isinstance(path, int):
            self.settle(_at(path, -1))

    def _on_remove(self, path: Any, dir_fd: int = -1) -> None:
        """Remove an old checkpoint only once the newer one is on storage."""
        gone = _at(path, dir_fd)
        slot = self.slot_of(gone)
        if slot is not None:
            append(os.path.join(slot, "names"), json.dumps({"removed": gone}))
            return
        key = row(gone)
        for slot, manifest in self.slots():
            names = [row(name) for name in _names(slot, manifest)]
            if any(name == key or name.startswith(key + os.sep) for name in names):
                self.wait(slot, gone)

    def settle(self, path: str) -> None:
        """Wait until ``path`` is no longer a link into memory."""
        slot = self.slot_of(path)
        if slot is not None:
            self.wait(slot, path)

    def slot_of(self, path: str) -> str | None:
        """Return the memory slot to which a path links; None if the path is not such a link."""
        try:
            target = os.readlink(path)
        except OSError:
            return None
        return os.path.dirname(target) if target.startswith(self.mark) else None

    def slots(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for entry in os.listdir(self.root):
            if entry.startswith("slot-"):
                slot = os.path.join(self.root, entry)
                try:
                    with open(os.path.join(slot, "manifest")) as file:
                        yield slot, json.load(file)
                except (OSError, ValueError):  # durable meanwhile
                    continue

    def wait(self, slot: str, path: str) -> None:
        """Wait until the file in ``slot`` is on storage.

        Raises:
            OSError: storage refused the file; the error says why.
        """
        self.wake()
        pause = _WAIT_SECONDS[0]
        while os.path.isdir(slot):
            try:
                with open(os.path.join(slot, "error")) as file:
                    number = json.load(file)["errno"]
            except (OSError, ValueError):
                time.sleep(pause)
                pause = min(2 * pause, _WAIT_SECONDS[1])
                continue
            failed = OSError(number, "%s (the previous save)" % os.strerror(number), path)
            failed.of_storage = True  # type: ignore[attr-defined]  # told from our own
            raise failed

    def wake(self) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
                bell.setblocking(False)
                bell.sendto(b"!", os.path.join(self.root, "bell"))
        except OSError:  # the flusher looks by itself a little later
            pass

    def quietly(self) -> _Quiet:
        """Return a context in which the hook ignores this thread."""
        return _Quiet(self.ours)


class _Quiet:
    """A context in which the hook ignores this thread."""

    def __init__(self, ours: set[int]) -> None:
        self.ours = ours

    def __enter__(self) -> None:
        self.me = _thread.get_ident()
        self.nested = self.me in self.ours
        self.ours.add(self.me)

    def __exit__(self, *_: Any) -> None:
        if not self.nested:
            self.ours.discard(self.me)


_WATCHED = {
    "open": "open",
    "os.rename": "rename",
    "os.link": "link",
    "os.truncate": "truncate",
    "os.remove": "remove",
    "shutil.rmtree": "remove",
}


def row(path: str) -> str:
    """Return the name pattern of a series: ``step-#.pt`` for ``step-20.pt`` and ``step-40.pt``."""
    return re.sub(r"\d+", "#", path)


def _names(slot: str, manifest: dict[str, Any]) -> list[str]:
    """Return every name that the save has had."""
    names = [manifest["path"]]
    try:
        with open(os.path.join(slot, "names")) as file:
            names += [told["name"] for told in map(json.loads, file) if "name" in told]
    except (OSError, ValueError):
        pass
    return names


def resolved(path: str) -> str:
    """Return the path with symbolic links in its directory resolved."""
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)


def _at(path: Any, dir_fd: int) -> str:
    text = os.fsdecode(path)
    if dir_fd not in (-1, None) and not os.path.isabs(text):
        text = os.path.join(os.readlink("/proc/self/fd/%d" % dir_fd), text)
    return resolved(os.path.abspath(text))


def write(path: str, value: Any) -> None:
    """Replace a small file."""
    with open(path + ".part", "w") as file:
        json.dump(value, file)
    os.rename(path + ".part", path)


def append(path: str, line: str) -> None:
    """Append a line; if the file is on a disk, the line survives a power cut."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, os.fsencode(line + "\n"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
