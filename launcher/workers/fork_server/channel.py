"""The agent's side of one fork server: messages with descriptors, and handles of forked workers."""

import array
import asyncio
import errno
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brain.errors import Unavailable

MESSAGE_BYTES = 1 << 20
#: Names of modules in one message.
_NAMES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacks:
    """Names that the installed torch lacks (``inject/torch_names.py``)."""

    why: str
    #: Workers have to start by themselves.
    plain: bool

    @classmethod
    def read(cls, said: Mapping[str, Any] | None) -> "Lacks | None":
        """Read the names that the torch of a server or of a parked process lacks; None if it lacks
        none.
        """
        return None if said is None else cls(why=str(said["why"]), plain=bool(said["plain"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The modules that a fork server has imported."""

    modules: tuple[str, ...] = ()
    #: All that these brought along: names in ``sys.modules``.
    known: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    #: The module after which nothing can be forked there, and why; None where all is well.
    spoiled: tuple[str, str] | None = None
    #: Modules of the script's own that something imported there stands for.
    hidden: tuple[str, ...] = ()
    #: File of the library that spoiled it; empty where there is none.
    origin: str = ""
    lacks: Lacks | None = None


#: Seconds that a server may take to end once its connection is closed.
_END_SECONDS = 0.1


class Child:
    """A worker that a fork server made, with the interface of ``subprocess.Popen``."""

    def __init__(self, pid: int, channel: "Channel") -> None:
        self.pid = pid
        self.channel = channel
        self._pidfd = os.pidfd_open(pid)
        self._code: int | None = None
        #: What the server says, where it was asked.
        self.told: int | None = None
        self._asked = False

    def poll(self) -> int | None:
        """Return the exit code, negative if a signal ended the process; None while it runs.

        The server keeps an ended process until this process acknowledges it, so no process id is
        used again too early.
        """
        if self._code is None and select.select([self._pidfd], [], [], 0)[0]:
            self._code = self._ended()
            if self._code is not None:
                os.close(self._pidfd)
                self.channel.forget(self)
        return self._code

    @property
    def parent_signal(self) -> str:
        """Name of the signal that ended the server, and its workers with it; empty if none did."""
        if self.channel.alive:
            return ""
        try:
            code = self.channel.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        if code >= 0:
            return ""
        try:
            return signal.Signals(-code).name
        except ValueError:  # a real-time signal
            return f"signal {-code}"

    def _ended(self) -> int | None:
        """Return the exit code; None until the server has reported it."""
        if not self.channel.alive:
            return -signal.SIGKILL
        if _is_ours(self.pid):
            return _exit_code(self.pid)
        if not self._asked:
            self._asked = True
            self.channel.ask(self.pid)
        return self.told

    def drop(self) -> None:
        """Kill an unwanted child, and forget it once it has ended."""
        if self._code is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            asyncio.get_running_loop().add_reader(self._pidfd, self._dropped)

    def _dropped(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.poll()


class Channel:
    """One fork server. Call all methods on the event loop's thread."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", ours: socket.socket, gone: Callable[[], None]
    ) -> None:
        self.process = process
        self.alive = True
        self.ready: asyncio.Future[Readiness] = asyncio.get_running_loop().create_future()
        self._socket, self._gone = ours, gone
        self._waiting: dict[int, asyncio.Future[Child]] = {}
        self._children: set[Child] = set()
        self._outbox: list[tuple[bytes, Sequence[int]]] = []
        self._next, self._retired = 0, False
        self._known: set[str] = set()
        #: Modules whose import there left no trace, or failed.
        self.proven: set[str] = set()
        self._asked: asyncio.Future[bool] | None = None
        self._loop = asyncio.get_running_loop()
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._hear)

    def open(
        self,
        modules: Sequence[str],
        probe: str | None,
        *,
        sure: bool,
        pace: float | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        """Send the modules to import: all before the first fork if they are ``sure`` to be needed,
        else only the first.

        ``pace`` is the share of a processor that imports may use. While modules are imported,
        ``sys.argv`` and ``__main__`` are those of the worker that ``spec`` describes.
        """
        for at in range(0, len(modules), _NAMES):
            self._send({"do": "want", "modules": modules[at : at + _NAMES]})
        self._send({"do": "open", "probe": probe, "sure": sure, "pace": pace, "spec": spec})

    async def fork(self, spec: Mapping[str, Any], fds: Sequence[int]) -> Child:
        """Make a worker whose standard streams are ``fds``.

        Raises:
            Unavailable: the server refuses the order, or is gone.
        """
        return await self.make({"do": "fork", "spec": spec}, fds)

    async def make(self, order: Mapping[str, Any], fds: Sequence[int]) -> Child:
        """Let the server make a process, which gets copies of ``fds``; return its handle.

        Raises:
            Unavailable: the server refuses the order, or is gone.
        """
        if not self.alive:
            raise Unavailable("the fork server has ended")
        try:
            copies = [os.dup(fd) for fd in fds]
        except OSError as closed:
            raise Unavailable(f"a standard stream is closed: {closed}") from closed
        self._next += 1
        made: asyncio.Future[Child] = self._loop.create_future()
        self._waiting[self._next] = made
        self._send({**order, "id": self._next}, copies)
        return await made

    @property
    def pids(self) -> frozenset[int]:
        """Return the pids of children that still run."""
        return frozenset(child.pid for child in self._children)

    async def alone(self) -> bool:
        """True if the server has no child; False if it has a child, or is gone."""
        if not self.alive:
            return False
        if self._asked is None:
            self._asked = self._loop.create_future()
            self._send({"do": "count"})
        return await asyncio.shield(self._asked)

    def forget(self, child: Child) -> None:
        """Forget a child whose end is known here; the server may then reap it."""
        self._children.discard(child)
        self._send({"do": "reap", "pid": child.pid})

    def ask(self, pid: int) -> None:
        """Let the server report how a worker ended."""
        self._send({"do": "tell", "pid": pid})

    def retire(self) -> bool:
        """End the server unless it still has workers; return True if it ends."""
        self._retired = True
        idle = not self._children and not self._waiting
        if idle:
            self._end()
            # A process with torch in it takes a while to go, and a world may be about to start.
            self._loop.run_in_executor(None, self.process.wait)
        return idle

    def close(self) -> None:
        """End the server and all its processes."""
        self._retired = True
        self._end()
        self.process.wait()

    def _end(self) -> None:
        if self.alive:
            self._lost()
        self.process.kill()

    def _send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        self._outbox.append((json.dumps(message).encode(), fds))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._outbox and self.alive:
            content, fds = self._outbox[0]
            rights = array.array("i", fds)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if fds else []
            try:
                self._socket.sendmsg([content], ancillary)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._flush)
                return
            except OSError as cannot:
                if cannot.errno != errno.EMSGSIZE:
                    self._lost()
                    return
                self._refused(json.loads(content).get("id"), "the environment is too large")
            self._outbox.pop(0)
            for fd in fds:
                os.close(fd)
        if self.alive:
            self._loop.remove_writer(self._socket.fileno())

    def _hear(self) -> None:
        while self.alive:
            try:
                content = self._socket.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                content = b""
            if not content:
                self._lost()
                return
            self._told(json.loads(content))

    def _told(self, message: dict[str, Any]) -> None:
        match message["say"]:
            case "proven":
                self.proven.update(message["modules"])
            case "known":
                self._known.update(message["modules"])
            case "ready":
                spoiled = message["spoiled"]
                self.ready.set_result(
                    Readiness(
                        modules=tuple(message["modules"]),
                        known=frozenset(self._known),
                        failed=message["failed"],
                        spoiled=spoiled and (spoiled["module"], spoiled["why"]),
                        hidden=tuple(message["hidden"]),
                        origin=spoiled["origin"] if spoiled else "",
                        lacks=Lacks.read(message["lacks"]),
                    )
                )
            case "counted" if self._asked is not None:
                asking, self._asked = self._asked, None
                asking.set_result(not message["children"])
            case "ended":
                for child in self._children:
                    if child.pid == message["pid"]:
                        child.told = message["code"]
            case "refused":
                self._refused(message["id"], message["why"])
            case "forked":
                self._forked(self._waiting.pop(message["id"]), message["pid"])

    def _refused(self, order: int, why: str) -> None:
        asked = self._waiting.pop(order, None)
        if asked is not None and not asked.done():
            asked.set_exception(Unavailable(why))

    def _forked(self, asked: "asyncio.Future[Child]", pid: int) -> None:
        try:
            child = Child(pid, self)
        except OSError as cannot:  # it went with the server, or there are no descriptors left
            if not asked.done():
                asked.set_exception(Unavailable(f"the worker cannot be watched: {cannot}"))
            return
        self._children.add(child)
        if asked.done():  # nobody waits for it any more
            child.drop()
        else:
            asked.set_result(child)

    def _lost(self) -> None:
        """Note that the server and its workers are gone."""
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self.alive = False
        for _, fds in self._outbox:
            for fd in fds:
                os.close(fd)
        self._outbox.clear()
        gone = Unavailable("the fork server has ended")
        lost: list[asyncio.Future[Any]] = [*self._waiting.values(), self.ready]
        for asked in lost:
            if not asked.done():
                asked.set_exception(gone)
                asked.exception()  # whoever does not wait need not hear of it
        self._waiting.clear()
        if self._asked is not None:
            self._asked.set_result(False)
        if not self._retired:
            self._gone()


def _is_ours(pid: int) -> bool:
    """True if the kernel shows this process how the worker ended, unless the script became another
    user.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            ids = dict(line.split(b":", 1) for line in status.read().splitlines())
    except OSError:
        return False
    users, groups = (set(map(int, ids[name].split())) for name in (b"Uid", b"Gid"))
    return users == {os.geteuid()} and groups == {os.getegid()}


def _exit_code(pid: int) -> int:
    """Return the exit code of a process that ended and was not waited for yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            content = stat.read()
    except OSError:  # its parent died at this moment
        return -signal.SIGKILL
    return os.waitstatus_to_exitcode(int(content.rsplit(b" ", 1)[1]))
