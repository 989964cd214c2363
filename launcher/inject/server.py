"""The loop of a fork server, which imports modules and forks workers on request.

The fork server reaps an ended worker only once the agent knows that the worker has ended.
docs/reference/protocols.md describes its messages. This module supports CPython 3.8 and later.

The process never has a second thread, because a fork copies only the calling thread, but the locks
of all threads.
"""

import array
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
MESSAGE_BYTES = 1 << 20
#: Names of modules in one message.
NAMES = 1000
#: Seconds after which the agent hears of modules that left no trace.
TELL_SECONDS = 0.5
#: Seconds between two looks for orphans of workers that have ended here.
SWEEP_SECONDS = 10.0


def main(names: "dict[str, Any]") -> "Any":
    """Serve the agent; ``names`` is the namespace of ``__main__``. This returns only in workers."""
    _, fd, agent, _ = sys.argv
    load("ending")
    become = load("become")
    become.bind(int(agent))
    become.adopt()
    if "SLURM_STEP_ID" in os.environ:  # as in the reaper; workers inherit it
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if sys.path and os.path.abspath(sys.path[0] or ".") == HERE:
        del sys.path[0]
    kept = {name: value for name, value in names.items() if not name.startswith(("_path", "_s"))}
    for name in ("importlib", "os", "sys"):
        kept.pop(name, None)
    place = become.ScriptModule(names, dict(kept, __doc__=None), become.Shown(), names["_standing"])
    place.shown.show("brain: fork server", {})
    connection = socket.socket(fileno=int(fd))
    try:
        return Server(connection, place, become).serve()
    except (OSError, EOFError):
        os._exit(0)  # the agent is gone


#: What workers would otherwise compile once more each.
OURS = (
    *("bootstrap", "settings", "shadows", "meeting", "parting"),
    *("names", "places", "states", "copies", "shim"),
)


def load(name: str, path: "str | None" = None) -> "ModuleType":
    """Return a file of the launcher as a module whose name no script uses, or raise ImportError."""
    path = path or os.path.join(HERE, name + ".py")
    spec = importlib.util.spec_from_file_location("_brain_" + name, path)
    if spec is None or spec.loader is None:
        raise ImportError("no Python file: " + path)
    module = sys.modules["_brain_" + name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ranks, imports = load("ranks"), load("imports")


class Server:
    """One fork server, with its imports and workers, both finished and outstanding."""

    def __init__(self, connection: socket.socket, place: "Any", become: "ModuleType") -> None:
        self.connection, self.place, self.become = connection, place, become
        self.todo: "list[str]" = []
        self.loaded: "list[str]" = []
        self.failed: "dict[str, str]" = {}
        #: Modules that left no trace, as far as the agent has not heard of them, and when it did.
        self.proven: "list[str]" = []
        self.told_at = time.monotonic()
        #: Why nothing may be forked here any more.
        self.spoiled: "dict[str, str] | None" = None
        #: Why workers start by themselves: as ``ranks.py`` or ``torch_names.py`` says.
        self.lacks: "Any" = ranks.lacks()
        self.preparing = False
        self.workers: "set[int]" = set()
        self.generators: "Any" = None
        self.traces: "Any" = None
        self.unsafe: "Any" = None
        self.stages: "Any" = None
        self.printed: "Any" = None
        #: Modules in the script's own directory, and those of them that something stands for here.
        self.own: "frozenset[str]" = frozenset()
        #: Variables that differ between ranks here.
        self.of_ranks = ranks.PER_RANK
        self.hidden: "list[str]" = []

    def serve(self) -> "Any":
        """Answer messages, and import modules in between; this returns only in a forked worker."""
        while True:
            busy = self.preparing
            readable = select.select([self.connection], [], [], 0 if busy else SWEEP_SECONDS)[0]
            if readable:
                message, fds = receive(self.connection)
                worker = getattr(self, "do_" + message["do"])(message, fds)
                if worker is not None:
                    return worker
            elif self.preparing:
                self.prepare()
            else:
                self.sweep()

    def do_want(self, message: "dict[str, Any]", fds: "list[int]") -> None:
        """Store names of modules to import, before the message ``open`` starts the imports."""
        self.todo += message["modules"]

    def do_open(self, message: "dict[str, Any]", fds: "list[int]") -> None:
        """Import the wanted modules one by one, and the launcher's own modules that workers
        need.
        """
        spec = message.get("spec") or {}
        for ours in OURS:
            load(ours)
        if message.get("probe"):
            try:
                load("probe", message["probe"])
            except Exception:  # noqa: BLE001 - the worker tries again and says what is wrong
                sys.modules.pop("_brain_probe", None)
        if spec:
            self.become.pose(self.place, spec)
            self.of_ranks = ranks.PER_RANK.union(map(os.fsencode, spec["of_ranks"]))
        if self.lacks:
            self.spoiled = {"module": "site", "why": self.lacks["why"], "origin": ""}
        if message.get("pace"):
            sys.meta_path.insert(0, imports.Pacer(message["pace"]))
        if spec.get("first") is not None and self.todo:
            self.own = sys.modules["_brain_shadows"].modules_in(spec["first"])
            self.look_for_hidden("brain-run")
        # Before anybody can ask for a worker: it would import the same at the same time. What the
        # script is only believed to import, one world is not kept waiting for.
        for module in self.todo if message["sure"] else self.todo[:1]:
            if self.spoiled is not None:
                break
            self.bring(module)
        self.todo = [] if message["sure"] else self.todo[1:]
        self.preparing = True

    def do_fork(self, message: "dict[str, Any]", fds: "list[int]") -> "Any":
        """Make one worker; its standard streams are ``fds``."""
        # A world that has to start imports what else it needs; nobody shall do so beside it.
        self.todo = []
        if self.spoiled is not None:
            if self.preparing:
                self.prepare()  # the agent hears why before it hears of the refusal
            why = "%(module)s: %(why)s" % self.spoiled
            return self.answer(fds, {"say": "refused", "id": message["id"], "why": why})
        pid = self.fork()
        if pid:
            return self.forked(pid, message, fds)
        return self.become.Worker(self.place, message["spec"], fds)

    def do_park(self, message: "dict[str, Any]", fds: "list[int]") -> "Any":
        """Make one worker in advance: it imports its modules, and then waits at ``fds[0]`` for its
        specification.
        """
        pid = self.fork()
        if pid:
            return self.forked(pid, message, fds)
        waiting = socket.socket(fileno=fds[0])
        traces = load("traces")
        printed, spec = traces.Printed(), message["spec"]
        self.watch_environment(traces, ranks.PER_RANK.union(map(os.fsencode, spec["of_ranks"])))
        self.place.print, self.place.stages = printed.again, load("stages").Stages()
        self.become.pose(self.place, spec)
        for module in message["modules"]:
            self.place.stages.begin()
            try:
                with printed.importing():
                    imports.import_uncollected(module)
            except Exception:  # noqa: BLE001 - the script meets it itself, and tells it better
                pass
            self.place.stages.imported(module)
        traces.replace_content(os.environ._data.for_worker())  # type: ignore[attr-defined]
        shadows = sys.modules["_brain_shadows"]
        own = shadows.modules_in(spec["first"]) if spec["first"] is not None else ()
        if message["modules"] and shadows.hidden(own, self.place.standing):
            os._exit(0)  # a worker that starts by itself finds the script's
        lacks = self.lacks or (load("torch_names").lacks() if "torch" in sys.modules else None)
        if message.get("cuda") is not None:
            importlib.import_module("torch").zeros(1, device="cuda:%d" % message["cuda"])
        try:
            send(waiting, {"say": "parked", "id": message["id"], "lacks": lacks})
            told, streams = receive(waiting)
        except (OSError, EOFError):
            os._exit(0)
        waiting.close()
        return self.become.Worker(self.place, told["spec"], streams)

    def do_reap(self, message: "dict[str, Any]", fds: "list[int]") -> None:
        """Reap a worker whose end the agent knows; this frees its process id."""
        os.waitpid(message["pid"], 0)
        self.workers.discard(message["pid"])

    def do_tell(self, message: "dict[str, Any]", fds: "list[int]") -> None:
        """Report how a worker ended, because the kernel shows this only to the worker's parent."""
        ended = os.waitid(os.P_PID, message["pid"], os.WEXITED | os.WNOWAIT)
        assert ended is not None  # it was waited for
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self.answer(fds, {"say": "ended", "pid": message["pid"], "code": code})

    def do_count(self, message: "dict[str, Any]", fds: "list[int]") -> None:
        """Report whether any child still runs, including orphans of workers."""
        self.sweep()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return self.answer(fds, {"say": "counted", "children": False})
        return self.answer(fds, {"say": "counted", "children": True})

    def do_stop(self, message: "dict[str, Any]", fds: "list[int]") -> None:
        os._exit(0)

    def fork(self) -> int:
        gc.freeze()
        mine = os.getpid()
        pid = os.fork()
        if not pid:
            self.become.bind(mine)
            self.connection.close()
            if self.generators is not None:
                self.place.renew, self.place.print = self.generators.renew, self.printed.again
                self.place.stages = self.stages
                self.traces.end()
            sys.meta_path[:] = [
                each for each in sys.meta_path if not isinstance(each, imports.Pacer)
            ]
        return pid

    def forked(self, pid: int, message: "dict[str, Any]", fds: "list[int]") -> None:
        self.workers.add(pid)
        self.answer(fds, {"say": "forked", "id": message["id"], "pid": pid})

    def answer(self, fds: "list[int]", message: "dict[str, Any]") -> None:
        for fd in fds:
            os.close(fd)
        send(self.connection, message)

    def prepare(self) -> None:
        """Import one more module; report when none is left."""
        if self.todo and self.spoiled is None:
            self.bring(self.todo.pop(0))
            return
        self.preparing = False
        self.tell_proven()
        gc.collect()
        names = list(sys.modules)
        for at in range(0, len(names), NAMES):
            send(self.connection, {"say": "known", "modules": names[at : at + NAMES]})
        said = {"modules": self.loaded[:NAMES], "failed": self.failed, "spoiled": self.spoiled}
        send(self.connection, dict(said, say="ready", hidden=self.hidden, lacks=self.lacks))

    def prove(self, module: str) -> None:
        self.proven.append(module)
        if time.monotonic() - self.told_at >= TELL_SECONDS:
            self.tell_proven()

    def tell_proven(self) -> None:
        for at in range(0, len(self.proven), NAMES):
            send(self.connection, {"say": "proven", "modules": self.proven[at : at + NAMES]})
        self.proven, self.told_at = [], time.monotonic()

    def bring(self, module: str) -> None:
        if sys.modules.get(module) is not None:
            self.loaded.append(module)
            self.prove(module)
            return
        if self.generators is None:
            self.begin()
        self.stages.begin()
        try:
            with self.printed.importing():
                imports.import_uncollected(module)
        except BaseException as cannot:  # noqa: BLE001 - SystemExit too: it is one library's whim
            self.failed[module] = "%s: %s" % (type(cannot).__name__, cannot)
        else:
            self.loaded.append(module)
        self.stages.imported(module)
        why = self.unsafe()
        if module.split(".")[0] == "torch":  # known to be the same for all ranks
            self.generators.accept()
            self.traces.accept()
            self.lacks = self.lacks or load("torch_names").lacks()
            if self.lacks and self.lacks["plain"]:
                why = self.lacks["why"]
        else:
            why = why or self.traces.found() or self.generators.trace(self.traces.seeds)
        if why:
            self.spoiled = {"module": module, "why": why, "origin": imports.origin_of(module)}
        else:
            self.prove(module)
        self.look_for_hidden(module)

    def begin(self) -> None:
        """Before the first import, start to record what imports read, print, or change in this
        process.
        """
        traces = load("traces")
        self.watch_environment(traces, self.of_ranks)
        self.generators = load("generators").Generators()
        self.printed = traces.Printed()
        self.traces, self.stages = traces.Traces(), load("stages").Stages()
        self.unsafe = traces.unsafe

    def watch_environment(self, traces: "ModuleType", of_ranks: "frozenset[bytes]") -> None:
        content = os.environ._data  # type: ignore[attr-defined]
        traces.replace_content(traces.Environment(content, of_ranks))

    def look_for_hidden(self, module: str) -> None:
        """Search for an imported module that hides one of the script's own modules, and record the
        reason.
        """
        self.hidden = sys.modules["_brain_shadows"].hidden(self.own, self.place.standing)
        if self.hidden:
            why = "it imports %s, but the script has its own module of that name" % self.hidden[0]
            self.spoiled = {"module": module, "why": why, "origin": ""}

    def sweep(self) -> None:
        """Reap ended orphans of workers; this process adopts them, so no other process waits for
        them.
        """
        try:
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid in self.workers:
                    return
                os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return


def send(connection: socket.socket, message: "dict[str, Any]") -> None:
    connection.sendall(json.dumps(message).encode())


def receive(connection: socket.socket) -> "tuple[dict[str, Any], list[int]]":
    """Receive and return one message, and the descriptors that came with it.

    Raises:
        EOFError: the other side is gone.
    """
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    content, ancillary, _, _ = connection.recvmsg(MESSAGE_BYTES, socket.CMSG_LEN(64), flags)
    if not content:
        raise EOFError
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return json.loads(content), list(fds)
