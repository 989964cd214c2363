"""Detects imports with side effects that forked workers must not share, such as a random seed.

``unsafe`` returns why a process cannot be forked at all. ``Traces.found`` compares the process's
state after an import with its state before the import: descriptors, shared memory, processes,
temporary files, the environment, the current directory, this process's id, and settings that a
script may make before it imports the library (signal handlers, say). If a library leaves a trace,
each worker imports it itself. ``Printed`` stores the output of imports, so that every worker prints
it. This module runs inside workers, uses only the standard library and supports CPython 3.8 and
later.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: A variable that stands for all others: whoever keeps it keeps a copy of the environment.
CANARY = b"BRAIN_IMPORTED_AHEAD"


#: It makes a key, which ``generators.py`` renews.
_DRAWS = "multiprocessing.process"
#: It names a semaphore that it removes at once, to see whether there are any; the sequence that it
#: keeps begins anew in each process (``tempfile._RandomNameSequence.rng``).
_TRIES = "joblib._multiprocessing_helpers"
#: Bits that numpy draws for a seed, by C code: ``generators.py`` looks at what is made of it.
_SEED_BITS = 128


class Environment(dict):  # type: ignore[type-arg]
    """The environment during an import; it records the variables that are read."""

    def __init__(self, content: "Any", of_ranks: "frozenset[bytes]") -> None:
        super().__init__(content)
        #: Variables that differ between workers, and the one of them that was asked for last.
        self.of_ranks = of_ranks
        self.asked: "str | None" = None
        #: Others that were asked for by name, be they there or not.
        self.reads: "set[bytes]" = set()
        self._loop: "Iterator[Any]" = iter(())

    def __iter__(self) -> "Iterator[Any]":
        names = list(super().__iter__())
        self._loop = iter(names)
        return iter(names)

    def __getitem__(self, name: "Any") -> "Any":
        if name in self.of_ranks:
            self.asked = name.decode()
        elif next(self._loop, None) != name:  # a loop over all of them asks in their order
            self._loop = iter(())
            self.reads.add(name)
        return super().__getitem__(name)

    def for_worker(self) -> "dict[bytes, bytes]":
        """Return the environment without the launcher's own variables."""
        return {name: value for name, value in self.items() if name != CANARY}


def replace_content(content: "Any") -> None:
    """Replace the content of ``os.environ`` and ``os.environb``, which share their data."""
    os.environ._data = content  # type: ignore[attr-defined]
    if os.supports_bytes_environ:
        os.environb._data = content  # type: ignore[attr-defined]


class Traces:
    """Traces that imports have left so far.

    Create this object before the first import, once ``os.environ`` uses ``Environment``.
    """

    def __init__(self) -> None:
        os.environ._data[CANARY] = CANARY  # type: ignore[attr-defined]
        self._known = self._seen()
        self._modules = set(sys.modules)
        self._names = 0
        # Objects that nothing else refers to, as the canary's text and as its bytes.
        self._canary, self._bytes = CANARY.decode() + " ", CANARY + b" "
        self._decode: "Any" = os.environ.decodevalue
        self._decodeb: "Any" = getattr(getattr(os, "environb", None), "decodevalue", None)
        self._sequence: "Any" = vars(tempfile)["_RandomNameSequence"]
        self._next = self._sequence.__next__
        self._drawn, self._urandom = 0, os.urandom
        #: Numbers that may have become seeds of numpy's generators.
        self.seeds: "set[int]" = set()
        self._watch()

    def accept(self) -> None:
        """Accept the last import, which left no trace that affects ranks.

        The next import is compared with the state after this one.
        """
        os.environ._data.asked = None  # type: ignore[attr-defined]
        self._known, self._names, self._modules = self._seen(), 0, set(sys.modules)
        self._drawn = 0

    def found(self) -> "str | None":
        """Return a description of the trace that the modules imported since the last call have
        left; None if they left none.
        """
        asked = os.environ._data.asked  # type: ignore[attr-defined]
        before, names, drawn = self._known, self._names, self._drawn
        copied = max(sys.getrefcount(self._canary), sys.getrefcount(self._bytes)) > 2
        process = self._process_id()
        self.accept()
        if asked:
            return "it reads %s when it is imported" % asked
        if copied:
            return "it stores a copy of the environment when it is imported"
        if names:
            return "it creates names of temporary files when it is imported"
        if drawn:
            return "it generates random numbers when it is imported"
        for kind, now in self._known.items():
            if now - before[kind]:
                return "it %s when it is imported (%s)" % (kind, sorted(now - before[kind])[0])
        if process:
            return "it stores the process id when it is imported (%s)" % process
        return None

    def end(self) -> None:
        """In a worker, remove this object's hooks and its variable, by which it observed
        imports.
        """
        os.environ.decodevalue = self._decode
        if self._decodeb is not None:
            os.environb.decodevalue = self._decodeb
        self._sequence.__next__ = self._next
        self._draw_by(self._urandom)
        replace_content(os.environ._data.for_worker())  # type: ignore[attr-defined]

    def _watch(self) -> None:
        decode, decodeb, following = self._decode, self._decodeb, self._next

        def decodevalue(value: "Any") -> str:
            text: str = self._canary if value is CANARY else decode(value)
            return text

        def decodebytes(value: "Any") -> bytes:
            content: bytes = self._bytes if value is CANARY else decodeb(value)
            return content

        def noting(names: "Any") -> str:
            # The directory of temporary files is tried with one; a semaphore is shared memory.
            caller = sys._getframe(1)
            harmless = caller.f_code.co_name in ("_get_default_tempdir", "_make_name")
            self._names += not harmless and caller.f_globals.get("__name__") != _TRIES
            name: str = following(names)
            return name

        def urandom(size: int) -> bytes:
            content: bytes = self._urandom(size)
            frame = sys._getframe(1)
            if frame.f_code.co_name == "getrandbits" and frame.f_locals.get("k") == _SEED_BITS:
                self.seeds.add(int.from_bytes(content, "big"))
            elif frame.f_globals.get("__name__") != _DRAWS:
                self._drawn += 1
            return content

        os.environ.decodevalue = decodevalue
        if decodeb is not None:
            os.environb.decodevalue = decodebytes
        self._sequence.__next__ = noting
        self._draw_by(urandom)

    def _draw_by(self, urandom: "Any") -> None:
        os.urandom = random._urandom = urandom  # type: ignore[attr-defined]

    def _seen(self) -> "dict[str, frozenset[str]]":
        return {
            "keeps a descriptor": frozenset(_descriptors()),
            "shares memory with other processes": frozenset(_shared_memory()),
            "starts a process": frozenset(_children()),
            "goes to another directory": frozenset([os.getcwd()]),
            "replaces a standard stream": frozenset(
                "%s %d" % (name, id(getattr(sys, name))) for name in ("stdin", "stdout", "stderr")
            ),
            "changes sys.argv": frozenset(map(repr, sys.argv)),
            "sets up logging": frozenset(_logging()),
            "handles signals": frozenset(_signal_handlers()),
            "changes the interpreter": frozenset(_interpreter()),
        }

    def _process_id(self) -> "str | None":
        """Return a name in one of the new modules under which this process's id is kept."""
        mine = os.getpid()
        for module in sys.modules.keys() - self._modules:
            content = getattr(sys.modules.get(module), "__dict__", {})
            for name, value in list(content.items()):
                if type(value) is int and value == mine and "pid" in name.lower():
                    return "%s.%s" % (module, name)
        return None


def unsafe() -> "str | None":
    """Return the reason why a fork of this process would differ from a fresh interpreter; None if
    there is none.
    """
    if threads() > 1:
        settle()
    if threads() > 1:
        return "it starts threads"
    for fd in os.listdir("/proc/self/fd"):
        try:
            device = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if device.startswith(("/dev/nvidia", "/dev/kfd", "/dev/davinci")):
            return "it opens " + device
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return "it initialises CUDA"
    return None


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def settle() -> None:
    """Fork once and discard the child, so that OpenBLAS ends its threads.

    OpenBLAS ends its threads before every fork, and starts them again only when it needs them.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of threads, which is what we look for
        pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


class Printed:
    """Output that imports print: it is stored, and printed by each worker."""

    def __init__(self) -> None:
        self._kept = {}
        for target in (1, 2):
            kept = os.memfd_create("brain-printed")
            os.dup2(kept, target)
            self._kept[target] = kept

    @contextlib.contextmanager
    def importing(self) -> "Iterator[None]":
        """Store the output of an import; if the import fails, store nothing.

        Each worker then tries the failed import again.
        """
        sizes = self._sizes()
        try:
            yield
        except BaseException:
            _flush()
            for target, size in sizes.items():
                os.ftruncate(self._kept[target], size)
                os.lseek(self._kept[target], size, os.SEEK_SET)
            raise
        _flush()

    def again(self) -> None:
        """Print the stored output in a worker, after the worker's standard streams are set."""
        for target, size in self._sizes().items():
            content = os.pread(self._kept[target], size, 0)
            os.close(self._kept[target])
            with contextlib.suppress(OSError):  # nobody reads, or the disk is full
                while content:
                    content = content[os.write(target, content) :]

    def _sizes(self) -> "dict[int, int]":
        return {target: os.fstat(kept).st_size for target, kept in self._kept.items()}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a stream of a library's own
            stream.flush()


def _descriptors() -> "Iterator[str]":
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            yield "%s: %s" % (fd, os.readlink("/proc/self/fd/" + fd))


def _shared_memory() -> "Iterator[str]":
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            _, flags, _, _, _, *name = line.split(None, 5)
            if flags.startswith(b"rw-s"):
                yield os.fsdecode(b"".join(name).strip())


def _logging() -> "Iterator[str]":
    """``logging.basicConfig`` of a script does nothing once the root logger has a handler."""
    root = getattr(sys.modules.get("logging"), "root", None)
    if root is not None:
        if root.level != 30:  # WARNING, as logging itself has it
            yield "level %d" % root.level
        yield from ("%s %d" % (type(each).__name__, id(each)) for each in root.handlers)


def _signal_handlers() -> "Iterator[str]":
    for number in signal.valid_signals():
        yield "%d: %r" % (number, signal.getsignal(number))


def _interpreter() -> "Iterator[str]":
    yield "recursion limit %d" % sys.getrecursionlimit()
    yield "excepthook %d" % id(sys.excepthook)
    umask = os.umask(0o22)
    os.umask(umask)
    yield "umask %o" % umask


def _children() -> "Iterator[str]":
    for task in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/children" % task) as children:
                yield from children.read().split()
        except OSError:  # a kernel that does not tell
            return
