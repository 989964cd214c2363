"""Turns a fork of the fork server into a worker like one in a fresh interpreter. The module
supports CPython 3.8 and later.

``Worker(…)`` gives the process the command line, streams and environment of a worker. ``run()``
runs the script in the real ``__main__`` and then returns, so that the interpreter ends as usual.
"""

import atexit
import ctypes
import gc
import io
import json
import os
import runpy
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: What tools read of a worker in /proc/<pid>/environ.
_SHOWN = (_ERROR_FILE, "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def bind(parent: int) -> None:
    """Let the kernel end this process when ``parent`` ends; exit immediately if ``parent`` has
    ended.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt() -> None:
    """Make this process the parent of processes that workers leave behind, so that they can be
    found.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


class Shown:
    """The command line of this process and one environment variable, as the kernel shows them.

    The kernel shows the text that both had when the process started. The agent made the last
    argument and the last variable long enough to overwrite them with other text.
    """

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as stat:
            content = stat.read()
        fields = content[content.rindex(b")") + 2 :].split()
        begin, end, variables, last = (int(field) for field in fields[45:49])
        self.arguments = (begin, end - begin)
        text = ctypes.string_at(variables, last - variables)
        # The last one: what comes before may end alike, or speak of it.
        at = text.rfind(b"\0" + _ERROR_FILE.encode() + b"=") + len(_ERROR_FILE) + 2
        self.variable = (variables + at, text.index(b"\0", at) - at)
        os.environ.pop(_ERROR_FILE, None)

    def show(self, title: str, environment: "dict[str, str]") -> None:
        """Show a command line, and the environment variables that identify a worker."""
        # An end that is no NUL tells the kernel to show one string up to the first NUL.
        at, room = self.arguments
        words = os.fsencode(title)[: room - 2]
        ctypes.memmove(at, words + bytes(room - 1 - len(words)) + b" ", room)
        at, room = self.variable
        known = [os.fsencode(environment[n]) for n in _SHOWN[:1] if n in environment]
        known += [
            os.fsencode("%s=%s" % (n, environment[n])) for n in _SHOWN[1:] if n in environment
        ]
        values = b"\0".join(known)[:room]
        ctypes.memmove(at, values + bytes(room - len(values)), room)


class ScriptModule:
    """The ``__main__`` module in which a script will run."""

    def __init__(
        self,
        names: "dict[str, Any]",
        fresh: "dict[str, Any]",
        shown: Shown,
        standing: "frozenset[str]",
    ) -> None:
        #: The names of the module itself, and those that it has before its first line.
        self.names, self.fresh, self.shown = names, fresh, shown
        #: Modules that every interpreter has before its script.
        self.standing = standing
        #: The environment before anything was imported.
        self.before = dict(os.environ)
        #: Which libraries were imported ahead, as ``stages.Stages``; None: none was.
        self.stages: "Any" = None
        #: Renew what a fork shares with others and a fresh interpreter makes for itself.
        self.renew: "Callable[[], None]" = lambda: None
        #: Print what imports printed before the fork.
        self.print: "Callable[[], None]" = lambda: None
        self.ending: "Any" = sys.modules["_brain_ending"].Ending()
        atexit.register(self.ending.last)  # before all others, so that it is called after them


class Worker:
    """One worker, as the agent's request ``spec`` describes it."""

    def __init__(self, place: ScriptModule, spec: "dict[str, Any]", fds: "list[int]") -> None:
        self.place, self.spec = place, spec
        try:
            self._enter(fds)
        except BaseException as cannot:  # noqa: BLE001 - there is no caller above to tell
            os.write(2, ("brain: the worker cannot start: %r\n" % (cannot,)).encode())
            os._exit(126)

    def _enter(self, fds: "list[int]") -> None:
        spec, environment = self.spec, self.spec["environment"]
        if os.getsid(0) != os.getpid():
            os.setsid()
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
            os.close(fd)
        for fd in spec["closed"]:
            os.close(fd)
        os.chdir(spec["directory"])
        self.place.shown.show(" ".join(spec["argv"]), environment)
        if spec["kind"] == "exec":
            execute(spec["argv"], environment)
        settings = sys.modules["_brain_settings"]
        self.imported = settings.replace_environment(environment, self.place.before)
        self.place.renew()
        self.place.print()
        _renew_streams()
        sys.argv = [spec["target"], *spec["arguments"]]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(spec["argv"])

    def run(self) -> None:
        """Run the script to its end in ``__main__``; the interpreter reports its errors."""
        shadows, first = sys.modules["_brain_shadows"], self.spec["first"]
        own = () if first is None else shadows.modules_in(first)  # before a gate hears us look
        config = begin()
        shadows.give_way(own, self.place.standing)
        names, ending = self.place.names, self.place.ending
        names.clear()
        names.update(self.place.fresh)
        ending.begin()
        settings = sys.modules["_brain_settings"]
        comparison = settings.begin(self.place, self.spec, self.imported, config)
        try:
            getattr(self, "_" + self.spec["kind"])(names)
            end()
        except SystemExit as left:
            if sys.modules["_brain_ending"].exit_status(left.code) == 0:
                end()
            else:
                failing()
                ending.failed(left.code)
            raise
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):  # of which the interpreter dies by signal
                failing()
                ending.failed(1)
                raised(error)
            sys.modules["_brain_ending"].report_without_us(ending)
            raise
        finally:
            comparison.end()
            if not ending.code:
                # What was frozen before the fork, ``__main__`` too, is collected as it ends.
                gc.unfreeze()

    def _script(self, names: "dict[str, Any]") -> None:
        script = self.spec["target"]
        file = os.path.join(os.getcwd(), script) if sys.version_info >= (3, 9) else script
        if _importable(script):  # a directory or an archive with a __main__ in it
            sys.path.insert(0, file)
            _forget_file(names)
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            return
        if not _safe_path():
            sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
        code = _compiled(script, file)
        names["__file__"] = file
        names["__loader__"] = type(names["__loader__"])("__main__", file)
        exec(code, names)

    def _module(self, names: "dict[str, Any]") -> None:
        if not _safe_path():
            sys.path.insert(0, os.getcwd())
        _forget_file(names)
        sys.argv[0] = "-m"
        runpy._run_module_as_main(self.spec["target"])  # type: ignore[attr-defined]

    def _command(self, names: "dict[str, Any]") -> None:
        if not _safe_path():
            sys.path.insert(0, "")
        _forget_file(names)
        sys.argv[0] = "-c"
        exec(compile(self.spec["target"] + "\n", "<string>", "exec", dont_inherit=True), names)


def pose(place: ScriptModule, spec: "dict[str, Any]") -> None:
    """Set the worker's command line and ``__main__`` before the first import."""
    sys.argv = [spec["target"], *spec["arguments"]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(spec["argv"])
    if spec["kind"] == "script":
        place.names["__file__"] = os.path.join(os.getcwd(), spec["target"])
        return
    _forget_file(place.names)
    sys.argv[0] = "-c"
    if spec["kind"] == "module":
        parts = os.path.join(spec["first"] or "", *spec["target"].split("."))
        paths = [parts + ".py", os.path.join(parts, "__main__.py")]
        sys.argv[0] = next(filter(os.path.isfile, paths), "-m")
        if sys.argv[0] != "-m":
            place.names["__file__"] = sys.argv[0]


def begin() -> "dict[str, Any] | None":
    """Start the launcher's code that stays in the worker, as ``path/sitecustomize.py`` does in a
    fresh interpreter. Return the parsed BRAIN_WORKER; None if it is missing or cannot be parsed.
    """
    text = os.environ.pop("BRAIN_WORKER", None)
    if text is None:
        return None
    bootstrap = sys.modules["_brain_bootstrap"]
    config = bootstrap.quietly(json.loads, text)
    if config:
        bootstrap.begin(config)
    return config or None


def failing() -> None:
    """Inform the other workers of this world that this worker is about to end."""
    if "_brain_bootstrap" in sys.modules:
        sys.modules["_brain_bootstrap"].failing()


def raised(error: BaseException) -> None:
    """Store the script's exception."""
    if "_brain_bootstrap" in sys.modules:
        sys.modules["_brain_bootstrap"].raised(error)


def end() -> None:
    """Run the launcher's hooks for the script's end."""
    if "_brain_bootstrap" in sys.modules:
        sys.modules["_brain_bootstrap"].end()


def execute(argv: "list[str]", environment: "dict[str, str]") -> "NoReturn":
    """Replace this process with another program, which is found as a shell would find it."""
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as cannot:
        os.write(2, os.fsencode("%s: %s\n" % (argv[0], cannot.strerror)))
        os._exit(127 if isinstance(cannot, FileNotFoundError) else 126)


def _renew_streams() -> None:
    """Make the standard streams as the interpreter does, for their present descriptors."""
    sys.stdin = sys.__stdin__ = _stream(0, "<stdin>", sys.__stdin__)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "<stdout>", sys.__stdout__)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "<stderr>", sys.__stderr__)  # type: ignore[misc]


def _stream(fd: int, name: str, like: "Any") -> "Any":
    mode, unbuffered = ("wb", like.write_through) if fd else ("rb", False)
    try:
        opened: "Any" = io.open(fd, mode, 0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    except OSError:  # it is closed
        return None
    (opened if unbuffered else opened.raw).name = name
    made = io.TextIOWrapper(
        opened,
        encoding=like.encoding,
        errors=like.errors,
        newline=None if fd == 0 else "\n",
        line_buffering=not like.write_through and (os.isatty(fd) or fd == 2),
        write_through=like.write_through,
    )
    made.mode = mode[0]  # type: ignore[misc]
    return made


def _safe_path() -> bool:
    """True if the script's directory is not on the module search path (-I, -P)."""
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))


def _importable(script: str) -> bool:
    import pkgutil

    return pkgutil.get_importer(script) is not None


def _forget_file(names: "dict[str, Any]") -> None:
    """Return ``__main__`` as an interpreter without a script makes it."""
    for name in ("__file__", "__cached__"):
        names.pop(name, None)
    names["__loader__"] = sys.__loader__


def _compiled(script: str, file: str) -> "Any":
    try:
        with io.open_code(script) as opened:
            source = opened.read()
    except OSError as cannot:
        said = "%s: can't open file %r: [Errno %d] %s\n"
        if sys.stderr is not None:
            sys.stderr.write(said % (sys.executable, file, cannot.errno, cannot.strerror))
        raise SystemExit(2) from None
    if script.endswith(".pyc"):
        import marshal

        return marshal.loads(source[16:])
    return compile(source, file, "exec", dont_inherit=True)
