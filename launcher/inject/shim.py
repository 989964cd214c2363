"""Lets ``torch.save`` return once the checkpoint is in memory, for scripts that never heard of it.

A guest in a foreign process: standard library, CPython 3.8 on, loaded by absolute path as
``_brain_shim``. The file is written into shared memory that belongs to the agent, and its name is
at once a symbolic link to it; the agent's keeper (``launcher/memory/keeper.py``) makes it durable
and puts the durable file where the link is by then. What cannot be done so is saved as always.

An audit hook sees what the script does with such names: the durable file that a rename would
replace is kept by a second link, and what a link cannot bear (another file system, hard links,
writing into it, removing the file before) waits until the file is on storage.
"""

from __future__ import annotations

import fcntl
import functools
import itertools
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

#: Smaller files are on storage sooner than they are handed over.
LEAST_BYTES = 1 << 20
#: File systems that only this machine writes; elsewhere a link into our memory would dangle.
LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "overlay", "tmpfs")
)
#: Of these, the ones that set space aside at once.
_ALLOCATES = frozenset(("ext4", "xfs", "btrfs", "f2fs", "tmpfs"))
#: Parts of a state that are looked at, at most.
_PARTS = 1_000_000
_WAIT_SECONDS = (0.001, 0.02)
_EXCHANGE = 2

_shim: Shim | None = None


def start(config: dict[str, Any]) -> None:
    """Begin, if ``config`` (BRAIN_WORKER, parsed) has ``memory``. Never raises."""
    global _shim
    try:
        memory = config.get("memory")
        if not memory or _shim is not None:
            return
        _shim = Shim(memory, int(os.environ.get("RANK", 0)))
        _shim.install()
    except Exception as cannot:  # noqa: BLE001 - a failing shim costs the speed, never the job
        _shim = None
        sys.stderr.write("brain: checkpoints are saved as always: %r\n" % (cannot,))


def inode(path: str) -> int:
    """The inode of a file; of one in memory, that of the file on storage which it becomes.

    Raises:
        OSError: it is not there.
    """
    slot = None if _shim is None else _shim.slot_of(path)
    if slot is not None:
        try:
            with open(os.path.join(slot, "inode")) as file:
                return int(json.load(file))
        except (OSError, ValueError):  # on storage meanwhile
            pass
    return os.stat(path).st_ino


class Slow(Exception):
    """This save goes the plain way; the text says why."""


class Shim:
    """The state of one process; everything that must outlive it is in the file system."""

    def __init__(self, memory: dict[str, Any], rank: int) -> None:
        self.root: str = memory["directory"]
        #: What the links of all agents of this user point into.
        self.mark = os.path.join(os.path.dirname(self.root), "brain-%d-" % os.getuid())
        self.job: str = memory["job"]
        self.registry: str = memory["registry"]
        self.least = memory.get("least_bytes", LEAST_BYTES)
        self.declared = _area(memory.get("declared"))
        self.rank = rank
        self.pid = os.getpid()
        self.counter = itertools.count()
        self.said: set[str] = set()
        self.usable: dict[str, str] = {}  # directory -> type of its file system
        #: Threads that rename and remove for us; the hook lets them.
        self.ours: set[int] = set()

    # -- getting in ---------------------------------------------------------------------------

    def install(self) -> None:
        """Patch torch, now or once it is imported, and listen to what becomes of names."""
        ticks = _started_ticks(self.pid)
        with open(os.path.join(self.root, "worker-%d" % self.pid), "w") as file:
            file.write(str(ticks))
        heard: list[str] = []

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "brain.shim":
                heard.append(event)
            elif event in _WATCHED:
                self.heard(event, args)

        sys.addaudithook(hook)
        sys.audit("brain.shim")
        if not heard:
            raise RuntimeError("another audit hook forbids ours")
        os.register_at_fork(after_in_child=self.forked)
        if "torch.serialization" in sys.modules:
            self.patch(sys.modules["torch.serialization"])
        else:
            sys.meta_path.insert(0, _Finder(self))

    def forked(self) -> None:
        """In a child of the worker: names are still looked after, saves go the plain way."""
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
        maps = "mmap" in _arguments(original)

        @functools.wraps(original)
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            descriptor = self.opened(f)
            if descriptor is None:
                return original(f, *args, **kwargs)
            # Opened once: the name may become the durable file while torch reads.
            f = "/proc/self/fd/%d" % descriptor
            try:
                if maps and "mmap" not in kwargs and "pickle_module" not in kwargs and not args:
                    return _load_mapped(original, f, kwargs)
                return original(f, *args, **kwargs)
            finally:
                os.close(descriptor)

        return load

    # -- saving -------------------------------------------------------------------------------

    def save(self, original: Any, obj: Any, f: Any, args: Any, kwargs: Any) -> Any:
        """``torch.save`` to a path."""
        try:
            path = self._target(f)
            self._wait_for_previous(path)
            self._check_room(path, obj)
        except Slow as slow:
            return self._as_always(original, obj, f, args, kwargs, str(slow))
        except OSError as cannot:
            if getattr(cannot, "of_storage", False):
                raise
            return self._as_always(original, obj, f, args, kwargs, str(cannot))
        try:
            return self._into_memory(original, obj, path, args, kwargs)
        except OSError as cannot:
            why = "%s goes to storage at once: %s" % (path, cannot.strerror or cannot)
        except Exception:  # noqa: BLE001 - torch's own error comes again, from where it belongs
            why = ""
        return self._as_always(original, obj, f, args, kwargs, why)

    def _as_always(self, original: Any, obj: Any, f: Any, args: Any, kwargs: Any, why: str) -> Any:
        """The plain way; never through a link into our memory."""
        self._say(why)
        self.settle(os.path.abspath(os.fsdecode(f)))
        return original(obj, f, *args, **kwargs)

    def _target(self, f: Any) -> str:
        """The path with its directory resolved.

        Raises:
            Slow: it is no file that a link could stand for.
        """
        if os.getpid() != self.pid:
            raise Slow("")
        path = _resolved(os.path.abspath(os.fsdecode(f)))
        if self.declared and not (path + os.sep).startswith(self.declared):
            raise Slow("")
        self.settle(path)
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
            raise Slow("%s belongs to another user" % path)
        if seen is not None and seen.st_nlink > 1 + self._own_links(path, seen.st_ino):
            raise Slow("%s has other hard links, which a save shall change too" % path)
        return path

    def _own_links(self, path: str, inode: int) -> int:
        directory, name = os.path.split(path)
        found = (e for e in os.scandir(directory) if e.name.startswith(".brain-"))
        return sum(e.inode() == inode for e in found if e.name.rstrip("~").endswith("-" + name))

    def _wait_for_previous(self, path: str) -> None:
        """At most one save is ahead of storage: wait for the one before, and raise its error."""
        key = _key(path)
        for slot, manifest in self._slots():
            same = manifest["rank"] == self.rank and _key(manifest["path"]) == key
            if same or path in _names(slot, manifest):
                self._wait(slot, path)

    def _check_room(self, path: str, obj: Any) -> None:
        weight = _weigh(obj)
        if weight < self.least:
            raise Slow("")
        self._check_directory(os.path.dirname(path))
        room = _room(self.root)
        if weight + weight // 50 + LEAST_BYTES > room:
            raise Slow(
                "%s has %d MiB, the memory checkpoint has room for %d; saved to storage instead; "
                "more shared memory (--shm-size) helps" % (path, weight >> 20, max(room, 0) >> 20)
            )

    def _check_directory(self, directory: str) -> None:
        """Remember a directory in which links, hard links and exchanges work.

        Raises:
            Slow: they do not, or others would see the link dangle.
        """
        if directory in self.usable:
            return
        if not os.path.isdir(directory):
            raise Slow("")  # torch says so best
        kind = _file_system(directory)
        if kind not in LOCAL:
            raise Slow(
                "%s is on %s, which other machines may see; saved to storage at once; "
                "launcher.checkpoint keeps shared files in memory" % (directory, kind)
            )
        try:
            with self._quietly():
                self._try_directory(directory)
            _append(self.registry, directory)
        except OSError as cannot:
            raise Slow("%s: %s" % (directory, cannot.strerror)) from None
        self.usable[directory] = kind

    def _try_directory(self, directory: str) -> None:
        base = os.path.join(directory, ".brain-try-%d-%d" % (self.pid, next(self.counter)))
        names = [base + end for end in ("-file", "-link", "-hard")]
        try:
            os.close(os.open(names[0], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.symlink(self.root, names[1])
            os.link(names[0], names[2])
            _exchange(names[0], names[1])
        finally:
            for name in names:
                if os.path.lexists(name):
                    os.unlink(name)

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
            with self._quietly():
                size = os.path.getsize(os.path.join(writing, name))
                manifest = {"path": path, "rank": self.rank, "temporary": temporary, "bytes": size}
                _write(os.path.join(writing, "manifest"), manifest)
                inode = self._make_temporary(path, temporary, size)
                _write(os.path.join(writing, "inode"), inode)
                os.rename(writing, slot)
                target = os.path.join(slot, name)
                os.chmod(target, stat.S_IMODE(os.stat(temporary).st_mode))
                self._keep(slot, path)
                os.symlink(target, link)
                os.rename(link, path)
        except BaseException:
            self._clear(writing, slot, temporary, link)
            raise
        _write(os.path.join(slot, "accepted"), time.time())
        self._wake()
        return result

    def _make_temporary(self, path: str, temporary: str, size: int) -> int:
        """The file that will be the durable one, with its space where that can be set aside."""
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            if os.path.isfile(path):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
            if self.usable[os.path.dirname(path)] in _ALLOCATES:
                os.posix_fallocate(descriptor, 0, size)
            return os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)

    def _keep(self, slot: str, path: str) -> None:
        """A second link to the durable file that a link is about to replace."""
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return
        except FileNotFoundError:
            return
        directory, name = os.path.split(path)
        keep = os.path.join(directory, ".brain-keep-%s-%s~" % (self.job, name))
        _append(os.path.join(slot, "names"), json.dumps({"name": path, "keep": keep}))
        if os.path.lexists(keep):
            os.unlink(keep)
        os.link(path, keep)

    def _clear(self, writing: str, slot: str, *names: str) -> None:
        """Leave nothing of a save that did not come about."""
        with self._quietly():
            for directory in (writing, slot):
                if os.path.isdir(directory):
                    for entry in os.listdir(directory):
                        os.unlink(os.path.join(directory, entry))
                    os.rmdir(directory)
            for name in names:
                if os.path.lexists(name):
                    os.unlink(name)

    # -- what the script does with names ------------------------------------------------------

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event; raises only what storage said of a save that it has to wait for."""
        import _thread

        if _thread.get_ident() in self.ours:
            return
        try:
            getattr(self, "_on_" + _WATCHED[event])(*args)
        except OSError as error:
            if getattr(error, "of_storage", False):
                raise
        except Exception as error:  # noqa: BLE001 - the script's rename is not ours to break
            self._say("names are not looked after: %r" % (error,))

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
            self._wait(slot, source)
            return
        self.settle(target)
        try:
            with self._quietly():
                self._keep(slot, target)
                _append(os.path.join(slot, "names"), json.dumps({"name": target}))
        except OSError:  # no second link can be made here
            self._wait(slot, source)

    def _moved_directory(self, source: str, target: str) -> None:
        for slot, manifest in self._slots():
            for name in _names(slot, manifest):
                if name.startswith(source + os.sep):
                    moved = target + name[len(source) :]
                    _append(os.path.join(slot, "names"), json.dumps({"name": moved}))

    def _on_link(self, source: Any, target: Any, source_fd: int, target_fd: int) -> None:
        self.settle(_at(source, source_fd))

    def _on_truncate(self, path: Any, length: int) -> None:
        if not isinstance(path, int):
            self.settle(_at(path, -1))

    def _on_remove(self, path: Any, dir_fd: int = -1) -> None:
        """Old checkpoints go once the newer one is on storage."""
        gone = _at(path, dir_fd)
        slot = self.slot_of(gone)
        if slot is not None:
            _append(os.path.join(slot, "names"), json.dumps({"removed": gone}))
            return
        key = _key(gone)
        for slot, manifest in self._slots():
            names = [_key(name) for name in _names(slot, manifest)]
            if any(name == key or name.startswith(key + os.sep) for name in names):
                self._wait(slot, gone)

    def settle(self, path: str) -> None:
        """Wait until ``path`` is no link into memory any more."""
        slot = self.slot_of(path)
        if slot is not None:
            self._wait(slot, path)

    def opened(self, f: Any) -> int | None:
        """A descriptor of the memory that a path is a link to; None where it is none."""
        try:
            if isinstance(f, (str, bytes, os.PathLike)) and self.slot_of(os.fsdecode(f)):
                return os.open(f, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass
        return None

    def slot_of(self, path: str) -> str | None:
        """The slot of memory that a path is a link into; None where it is none."""
        try:
            target = os.readlink(path)
        except OSError:
            return None
        return os.path.dirname(target) if target.startswith(self.mark) else None

    def _slots(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for entry in os.listdir(self.root):
            if entry.startswith("slot-"):
                slot = os.path.join(self.root, entry)
                try:
                    with open(os.path.join(slot, "manifest")) as file:
                        yield slot, json.load(file)
                except (OSError, ValueError):  # durable meanwhile
                    continue

    def _wait(self, slot: str, path: str) -> None:
        """Wait until what is in ``slot`` is on storage.

        Raises:
            OSError: it cannot be written, and why.
        """
        self._wake()
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

    def _wake(self) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
                bell.setblocking(False)
                bell.sendto(b"!", os.path.join(self.root, "bell"))
        except OSError:  # the keeper looks by itself a little later
            pass

    def _quietly(self) -> Any:
        return _Quiet(self.ours)

    def _say(self, text: str) -> None:
        kind = re.sub(r"\d+", "#", text)
        if text and kind not in self.said:
            self.said.add(kind)
            sys.stderr.write("brain: %s\n" % text)


class _Quiet:
    """While it lasts, the hook lets this thread do as it likes."""

    def __init__(self, ours: set[int]) -> None:
        self.ours = ours

    def __enter__(self) -> None:
        import _thread

        self.me = _thread.get_ident()
        self.nested = self.me in self.ours
        self.ours.add(self.me)

    def __exit__(self, *_: Any) -> None:
        if not self.nested:
            self.ours.discard(self.me)


class _Finder:
    """Patches torch.serialization when it has run, before anybody else looks at it."""

    def __init__(self, shim: Shim) -> None:
        self.shim = shim

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Let those behind us find it."""
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
                self.shim._say("checkpoints are saved as always: %r" % (cannot,))

        loader.exec_module = exec_module


_WATCHED = {
    "open": "open",
    "os.rename": "rename",
    "os.link": "link",
    "os.truncate": "truncate",
    "os.remove": "remove",
    "shutil.rmtree": "remove",
}


def _wrap(module: Any, name: str, around: Callable[[Any], Any]) -> None:
    original = getattr(module, name)
    wrapped = around(original)
    for holder in (module, sys.modules.get(module.__name__.rpartition(".")[0])):
        if getattr(holder, name, None) is original:
            setattr(holder, name, wrapped)


def _area(declared: str | None) -> str:
    """The directory, with a separator at its end, that saves of a declared checkpoint are in."""
    if not declared:
        return ""
    path = os.path.realpath(declared)
    if not (os.path.isdir(path) or declared.endswith(os.sep)):
        path = os.path.dirname(path)
    return path.rstrip(os.sep) + os.sep


def _key(path: str) -> str:
    """What is the same for all saves of a row: ``step-20.pt`` and ``step-40.pt``."""
    return re.sub(r"\d+", "#", path)


def _names(slot: str, manifest: dict[str, Any]) -> list[str]:
    """Every name that the save had so far."""
    names = [manifest["path"]]
    try:
        with open(os.path.join(slot, "names")) as file:
            names += [told["name"] for told in map(json.loads, file) if "name" in told]
    except (OSError, ValueError):
        pass
    return names


def _resolved(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)


def _at(path: Any, dir_fd: int) -> str:
    text = os.fsdecode(path)
    if dir_fd not in (-1, None) and not os.path.isabs(text):
        text = os.path.join(os.readlink("/proc/self/fd/%d" % dir_fd), text)
    return _resolved(os.path.abspath(text))


def _arguments(function: Any) -> tuple[str, ...]:
    """Names of a function's arguments, those it was wrapped with included."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _load_mapped(original: Any, path: str, kwargs: dict[str, Any]) -> Any:
    """Load by mapping, which skips a checksum and a copy, then give every tensor memory of its own.

    What comes out is what plain ``torch.load`` gives: ordinary storages that can be resized.
    """
    try:
        loaded = original(path, mmap=True, **kwargs)
    except RuntimeError:  # of a format that cannot be mapped
        return original(path, **kwargs)
    torch = sys.modules["torch"]
    plain = (torch.Tensor, torch.nn.Parameter)
    own: dict[int, Any] = {}
    with torch.no_grad():
        for each in _within(loaded):
            if type(each) not in plain or each.layout != torch.strided or each.device.type != "cpu":
                continue
            if each.is_conj() or each.is_neg() or each.is_quantized:
                continue
            mapped = each.untyped_storage()
            if mapped._cdata not in own:
                # The first is kept too, so that no other takes its place.
                own[mapped._cdata] = mapped, mapped.clone()
            fresh = torch.empty(0, dtype=each.dtype)
            fresh.set_(own[mapped._cdata][1], each.storage_offset(), each.size(), each.stride())
            each.data = fresh
    return loaded


def _within(obj: Any) -> Iterator[Any]:
    """The parts of a state: what containers hold, and objects in their attributes."""
    known: set[int] = set()
    rest = [obj]
    while rest and len(known) < _PARTS:
        each = rest.pop()
        if isinstance(each, (str, bytes, int, float, type(None))) or id(each) in known:
            continue
        known.add(id(each))
        yield each
        if isinstance(each, dict):
            rest.extend(each.values())
        elif isinstance(each, (list, tuple, set)):
            rest.extend(each)
        elif type(each).__module__ not in ("builtins", "types") and hasattr(each, "__dict__"):
            rest.extend(vars(each).values())


def _weigh(obj: Any) -> int:
    """Bytes of the tensors in a state, each storage once."""
    seen: dict[Any, int] = {}
    for each in _within(obj):
        storage = getattr(each, "untyped_storage", None)
        if callable(storage) and not isinstance(each, type):
            try:
                held = storage()
                seen[held.data_ptr() or id(each)] = held.nbytes()
            except Exception:  # noqa: BLE001 - sparse, fake, somebody's own: it weighs nothing here
                continue
    return sum(seen.values())


def _room(root: str) -> int:
    """Bytes that may still go into memory; a tenth is left to others."""
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


def _file_system(directory: str) -> str:
    """Type of the file system that a directory is on."""
    best, kind = "", "an unknown file system"
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape")
            inside = point == "/" or (directory + os.sep).startswith(point + os.sep)
            if inside and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return kind


def _exchange(one: str, other: str) -> None:
    """Let two names change places, atomically."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(-100, names[0], -100, names[1], _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), other)


def _write(path: str, value: Any) -> None:
    with open(path + ".part", "w") as file:
        json.dump(value, file)
    os.rename(path + ".part", path)


def _append(path: str, line: str) -> None:
    """One line more; on a disk it is there after a power cut, too."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, os.fsencode(line + "\n"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _started_ticks(pid: int) -> int:
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[19])
