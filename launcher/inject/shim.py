"""Lets ``torch.save`` return once the checkpoint is in memory, in unchanged scripts.

It runs in the user's process, is loaded by absolute path as ``_brain_shim``, uses only the standard
library and supports CPython 3.8 and later. The file is written into shared memory that belongs to
the agent, and its name becomes a symbolic link to that memory. The agent's flusher
(``launcher/ram_checkpoint/flusher.py``) makes the file durable and replaces the link by the durable
file, even if the link was renamed. If a save cannot use memory, it goes directly to storage.

An audit hook watches the script's operations on such names. If a rename would replace the durable
file, a second hard link keeps this file. An operation that a link does not allow (another file
system, hard links, writing into the file, removing an older checkpoint of the same series) waits
until the file is on storage.
"""

from __future__ import annotations

import functools
import itertools
import json
import mmap
import os
import re
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Smaller files are on storage sooner than they are handed over.
LEAST_BYTES = 1 << 20

_shim: Shim | None = None


def start(config: dict[str, Any]) -> None:
    """Start the shim if ``config`` (the parsed BRAIN_WORKER) has ``memory``; never raise an
    exception.
    """
    global _shim
    try:
        memory = config.get("memory")
        if not memory or _shim is not None:
            return
        _shim = Shim(memory, int(os.environ.get("RANK", 0)))
        _shim.install()
    except Exception as cannot:  # noqa: BLE001 - a failing shim costs the speed, never the job
        _shim = None
        _tell("brain: checkpoints go directly to storage: %r\n" % (cannot,))


def inode(path: str) -> int:
    """Return the inode of a file; for a file in memory, the inode of the file on storage that
    replaces it.

    Raises:
        OSError: there is no such file.
    """
    slot = None if _shim is None else _shim.names.slot_of(path)
    if slot is not None:
        try:
            with open(os.path.join(slot, "inode")) as file:
                return int(json.load(file))
        except (OSError, ValueError):  # on storage meanwhile
            pass
    return os.stat(path).st_ino


def _beside(name: str) -> Any:
    """Load the module of that name beside this file, under a private name."""
    import importlib.util

    known = sys.modules.get("_brain_" + name)
    if known is not None:
        return known
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("_brain_" + name, path)
    if spec is None or spec.loader is None:
        raise ImportError("no Python file: " + path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["_brain_" + name] = module
    spec.loader.exec_module(module)
    return module


class Slow(Exception):
    """Raised if a save must go directly to storage; the text gives the reason."""


class Shim:
    """The state of one process; all state that must survive the process is in the file system."""

    def __init__(self, memory: dict[str, Any], rank: int) -> None:
        self.root: str = memory["directory"]
        self.files = _beside("names")
        self.places = _beside("places")
        self.states = _beside("states")
        self.copies = _beside("copies").Copies(self.root)
        self.names = self.files.Names(self.root, memory["job"], rank, self._say)
        self.registry: str = memory["registry"]
        self.least = memory.get("least_bytes", LEAST_BYTES)
        self.declared = self.places.area(memory.get("declared"))
        self.rank, self.pid = rank, os.getpid()
        self.counter = itertools.count()
        self.said: set[str] = set()
        self.off = False
        self.usable: dict[str, str] = {}  # directory -> type of its file system

    # -- getting in ---------------------------------------------------------------------------

    def install(self) -> None:
        """Patch torch, now or once it is imported, and begin to track names."""
        ticks = _started_ticks(self.pid)
        with open(os.path.join(self.root, "worker-%d" % self.pid), "w") as file:
            file.write(str(ticks))
        self.names.listen()
        os.register_at_fork(after_in_child=self.forked)
        if "torch.serialization" in sys.modules:
            self.patch(sys.modules["torch.serialization"])
        else:
            sys.meta_path.insert(0, _Finder(self))

    def forked(self) -> None:
        """In a child of the worker, continue to track names, but let saves go directly to
        storage.
        """
        self.pid = -1

    def patch(self, module: Any) -> None:
        """Wrap ``save`` and ``load`` of torch.serialization."""
        _wrap(module, "save", self._saving)
        _wrap(module, "load", self._loading)

    def _saving(self, original: Any) -> Any:
        @functools.wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(f, (str, bytes, os.PathLike)):
                return original(obj, f, *args, **kwargs)
            return self.save(original, obj, f, args, kwargs)

        return save

    def _loading(self, original: Any) -> Any:
        @functools.wraps(original)
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            own = "mmap" not in kwargs and _maps_privately()
            memory = self.copies.copy_of(f) if own else None
            if memory is not None:
                try:
                    # Nobody ever writes into it, so mapping it is as good as a copy of one's own.
                    return original(memory, *args, mmap=True, **kwargs)
                except FileNotFoundError:  # a newer one took its place this instant
                    pass
            return original(f, *args, **kwargs)

        return load

    # -- saving -------------------------------------------------------------------------------

    def save(self, original: Any, obj: Any, f: Any, args: Any, kwargs: Any) -> Any:
        """Save to a path in place of ``torch.save``: into shared memory, or with the original
        function.
        """
        try:
            path = self._target(f)
            self.names.wait_for_previous(path)
            self._check_room(path, obj)
        except Slow as slow:
            self._tell_off(str(slow))
            return self._as_always(original, obj, f, args, kwargs, str(slow))
        except OSError as cannot:
            if getattr(cannot, "of_storage", False):
                raise
            return self._as_always(original, obj, f, args, kwargs, str(cannot))
        try:
            return self._into_memory(original, obj, path, args, kwargs)
        except OSError as cannot:
            why = "%s is written directly to storage: %s" % (path, cannot.strerror or cannot)
            self._tell_off(why)
        except Exception:  # noqa: BLE001 - torch's own error comes again, from where it belongs
            why = ""
        return self._as_always(original, obj, f, args, kwargs, why)

    def _as_always(self, original: Any, obj: Any, f: Any, args: Any, kwargs: Any, why: str) -> Any:
        """Save directly to storage; never through a link into shared memory."""
        self._say(why)
        self.names.settle(os.path.abspath(os.fsdecode(f)))
        return original(obj, f, *args, **kwargs)

    def _target(self, f: Any) -> str:
        """The path with its directory resolved.

        Raises:
            Slow: the path is no file that a link could replace.
        """
        if os.getpid() != self.pid:
            raise Slow("")
        path: str = self.files.resolved(os.path.abspath(os.fsdecode(f)))
        if path.startswith(self.names.mark):  # of launcher.checkpoint, in memory already
            raise Slow("")
        if self.declared and not (path + os.sep).startswith(self.declared):
            raise Slow("")
        self.names.settle(path)
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            seen = None
        if seen is not None and stat.S_ISLNK(seen.st_mode):
            path = os.path.realpath(path)
            seen = os.stat(path) if os.path.exists(path) else None
        if seen is not None and not stat.S_ISREG(seen.st_mode):
            raise Slow("")
        if seen is not None and seen.st_uid != os.geteuid():
            raise Slow("%s belongs to another user, so it is saved to storage" % path)
        links = 1 if seen is None else seen.st_nlink
        if seen is not None and links > 1 and links > 1 + self._own_links(path, seen.st_ino):
            raise Slow("%s has other hard links, so it is saved to storage at once" % path)
        return path

    def _own_links(self, path: str, inode: int) -> int:
        directory, name = os.path.split(path)
        found = (e for e in os.scandir(directory) if e.name.startswith(".brain-"))
        return sum(e.inode() == inode for e in found if e.name.rstrip("~").endswith("-" + name))

    def _check_room(self, path: str, obj: Any) -> None:
        weight = self.states.weigh(obj)
        if weight < self.least:
            raise Slow("")
        self._check_directory(os.path.dirname(path))
        needed = weight + weight // 50 + LEAST_BYTES
        room = self.places.room(self.root)
        if needed > room and self.copies.forget():
            room = self.places.room(self.root)
        if needed > room:
            raise Slow(
                "%s has %d MiB, but shared memory has room for %d MiB, so it was saved to storage; "
                "give the container more shared memory (--shm-size)"
                % (path, weight >> 20, max(room, 0) >> 20)
            )

    def _check_directory(self, directory: str) -> None:
        """Remember a directory in which links, hard links and exchanges work.

        Raises: Slow: they do not work, or other machines would see a dangling link.
        """
        if directory in self.usable:
            return
        if not os.path.isdir(directory):
            raise Slow("")  # torch says so best
        kind = self.places.file_system(directory)
        if kind not in self.places.LOCAL:
            raise Slow(
                "%s is on %s, which other machines may read, so its files are saved to storage at "
                "once; save with launcher.checkpoint to keep shared files in memory"
                % (directory, kind)
            )
        try:
            with self.names.quietly():
                self.places.try_directory(directory, self.root)
            self.files.append(self.registry, directory)
        except OSError as cannot:
            raise Slow("%s: %s" % (directory, cannot.strerror)) from None
        self.usable[directory] = kind

    def _into_memory(self, original: Any, obj: Any, path: str, args: Any, kwargs: Any) -> Any:
        directory, name = os.path.split(path)
        ident = "%d-%d" % (self.pid, next(self.counter))
        writing, slot = (os.path.join(self.root, kind + ident) for kind in ("writing-", "slot-"))
        temporary, link = (
            os.path.join(directory, ".brain-%s-%s-%s" % (kind, os.path.basename(self.root), ident))
            for kind in ("new", "link")
        )
        os.mkdir(writing, 0o700)
        try:
            # The same name: it is in the file.
            result = original(obj, os.path.join(writing, name), *args, **kwargs)
            with self.names.quietly():
                size = os.path.getsize(os.path.join(writing, name))
                manifest = {"path": path, "rank": self.rank, "bytes": size}
                manifest.update(temporary=temporary, link=link, row=self.files.row(path))
                self.files.write(os.path.join(writing, "manifest"), manifest)
                inode = self._make_temporary(path, temporary, size)
                self.files.write(os.path.join(writing, "inode"), inode)
                os.rename(writing, slot)
                target = os.path.join(slot, name)
                os.chmod(target, stat.S_IMODE(os.stat(temporary).st_mode))
                self.names.keep(slot, path)
                os.symlink(target, link)
                os.rename(link, path)
        except BaseException:
            self._clear(writing, slot, temporary, link)
            raise
        self.files.write(os.path.join(slot, "accepted"), time.time())
        self._tell_off("")
        self.names.wake()
        return result

    def _make_temporary(self, path: str, temporary: str, size: int) -> int:
        """Make the file that will be the durable one; reserve its space if the file system can."""
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            if os.path.isfile(path):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
            if self.usable[os.path.dirname(path)] in self.places.ALLOCATES:
                os.posix_fallocate(descriptor, 0, size)
            return os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)

    def _clear(self, writing: str, slot: str, *names: str) -> None:
        """Remove all traces of a save that failed."""
        with self.names.quietly():
            for directory in (writing, slot):
                if os.path.isdir(directory):
                    for entry in os.listdir(directory):
                        os.unlink(os.path.join(directory, entry))
                    os.rmdir(directory)
            for name in names:
                if os.path.lexists(name):
                    os.unlink(name)

    def _tell_off(self, why: str) -> None:
        """Tell the agent why memory is not used; with an empty ``why``, that it is used again."""
        off = os.path.join(self.root, "off")
        try:
            if why:
                self.files.write(off, why)
                self.off = True
                self.names.wake()
            elif self.off:
                self.off = False
                os.unlink(off)
        except OSError:  # it is on standard error as well
            pass

    def _say(self, text: str) -> None:
        kind = re.sub(r"\d+", "#", text)
        if text and kind not in self.said:
            self.said.add(kind)
            _tell("brain: %s\n" % text)


class _Finder:
    """Patches torch.serialization after its code has run, before other code uses it."""

    def __init__(self, shim: Shim) -> None:
        self.shim = shim

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Let the finders behind this one find the module."""
        if name != "torch.serialization":
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            try:
                self.shim.patch(module)
            except Exception as cannot:  # noqa: BLE001 - an import must not fail through us
                self.shim._say("checkpoints go directly to storage: %r" % (cannot,))

        loader.exec_module = exec_module


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (OSError, ValueError, AttributeError):  # full or closed: no save may fail by that
        return


def _wrap(module: Any, name: str, around: Callable[[Any], Any]) -> None:
    original = getattr(module, name)
    wrapped = around(original)  # warnings that count frames pass over it, as over the probe's hooks
    wrapped.__code__ = wrapped.__code__.replace(co_filename=__file__ + " (importlib._bootstrap)")
    for holder in (module, sys.modules.get(module.__name__.rpartition(".")[0])):
        if getattr(holder, name, None) is original:
            setattr(holder, name, wrapped)


def _maps_privately() -> bool:
    """True if torch maps files privately, so that a script's writes do not reach the file."""
    options = getattr(sys.modules["torch.serialization"], "get_default_mmap_options", None)
    return options is None or options() == mmap.MAP_PRIVATE


def _started_ticks(pid: int) -> int:
    with open("/proc/%d/stat" % pid, errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])
