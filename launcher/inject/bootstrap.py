"""The launcher's code that stays in a worker: it watches the lease, starts the probe, and records
imports.

It is loaded by path as ``_brain_bootstrap``: by ``path/sitecustomize.py`` in a fresh interpreter,
or by ``fork_server.py`` before it forks. It runs in the user's process, uses only the standard
library and supports CPython 3.8 and later. It never raises an exception: a failure costs telemetry,
not the job.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself stays unimported: the script may have a module of that name
    from types import ModuleType
    from typing import Any, Callable, Collection

#: Exit code of a worker whose lease ran out.
LEASE_OVER = 83
CONTROL_BYTES = 128
_LEASE, _FIRST_STEP, _ASKED = slice(16, 24), slice(56, 64), slice(112, 120)
_HELD = 120
_WATCH_SECONDS = 0.25
#: The real-time signal upon which a worker writes its stacks; the agent looks whether it is caught.
STACKS_SIGNAL_BELOW_MAX = 3
#: A descriptor above those that scripts expect to get, or to inherit.
_HIGH_FD = 512
#: Newest collectives of a flight recorder that are told.
_COLLECTIVES = 8
#: Settings that libraries read once, as they are imported.
SETTINGS = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "TORCH_", "PYTORCH_")


def begin(config: "dict[str, Any]") -> None:
    """Start those parts of the launcher in this process that the parsed BRAIN_WORKER requests."""
    held = quietly(hold_closed_streams) or []
    if config.get("control"):
        quietly(watch, config)
        quietly(register_stacks, config)
        _told.update(config)
    if config.get("memory"):
        quietly(start_shim, config)  # before the probe, which so sees what the script asked for
    if config.get("elastic"):
        quietly(tell_session, config)
    if config.get("probe"):
        quietly(start_probe, config)
        quietly(start_between_ranks)
    if config.get("gate"):
        quietly(close_gate, config)  # last: what of ours starts is nobody's to wait for
    for fd in held:
        os.close(fd)


def hold_closed_streams() -> "list[int]":
    """Open /dev/null for each closed standard stream, and return the descriptors. Otherwise the
    launcher's files would get the numbers of the closed streams, and the script's output would go
    to these files.
    """
    held = [os.open(os.devnull, os.O_RDWR)]
    while held[-1] <= 2:
        held.append(os.open(os.devnull, os.O_RDWR))
    os.close(held.pop())
    return held


def quietly(act: "Callable[..., Any]", *arguments: object) -> "Any":
    """Run one part of the launcher; a failure is printed and affects only that part."""
    try:
        return act(*arguments)
    except Exception as failed:  # noqa: BLE001 - whatever it is, the script must run
        _tell("brain: the worker goes on without %s: %r\n" % (act.__name__, failed))
        return None


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (OSError, ValueError, AttributeError):  # full or closed: the script must run
        return


def _late(name: str) -> "Any":
    """Return the launcher's own copy of a module of which the script may have another by now."""
    shadows = sys.modules.get("_brain_shadows")
    return __import__(name) if shadows is None else shadows.standard(name)


def give_way(directory: str, before: "Collection[str]") -> None:
    """In a fresh interpreter, remove the launcher's own modules, which the script must not see."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shadows.py")
    shadows = load("_brain_shadows", path)
    shadows.give_way(shadows.modules_in(directory), before)


#: What ``raised`` has to know: BRAIN_WORKER of this process, parsed.
_told: "dict[str, Any]" = {}


def register_stacks(config: "dict[str, Any]") -> None:
    """Let a signal write the stacks of all threads, even while a thread holds the interpreter's
    lock.
    """
    import faulthandler
    import fcntl
    import signal

    fd = os.open(config["control"] + ".stacks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    except OSError:  # fewer are allowed
        high = os.dup(fd)
    os.close(fd)
    number = int(signal.SIGRTMAX) - STACKS_SIGNAL_BELOW_MAX
    faulthandler.register(number, file=high, all_threads=True, chain=False)


def failing() -> None:
    """Inform peers that the script failed, before this process ends."""
    tell = getattr(sys.modules.get("_brain_elastic"), "failing", None)
    if tell is not None:
        quietly(tell)


def raised(error: BaseException) -> None:
    """Record when and why the script failed, so that the first failed rank can be found."""
    quietly(_note, error)


def _note(error: BaseException) -> None:
    import time

    json = _late("json")
    if not _told:
        return
    note = {"at_ns": time.monotonic_ns()}  # type: dict[str, Any]
    here = os.path.dirname(os.path.abspath(__file__))
    circumstances = load("_brain_circumstances", os.path.join(here, "circumstances.py"))
    note.update(circumstances.around(error, _told.get("probe"), _late))
    half = _told["control"] + ".raised.half"
    with open(half, "w", errors="backslashreplace") as file:
        json.dump(note, file)
    os.replace(half, _told["control"] + ".raised")


def note_uncaught() -> None:
    """In a fresh interpreter, record an uncaught exception of the script, and then print it."""
    shown = sys.excepthook

    def excepthook(kind: "Any", error: BaseException, trace: "Any") -> None:
        if not isinstance(error, KeyboardInterrupt):
            failing()
            raised(error)
        shown(kind, error, trace)

    # Both: a script that compares them, or goes back to the original, finds nothing changed.
    sys.excepthook = sys.__excepthook__ = excepthook


def load(name: str, path: str) -> "ModuleType":
    """Load the Python file at ``path``, and return it as a module with a ``name`` that no other
    code uses.

    Raises:
        ImportError: there is no Python file at ``path``.
    """
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("no Python file: " + path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def start_shim(config: "dict[str, Any]") -> None:
    """Store the path of the agent's shared memory. If the job requests it, route ``torch.save``
    through that memory.
    """
    told = type(sys)("_brain_memory")  # for launcher.checkpoint
    told.config = config  # type: ignore[attr-defined]  # it is nobody's module
    sys.modules["_brain_memory"] = told
    if not config["memory"].get("shim"):
        return
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.py")
    shim = sys.modules.get("_brain_shim") or load("_brain_shim", path)
    shim.start(config)


def tell_session(config: "dict[str, Any]") -> None:
    """Store the path at which the agent listens for sessions of launcher.elastic."""
    module = type(sys)("_brain_elastic")
    module.told = config["elastic"]  # type: ignore[attr-defined]  # it is nobody's module
    sys.modules["_brain_elastic"] = module


def start_between_ranks() -> None:
    """Work around torch's faults when ranks connect and disconnect."""
    for name in ("meeting", "parting"):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
        (sys.modules.get("_brain_" + name) or load("_brain_" + name, path)).begin()


def end() -> None:
    """Let a prepared worker wait for its world when its script ends with 0."""
    if "_brain_gate" in sys.modules:
        quietly(sys.modules["_brain_gate"].at_end)


def close_gate(config: "dict[str, Any]") -> None:
    """Hold a prepared worker before it does anything that other processes would notice."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gate.py")
    load("_brain_gate", path).close(config)


def start_probe(config: "dict[str, Any]") -> None:
    """Start the probe; a fork server has loaded it already."""
    probe = sys.modules.get("_brain_probe") or load("_brain_probe", config["probe"])
    probe.start(config)


def watch(config: "dict[str, Any]") -> None:
    """End or pause this process if the agent does not renew the lease in time. After the first
    step, report the script's imports to the agent, once.
    """
    import _thread
    import mmap
    import signal
    import time

    with open(config["control"], "r+b") as file:
        control = mmap.mmap(file.fileno(), 0)
    before = dict(os.environ)
    # Kept apart from the modules, whose names a script may give other meanings.
    clock, sleep, leave = time.monotonic_ns, time.sleep, os._exit
    send, own, stop = signal.pthread_kill, _thread.get_ident, signal.SIGSTOP
    hold = config.get("hold")

    def hold_still() -> None:
        # The interpreter's lock is not let go of in between, and the signal goes to this very
        # thread: no line of the script runs from the look at the lease until the agent has us go
        # on. One sent to the process may be taken by another thread, later.
        control[_HELD] = 1
        send(own(), stop)
        control[_HELD] = 0

    def watching() -> None:
        learn, recorded = config.get("learn"), False
        while True:
            until = int.from_bytes(control[_LEASE], "little")
            if until and clock() > until:
                if not hold:
                    leave(LEASE_OVER)
                hold_still()
                continue
            if learn and any(control[_FIRST_STEP]):
                learn = None
                quietly(tell_imports, config, before)
            if not recorded and any(control[_ASKED]):
                recorded = True
                quietly(write_flight, config)
            sleep(_WATCH_SECONDS)

    # No signal comes to this thread: a script may block one in all of its own and wait for it.
    before_it = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # Not ``threading``: the script shall find its own threads only.
    _thread.start_new_thread(watching, ())
    signal.pthread_sigmask(signal.SIG_SETMASK, before_it)


def write_flight(config: "dict[str, Any]") -> None:
    """Write the flight recorder's records of this rank's collectives, if torch's recorder is on."""
    json = _late("json")
    c10d = sys.modules.get("torch._C._distributed_c10d") or getattr(
        sys.modules.get("torch._C"), "_distributed_c10d", None
    )
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        said = json.loads(dump())
        said["entries"] = said.get("entries", [])[-_COLLECTIVES:]
        half = config["control"] + ".flight.half"
        with open(half, "w") as file:
            json.dump(said, file)
        os.replace(half, config["control"] + ".flight")
        return


def tell_imports(config: "dict[str, Any]", before: "dict[str, str]") -> None:
    """Write the file ``learn``, then announce it to the agent.

    The file contains the names of the libraries imported now, oldest first, and the settings that
    the script made.
    """
    json, socket = _late("json"), _late("socket")
    changed = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(SETTINGS) and before.get(name) != value
    }
    compared = getattr(sys.modules.get("_brain_settings"), "current", None)
    own = getattr(compared, "own", None)
    # What the script set after its imports is too late for libraries, and not to be known ahead.
    environment = changed if own is None else own
    # A library that was not imported ahead this time may have read them, and be so the next time.
    late = [n for n in os.environ if before.get(n) != os.environ.get(n) and n not in environment]
    exact = own is not None and not late
    found = libraries()
    asked = [n for n in getattr(compared, "asked", ()) if n in found]
    modules = list(dict.fromkeys([*asked, *found]))
    said = {"modules": modules, "environment": environment, "exact": exact}
    half = config["learn"] + ".half"
    with open(half, "w") as file:
        json.dump(said, file)
    os.replace(half, config["learn"])
    event = {"v": 1, "rank": 0, "local_rank": 0, "epoch": config["epoch"], "event": "learned"}
    datagram = json.dumps(dict(event, path=config["learn"])).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
        telling.setblocking(False)
        telling.sendto(datagram, config["agent"])


def libraries() -> "list[str]":
    """Return the imported modules of the standard library and of installed packages."""
    standard = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
    found = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if spec is None or spec.name != name or not isinstance(origin, str):
            continue
        if name.startswith(("_brain_", "__main__", "sitecustomize", "usercustomize")):
            continue
        installed = "site-packages" in origin or "dist-packages" in origin
        if origin in ("built-in", "frozen") or installed or origin.startswith(standard):
            found.append(name)
    return found
