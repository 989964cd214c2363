"""Compares the settings that libraries read at their import with the script's settings.

The fork server imported libraries with the settings that it knew. A script may change settings in
any way before its own imports. So the libraries stay out of ``sys.modules`` until the script
imports them, stage by stage (``stages.py``). Then the script's settings are compared with the
server's. The first import compares the settings that C code may read (``NAMES``), and each import
compares the variables that were read up to the stage of that library. If they differ, the worker
starts again in a fresh interpreter, provided that no other process can have noticed its first run.
Otherwise it continues and prints a warning. The agent stores which of the two happened. This module
uses only the standard library and supports CPython 3.8 and later.
"""

import fcntl
import importlib.util
import json
import os
import signal
import socket
import sys
from functools import partial
from operator import is_

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Collection

#: The one of this worker, for its report of imports.
current: "Comparison | None" = None
#: Begin the names of such settings.
NAMES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "TORCH_", "PYTORCH_")
#: torch reads it at every call, so it may be made at any time; Lightning makes it at its import.
_READ_LATE = "PYTORCH_NVML_BASED_CUDA_CHECK"
#: Libraries that read them; without any of these nothing has to be compared.
READERS = frozenset(("torch", "numpy", "numexpr", "mkl"))
#: Names of these would make the server another interpreter, so it is not given them.
_OF_INTERPRETERS = ("PYTHON", "LD_", "HOME", "PATH")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Events after which somebody may have noticed that the script ran.
_NOTICED = (
    *("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.mkdir"),
    *("os.chmod", "os.chown", "os.utime", "os.fork", "os.posix_spawn", "os.spawn", "os.system"),
    *("os.exec", "os.kill", "os.setxattr", "os.removexattr", "subprocess.", "shutil."),
    *("socket.__new__", "socket.bind", "socket.connect"),
    *("builtins.input", "pty.", "sqlite3.", "syslog.", "resource.setrlimit", "fcntl."),
)
_CACHE = os.sep + "__pycache__"


def chosen(
    environ: "Any", read: "Collection[str]" = (), prefixes: "tuple[str, ...]" = NAMES
) -> "dict[str, str]":
    """Return the settings in an environment: variables that were ``read``, and those whose names
    begin with a prefix.

    >>> own = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1", "HOME": "/", "A": ""}
    >>> chosen(own), chosen(own, {"A"}, ())
    ({'OMP_NUM_THREADS': '1'}, {'A': ''})
    """
    named = {n: value for n, value in environ.items() if n in read or n.startswith(prefixes)}
    named.pop(_READ_LATE, None)
    return named


def replace_environment(
    environment: "dict[str, str]", before: "dict[str, str]"
) -> "frozenset[str]":
    """Apply to the worker's environment the changes that imports made to the server's environment
    since ``before``; return the names.
    """
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    removed = [name for name in before if name not in os.environ]
    ours = json.loads(environment.get("BRAIN_WORKER", "{}"))
    wanted = dict(environment)
    if ours:
        wanted.pop("PYTHONPATH", None)  # with our directory in it, which nobody needs here
        if ours.get("pythonpath") is not None:
            wanted["PYTHONPATH"] = ours["pythonpath"]
    os.environ.clear()
    os.environ.update(wanted)
    os.environ.update(changed)
    for name in removed:
        os.environ.pop(name, None)
    return frozenset([*changed, *removed])


class Comparison:
    """The comparison that a worker makes when its script imports libraries."""

    def __init__(
        self,
        known: "frozenset[str]",
        ahead: "dict[str, str]",
        imported: "frozenset[str]",
        stages: "Any",
    ) -> None:
        """``known``: modules that an interpreter begins with; ``ahead``: the server's environment
        before it imported anything; ``imported``: names that libraries changed in it; ``stages``:
        as in ``become.ScriptModule``."""
        self.ahead, self.given, self.imported = ahead, dict(os.environ), imported
        self.stages, self.stage = stages, 0
        #: The script's own at its imports so far; None until the first.
        self.own: "dict[str, str] | None" = None
        self.pid, self.over = os.getpid(), False
        #: Why it cannot start again, in words that follow "since".
        self.noticed = ""
        self.specs: "dict[str, Any]" = {}
        self.hook: "Any" = None
        self.hidden = {n: m for n, m in list(sys.modules.items()) if _installed(n, m, known)}
        if stages is None or not (READERS & self.hidden.keys() or any(stages.reads)):
            self.hidden = {}
        self.waiting = set(self.hidden)
        #: Libraries in the order in which the script imported them.
        self.asked: "list[str]" = []

    def begin(
        self,
        again: "Callable[[], Any]",
        report: "Callable[[dict[str, Any]], bool]",
        *,
        known: bool,
    ) -> None:
        """Wait for the first import. ``again`` starts the worker again. ``report`` sends the result
        to the agent, and returns True if this worker should print it. ``known`` means that an
        earlier run of the script changed no settings; then events that would rule out another start
        are not watched.
        """
        if not self.hidden:
            return
        self.again, self.report = again, report
        if known:
            self.noticed = "an earlier run of the script changed no settings"
        else:
            self._listen()
        for name in self.hidden:
            del sys.modules[name]
        sys.meta_path.insert(0, self)

    def _listen(self) -> None:
        self.ignored = _ignored()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self.umask = os.umask(0o22)
        os.umask(self.umask)
        self.cores, self.lasting = _cores(), _lasting()
        self.cached, self.written, self.read = 0, _written(), _read()
        # An audit hook stays for ever: this one becomes a comparison in C, for Python itself calls
        # it at every id().
        self.hook = partial(self.heard)
        sys.addaudithook(self.hook)

    def end(self) -> None:
        """Make everything that was imported in advance visible again."""
        if self.over or not self.hidden:
            return
        self.over = True
        self._bring_back(self.waiting)
        self._listen_no_more()
        sys.meta_path[:] = [each for each in sys.meta_path if each is not self]

    def _bring_back(self, names: "Collection[str]") -> None:
        for name in list(names):
            sys.modules.setdefault(name, self.hidden[name])
        self.waiting = self.waiting.difference(names)

    def _listen_no_more(self) -> None:
        if self.hook is not None:
            self.hook.__setstate__((is_, (), {}, None))
            self.hook = None

    def heard(self, event: str, args: "tuple[Any, ...]") -> None:
        """Handle an audit event."""
        if self.over or self.noticed:
            return
        if event == "open":
            path, _, flags = args
            if not isinstance(path, int) and (flags or 0) & _WRITES and _CACHE not in _text(path):
                self.noticed = "the script had already opened %s for writing" % _text(path)
        elif event.startswith(_NOTICED):
            if args and _CACHE in _text(args[0]):
                self._compiled(event, args[0])
            else:
                self.noticed = "the script had already called %s" % event

    def _compiled(self, event: str, path: "Any") -> None:
        if event == "os.rename":
            try:
                self.cached += os.stat(path).st_size
            except OSError:
                return

    # --- the import ------------------------------------------------------------------------------

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Find a library that was imported in advance; settings are compared when it is loaded, not
        here.
        """
        if name not in self.waiting:
            return None
        made: "Any" = importlib.util.spec_from_loader(name, self)  # type: ignore[arg-type]
        was: "Any" = self.hidden[name].__spec__
        made.origin, made.has_location = was.origin, was.has_location
        made.submodule_search_locations = was.submodule_search_locations
        return made

    def create_module(self, spec: "Any") -> "ModuleType":
        module = self.hidden[spec.name]
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: "ModuleType") -> None:
        """Compare the settings, because the script now imports a library."""
        name = module.__name__
        module.__spec__ = self.specs[name]
        self.asked.append(name)
        before, self.stage = self.stage, self.stages.up_to(name, self.stage)
        try:
            self.compare(name, range(before, self.stage))
        except Exception as failed:  # noqa: BLE001 - an import must not fail through us
            _tell("brain: settings are not compared: %r\n" % (failed,))
        finally:
            # Those of later stages stay away: the script may yet make settings for them.
            of = self.stages.of
            self._bring_back([n for n in self.waiting if n == name or of.get(n, 0) < self.stage])
            if not self.waiting:
                self.end()

    def compare(self, library: str, stages: "Collection[int]") -> None:
        """Start again, or print the difference, if the script's settings differ from the
        server's.
        """
        if self.over or os.getpid() != self.pid:
            return
        read, prefixes = self.stages.read_in(stages), NAMES if self.own is None else ()
        now, ahead, given = (
            chosen(each, read, prefixes) for each in (os.environ, self.ahead, self.given)
        )
        changed = {n: now[n] for n in now if given.get(n) != now[n]}
        self.own = dict(self.own or {}, **changed)
        # What libraries change themselves as they are imported is nothing of the script's.
        theirs = {n for n in self.imported if now.get(n) == given.get(n)}
        every = (now.keys() | ahead.keys()) - theirs
        names = sorted(name for name in every if now.get(name) != ahead.get(name))
        noticed = self.noticed = self.noticed or self._noticed_without_events()
        if noticed:
            self._listen_no_more()
        if not names:
            return
        unfit = given.keys() - now or [n for n in self.own if n.startswith(_OF_INTERPRETERS)]
        told = {"environment": None if unfit else self.own, "again": not noticed}
        # What is heard from here on is the report.
        if self.report(dict(told, names=names)) and noticed:
            _say(names[0], library, ahead.get(names[0]), now.get(names[0]), noticed)
        if not noticed:
            self._restore()
            self.again()

    def _noticed_without_events(self) -> str:
        written, read = _written(), _read()
        if self.written is None or written is None or written != self.written + self.cached:
            return "the script had already written output"
        if self.lasting != _lasting():
            return "the script had already changed its priority or set a timer"
        return "" if read == self.read else "the script had already read its input"

    def _restore(self) -> None:
        """Restore the inherited settings of the process to the values that this worker found."""
        os.umask(self.umask)
        if self.cores is not None:
            os.sched_setaffinity(0, self.cores)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        for number in _ignored() - self.ignored:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):  # not the main thread, or not ours to set
                continue


def begin(
    place: "Any",
    spec: "dict[str, Any]",
    imported: "frozenset[str]",
    config: "dict[str, Any] | None",
) -> Comparison:
    """Start the comparison in this worker, and return it; ``place`` and ``spec`` are the values
    given to ``become.Worker``.

    ``config`` is the parsed BRAIN_WORKER; without it, no agent can get the result.
    """
    global current
    current = Comparison(place.standing, place.before, imported, place.stages)

    def again() -> None:
        os.chdir(spec["directory"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])

    if config:
        current.begin(again, reporter(config), known=bool(spec.get("sets_nothing")))
    return current


def _cores() -> "set[int] | None":
    """Return the processors that this process may run on; None if the system does not tell."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def _lasting() -> "tuple[object, ...]":
    """Return the settings that a new program in this process inherits and cannot undo."""
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    set_ones = [timer for timer in timers if signal.getitimer(timer) != (0.0, 0.0)]
    return os.getpriority(os.PRIO_PROCESS, 0), *set_ones


def _ignored() -> "set[int]":
    return {each for each in signal.valid_signals() if signal.getsignal(each) == signal.SIG_IGN}


def _installed(name: str, module: "Any", known: "frozenset[str]") -> bool:
    """True if ``name`` is an installed library that was imported ahead, not a part of one."""
    if "." in name or name in known or name.startswith("_brain_"):
        return False
    spec: "Any" = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    if not isinstance(origin, str) or spec.name != name:
        return False
    return "site-packages" in origin or "dist-packages" in origin


def _written() -> "int | None":
    """Return the bytes that this process has written anywhere; None if the system does not count
    them.
    """
    try:
        with open("/proc/self/io") as file:
            return int(dict(line.split(": ") for line in file)["wchar"])
    except (OSError, ValueError, KeyError):
        return None


def _read() -> int:
    """Return the bytes read from standard input, or those that wait; 0 if it cannot be read."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        pass
    try:
        waiting = fcntl.ioctl(0, 0x541B, bytes(4))  # FIONREAD
        return int.from_bytes(waiting, sys.byteorder)
    except OSError:
        return 0


def _text(path: "Any") -> str:
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""


def _say(name: str, library: str, ahead: "str | None", own: "str | None", noticed: str) -> None:
    with_ours = "without it" if ahead is None else "with %s" % ahead
    its = "%s=%s was set" % (name, own) if own is not None else "%s was removed" % name
    said = (
        "brain: %s before the script imports %s, but Brain had already imported that library %s; "
        "because %s, this run continues without the change. At the script's next start, Brain "
        "imports no library ahead\n"
    )
    _tell(said % (its, library, with_ours, noticed))


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (OSError, ValueError, AttributeError):  # full or closed: the script must run
        return


def reporter(config: "dict[str, Any]") -> "Callable[[dict[str, Any]], bool]":
    """Build the function that reports to the agent in BRAIN_WORKER.

    The function returns True if no other worker of this world has reported the same result.
    """

    def report(told: "dict[str, Any]") -> bool:
        path = config["control"] + ".settings"
        with open(path + ".half", "w") as file:
            json.dump(told, file)
        os.replace(path + ".half", path)
        event = {"v": 1, "rank": int(os.environ.get("RANK", 0)), "epoch": config["epoch"]}
        event.update(event="settings", path=path, local_rank=int(os.environ.get("LOCAL_RANK", 0)))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
                telling.setblocking(False)
                telling.sendto(json.dumps(event).encode(), config["agent"])
            mark = os.path.join(os.path.dirname(path), "settings-said")
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        except OSError:  # it is not remembered, then
            return True
        return True

    return report
