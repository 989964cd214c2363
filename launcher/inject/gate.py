"""The gate at which a prepared worker waits for its world before it does anything that other
processes would notice.

A worker that is started before its world exists builds its model and reads its data while the old
world still trains. The worker waits before the first of these: making a process group, initialising
CUDA, an optimizer step, the end of the script, and any access to things that the old world may
still change or must not lose (looking at its checkpoints or at files that changed since the job
began, writing, listening). Waiting too early costs only time, so a worker waits if it is in doubt.
This module uses only the standard library and supports CPython 3.8 and later.
"""

import functools
import json
import mmap
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

_GATE, _WAITING = slice(64, 72), slice(72, 80)
_ZERO, _ONE = bytes(8), (1).to_bytes(8, "little")
_POLL_SECONDS = 0.002
#: Clocks of file servers are that much apart at most.
_SKEW_SECONDS = 60.0
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NAMELESS = getattr(os, "O_TMPFILE", -1)
_ALWAYS = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.")
_KERNEL = ("/proc/", "/sys/", "/dev/")
_METADATA = ("/importlib/metadata", "/importlib_metadata/")
_CODE = (".py", ".pyc", ".so", ".pth", ".egg-link")

_gate: "Gate | None" = None


def close(config: "dict[str, Any]") -> None:
    """Install the gate if the control file requests it; ``config`` is the parsed BRAIN_WORKER."""
    global _gate
    with open(config["control"], "r+b") as file:
        control = mmap.mmap(file.fileno(), 0)
    if control[_GATE] != _ZERO:
        _gate = Gate(config, control)
        _gate.install()


def at_end() -> None:
    """Wait for the world at the script's end."""
    if _gate is not None:
        _gate.wait()


class Gate:
    """The gate that holds one worker until the agent opens it."""

    def __init__(self, config: "dict[str, Any]", control: mmap.mmap) -> None:
        self.config, self.control, self.pid = config, control, os.getpid()
        self.open, self.told = False, False
        self.undo: "list[Callable[[], Any]]" = []
        self.since = config.get("since", 0.0) - _SKEW_SECONDS
        saved = [config.get("checkpoint"), *config.get("checkpoints", ())]
        self.known = {os.path.abspath(path) for path in saved if path}
        self.around = {os.path.dirname(path) for path in self.known}
        places = [os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")]
        self.caches = tuple(os.path.abspath(place) + os.sep for place in places)
        self.temporary = tuple(
            os.path.abspath(place) + os.sep
            for place in (os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp")
        )
        self.stat = os.stat
        #: Temporary files and directories of this process.
        self.made: "set[str]" = set()

    def install(self) -> None:
        """Install the gate's hooks on each call by which the script could affect the old world."""
        sys.addaudithook(self.heard)
        for name in ("stat", "lstat", "access"):
            self._replace(os, name, self._looking(getattr(os, name)))
        finder = _Finder(
            {"torch.distributed.distributed_c10d": self._groups, "torch.cuda": self._cuda}
        )
        finder.actions.update({"torch.optim.optimizer": self._steps, "safetensors": self._tensors})
        for name, act in finder.actions.items():
            if name in sys.modules:
                act(sys.modules[name])
        sys.meta_path.insert(0, finder)
        self.undo.append(lambda: sys.meta_path.remove(finder))

    def wait(self) -> None:
        """Wait until the agent opens the gate; every thread that reaches the gate waits."""
        if self.open or os.getpid() != self.pid:
            return
        if not self.told:
            self.told = True
            self.control[_WAITING] = _ONE
            self._tell()
        while self.control[_GATE] != _ZERO:
            time.sleep(_POLL_SECONDS)
        if not self.open:
            self.open = True
            self.control[_WAITING] = _ZERO
            for undo in self.undo:
                undo()

    def _tell(self) -> None:
        environ, config = os.environ, self.config
        event = {"v": 1, "epoch": config["epoch"], "event": "gated"}
        event["rank"] = int(environ.get("RANK", 0))
        event["local_rank"] = int(environ.get("LOCAL_RANK", 0))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
                telling.setblocking(False)
                telling.sendto(json.dumps(event).encode(), config["agent"])
        except OSError:  # the agent sees the control file, too
            return

    # --- what the script does --------------------------------------------------------------

    def heard(self, event: str, args: "tuple[Any, ...]") -> None:
        """Handle an audit event. The hook cannot be removed, so it does almost nothing once the
        gate is open.
        """
        if self.open:
            return
        try:
            felt = self._felt(event, args)
        except Exception:  # noqa: BLE001 - a path that is none, for example: the call says so itself
            return
        if felt:
            self.wait()

    def _felt(self, event: str, args: "tuple[Any, ...]") -> bool:
        if event == "open":
            path, _, flags = args
            return not isinstance(path, int) and self._opened(_absolute(path), flags or 0)
        if event in ("os.listdir", "os.scandir"):
            return not isinstance(args[0], int) and self._listed(_absolute(args[0] or "."))
        if event == "glob.glob":
            return self._listed(_absolute(args[0]).split("*")[0].rstrip(os.sep))
        if event == "socket.bind":
            address = args[1]
            return isinstance(address, tuple) and address[1] != 0
        if event == "os.mkdir":
            self._makes(_absolute(args[0]))
            return False
        if not event.startswith(_ALWAYS):
            return False
        path = _absolute(args[0])
        # An import renames the code that it compiled.
        return "__pycache__" not in path and not self._ours(path)

    def _opened(self, path: str, flags: int) -> bool:
        if path.startswith(_KERNEL) or path.startswith(self.caches) or "__pycache__" in path:
            return False
        if flags & _WRITES:
            # What names a directory has an opener of its own, which is heard as well.
            if flags & _NAMELESS == _NAMELESS or self._is_directory(path):
                return False
            return not self._ours(path) and not self._makes(path)
        return not path.endswith(_CODE) and (self._near(path) or self._changed(path))

    def _listed(self, path: str) -> bool:
        caller = sys._getframe(3).f_code.co_filename  # _felt, heard, and whoever lists
        # Libraries that look for their versions or plug-ins list all of sys.path.
        if caller.startswith("<frozen importlib") or any(m in caller for m in _METADATA):
            return False
        if path.startswith(_KERNEL):
            return False
        return path in self.around or self._near(path) or self._changed(path)

    def _near(self, path: str) -> bool:
        """True if ``path`` is a known checkpoint, inside one, or beside one."""
        above = os.path.dirname(path)
        inside = any(path.startswith(known + os.sep) for known in self.known)
        return path in self.known or above in self.around or inside

    def _changed(self, path: str) -> bool:
        """True if ``path`` changed since the job began, or may still appear."""
        try:
            return bool(self.stat(path).st_mtime >= self.since)
        except OSError:
            return self._may_appear(path)

    def _may_appear(self, path: str) -> bool:
        above = os.path.dirname(path)
        if above + os.sep in self.temporary:  # something new is there at any time
            return False
        try:
            return bool(self.stat(above).st_mtime >= self.since)
        except OSError:
            return False

    def _is_directory(self, path: str) -> bool:
        try:
            return _is_directory(self.stat(path).st_mode)
        except OSError:
            return False

    def _makes(self, path: str) -> bool:
        """True if ``path`` is a new file in a temporary directory, which no other process can
        know.
        """
        near = self._near(path) or path.startswith(os.getcwd() + os.sep)
        new = not near and path.startswith(self.temporary)
        try:
            if new:
                self.stat(path)
        except OSError:
            self.made.add(path)
            return True
        return False

    def _ours(self, path: str) -> bool:
        """True if this process has made ``path``, or a directory above it."""
        while path not in self.made and path != os.path.dirname(path):
            path = os.path.dirname(path)
        return path in self.made

    def _looking(self, original: "Any") -> "Any":
        @functools.wraps(original)
        def look(path: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            if not self.open and not isinstance(path, int):
                try:
                    absolute = _absolute(path)
                    code = absolute.endswith(_CODE) or absolute.startswith(_KERNEL)
                    wait = not code and absolute not in self.around and self._seen(absolute)
                except Exception:  # noqa: BLE001 - a path that is none: the call says so itself
                    wait = False
                if wait:
                    self.wait()
            return original(path, *args, **kwargs)

        return look

    def _seen(self, path: str) -> bool:
        """True if a later look at ``path`` may give another result."""
        if self._near(path):
            return True
        try:
            found = self.stat(path)
        except OSError:
            return self._may_appear(path)
        # A directory that is there stays there.
        return found.st_mtime >= self.since and not _is_directory(found.st_mode)

    # --- what it imports -------------------------------------------------------------------

    def _replace(self, module: "Any", name: str, instead: "Any") -> None:
        original = getattr(module, name)
        setattr(module, name, instead)
        self.undo.append(lambda: setattr(module, name, original))

    def _before(self, module: "ModuleType", name: str) -> None:
        original = getattr(module, name, None)
        if original is None:  # this torch does it otherwise, and no other moment can be told
            return self.wait()

        @functools.wraps(original)
        def first(*args: "Any", **kwargs: "Any") -> "Any":
            self.wait()
            return original(*args, **kwargs)

        self._replace(module, name, first)

    def _groups(self, module: "ModuleType") -> None:
        # Looked up as they are called, by whatever name the caller knows init_process_group.
        for name in ("rendezvous", "_new_process_group_helper"):
            self._before(module, name)

    def _cuda(self, module: "ModuleType") -> None:
        self._before(module, "_lazy_init")

    def _tensors(self, module: "ModuleType") -> None:
        for holder in ("safetensors", "safetensors.torch", "safetensors.numpy"):
            if hasattr(sys.modules.get(holder), "safe_open"):
                self._before(sys.modules[holder], "safe_open")

    def _steps(self, module: "ModuleType") -> None:
        def brain_gate(*_: "Any") -> None:
            self.wait()

        brain_gate._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch's mark
        register = getattr(module, "register_optimizer_step_pre_hook", None)
        if register is None:
            return self.wait()
        self.undo.append(register(brain_gate).remove)


class _Finder:
    """Installs the gate in modules of interest after their code has run."""

    def __init__(self, actions: "dict[str, Callable[[ModuleType], None]]") -> None:
        self.actions = actions

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Let the other finders find the module, and install the gate after its code has run."""
        if name not in self.actions:
            return None
        # Those before have been asked; another that acts likewise must not ask us in turn.
        behind = sys.meta_path.index(self) + 1 if self in sys.meta_path else len(sys.meta_path)
        for finder in sys.meta_path[behind:]:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._follow(name, spec.loader)
                return spec
        return None

    def _follow(self, name: str, loader: "Any") -> None:
        execute = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            self.actions[name](module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader without room for it
            return


def _absolute(path: "Any") -> str:
    return os.path.abspath(os.fsdecode(path))


def _is_directory(mode: int) -> bool:
    return mode & 0o170000 == 0o040000
