"""Hosts for tests: own network, processes, name, ``/dev/shm`` and temporary files, one kernel.

``with hosts(directory, 3) as them:`` makes them with namespaces where the machine lets us, and else
with loopback addresses: then ``them.network`` is False, and links cannot be cut. Whatever happens
to the test, hosts end with it: their process 1 ends when the pipe to it does.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hosts.switch import Link, Switch, mac
from tests.patience import Patience

_INIT = Path(__file__).with_name("init.py")
_READY_SECONDS = 20.0
_NETWORK = "10.98.0"
#: Says to which host a process belongs, where there are no namespaces.
_MARK = "BRAIN_TEST_HOST"


class CannotIsolate(Exception):
    """This machine does not give us namespaces; the message says what is missing."""


@dataclass
class Program:
    """Something started on a host."""

    key: int
    log: Path
    #: In the host's own numbering.
    pid: int | None = None
    code: int | None = None
    _news: threading.Condition = field(default_factory=threading.Condition)

    def told(self, *, pid: int | None = None, code: int | None = None) -> None:
        """Take news of it."""
        with self._news:
            self.pid = pid if pid is not None else self.pid
            self.code = code if code is not None else self.code
            self._news.notify_all()

    def wait(self, seconds: float = 20.0) -> int:
        """Its exit code."""
        with self._news:
            if not self._news.wait_for(lambda: self.code is not None, seconds):
                raise AssertionError(f"still runs after {seconds:g} s:\n{self.text()[-3000:]}")
            assert self.code is not None
            return self.code

    def text(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Host:
    """One host. ``port`` is its place at the switch; None where loopback stands for it."""

    def __init__(self, name: str, address: str, directory: Path) -> None:
        self.name, self.address, self.directory = name, address, directory
        self.port: int | None = None
        self.programs: list[Program] = []
        self._keys = itertools.count()
        for made in ("tmp", "home"):
            (directory / made).mkdir(parents=True, exist_ok=True)

    @property
    def temporary(self) -> Path:
        """Where its programs put temporary files."""
        return self.directory / "tmp"

    def start(
        self, argv: Sequence[str], *, directory: Path, environment: Mapping[str, str] | None = None
    ) -> Program:
        """Start a program, in a session of its own."""
        key = next(self._keys)
        program = Program(key=key, log=self.directory / f"{len(self.programs)}.log")
        own = {"TMPDIR": str(self.temporary), "BRAIN_HOME": str(self.directory / "home")}
        whole = dict(os.environ) | own | dict(environment or {}) | {_MARK: self._mark()}
        self.programs.append(program)
        self._launch(program, list(argv), str(directory), whole)
        return program

    def pids(self) -> dict[int, str]:
        """All its processes but process 1: as this machine numbers them -> command line."""
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and self._has(int(name)) and (line := _command(int(name))):
                found[int(name)] = line
        return found

    def stop(self) -> None:
        """SIGSTOP to everything, as when the machine under it is paused."""
        stopped: set[int] = set()
        while more := self.pids().keys() - stopped:
            for pid in more:
                _send(pid, signal.SIGSTOP)
            stopped |= more

    def go_on(self) -> None:
        """The end of ``stop``."""
        for pid in self.pids():
            _send(pid, signal.SIGCONT)

    def signal(self, program: Program, signum: signal.Signals) -> None:
        """Send a signal to one program."""
        raise NotImplementedError

    def kill(self) -> None:
        """The power goes: every process at once, and none says goodbye."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """What is left of us in shared memory and among temporary files, and which processes."""
        files = [*self._shared_memory(), *self.temporary.glob("*brain*")]
        return sorted([*map(str, files), *self.pids().values()])

    def _shared_memory(self) -> list[Path]:
        return []  # where it belongs to all, nobody knows whose a file is

    def _mark(self) -> str:
        return self.name

    def _has(self, pid: int) -> bool:
        raise NotImplementedError

    def _launch(
        self, program: Program, argv: list[str], directory: str, environment: dict[str, str]
    ) -> None:
        raise NotImplementedError


class LoopbackHost(Host):
    """A loopback address and a mark in the environment."""

    def __init__(self, name: str, address: str, directory: Path) -> None:
        super().__init__(name, address, directory)
        self._own = f"{name}-{uuid.uuid4()}"
        self._popen: dict[int, subprocess.Popen[bytes]] = {}

    def signal(self, program: Program, signum: signal.Signals) -> None:
        """Send a signal to one program."""
        self._popen[program.key].send_signal(signum)

    def kill(self) -> None:
        """SIGKILL to all there are, until there are none."""
        while found := self.pids():
            for pid in found:
                _send(pid, signal.SIGKILL)

    def _mark(self) -> str:
        return self._own

    def _has(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return f"{_MARK}={self._own}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return False

    def _launch(
        self, program: Program, argv: list[str], directory: str, environment: dict[str, str]
    ) -> None:
        with program.log.open("ab") as log:
            made = subprocess.Popen(
                argv,
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._popen[program.key] = made
        program.told(pid=made.pid)
        threading.Thread(target=lambda: program.told(code=made.wait()), daemon=True).start()


class NamespaceHost(Host):
    """Namespaces for network, processes, names, messages and mounts."""

    def __init__(self, name: str, address: str, directory: Path, switch: Switch) -> None:
        super().__init__(name, address, directory)
        self._switch = switch
        self._number: int | None = None
        self._init: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._ready = threading.Event()

    def boot(self, names: Path) -> None:
        """Switch it on.

        Raises:
            CannotIsolate: this machine does not let us.
        """
        for left in self.temporary.iterdir():  # by a loss of power
            shutil.rmtree(left, ignore_errors=True)
        try:
            self.port, device = self._switch.port(self._number)
        except OSError as refused:
            raise CannotIsolate(f"/dev/net/tun: {refused}") from refused
        self._number = self.port
        self._ready.clear()
        unshare = "unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc"
        setup = [
            ["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", "/dev/shm"],
            ["mount", "--bind", str(names), "/etc/hosts"],
            ["ip", "link", "set", "lo", "up"],
        ]
        told = json.dumps({"name": self.name, "setup": setup})
        self._init = subprocess.Popen(
            [*unshare.split(), sys.executable, "-I", "-S", str(_INIT), told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self._init,), daemon=True).start()
        if not self._ready.wait(_READY_SECONDS) or self._init.poll() is not None:
            self._init.kill()
            assert self._init.stderr is not None
            why = self._init.stderr.read().decode().strip()
            raise CannotIsolate(f"unshare: {why or 'no answer'}")
        self._first = _child_of(self._init.pid)
        self._connect(device)

    def _connect(self, device: str) -> None:
        assert self.port is not None
        inside = f"nsenter --target {self._first} --net ip"
        for command in (
            f"ip link set {device} netns {self._first} name eth0",
            f"{inside} link set eth0 address {mac(self.port)}",
            f"{inside} addr add {self.address}/24 dev eth0",
            f"{inside} link set eth0 up",
        ):
            made = subprocess.run(command.split(), capture_output=True, text=True)
            if made.returncode:
                raise CannotIsolate(f"{command}: {made.stderr.strip()}")

    def signal(self, program: Program, signum: signal.Signals) -> None:
        """Send a signal to one program."""
        self._order({"key": program.key, "signal": int(signum)})

    def kill(self) -> None:
        """The kernel ends all of a namespace with its process 1; nothing reaches the network."""
        if self._init is None:
            return
        if self.port is not None:
            self._switch.remove(self.port)
            self.port = None
        _send(self._first, signal.SIGKILL)
        self._init.kill()
        self._init.wait()
        for pipe in (self._init.stdin, self._init.stdout, self._init.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._init = None
        for program in self.programs:
            program.told(code=-signal.SIGKILL if program.code is None else None)

    def _shared_memory(self) -> list[Path]:
        return list(Path(f"/proc/{self._first}/root/dev/shm").iterdir())

    def _has(self, pid: int) -> bool:
        if self._init is None or pid == self._first:
            return False
        try:
            return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{self._first}/ns/pid")
        except OSError:
            return False

    def _launch(
        self, program: Program, argv: list[str], directory: str, environment: dict[str, str]
    ) -> None:
        self._order(
            {
                "key": program.key,
                "argv": argv,
                "directory": directory,
                "environment": environment,
                "log": str(program.log),
            }
        )

    def _order(self, order: dict[str, Any]) -> None:
        assert self._init is not None, f"{self.name} is off"
        assert self._init.stdin is not None
        self._init.stdin.write(json.dumps(order).encode() + b"\n")
        self._init.stdin.flush()

    def _listen(self, init: "subprocess.Popen[bytes]") -> None:
        assert init.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # it was switched off
            for line in init.stdout:
                news = json.loads(line)
                if "ready" in news:
                    self._ready.set()
                else:
                    key = news.pop("key")
                    next(p for p in self.programs if p.key == key).told(**news)
        self._ready.set()


class Hosts:
    """Some hosts and the network between them."""

    def __init__(self, directory: Path, *, network: bool) -> None:
        self.directory, self.network = directory, network
        self.all: list[Host] = []
        self._switch = Switch() if network else None
        directory.mkdir(parents=True, exist_ok=True)
        self._names = directory / "hosts"
        self._names.write_text("127.0.0.1 localhost\n")

    def __iter__(self) -> Iterator[Host]:
        return iter(self.all)

    def __getitem__(self, index: int) -> Host:
        return self.all[index]

    def add(self) -> Host:
        """One more host, switched on."""
        number = len(self.all)
        name, directory = f"host{number}", self.directory / f"host{number}"
        if self._switch is None:
            made: Host = LoopbackHost(name, f"127.0.0.{number + 2}", directory)
        else:
            address = f"{_NETWORK}.{number + 1}"
            with self._names.open("a") as names:
                names.write(f"{address} {name}\n")
            made = host = NamespaceHost(name, address, directory, self._switch)
            host.boot(self._names)
        self.all.append(made)
        return made

    def boot(self, host: Host) -> None:
        """Switch a host on again that was killed."""
        if isinstance(host, NamespaceHost):
            host.boot(self._names)

    def cut(self, some: Iterable[Host], others: Iterable[Host], *, both: bool = True) -> None:
        """Lose all frames from ``some`` to ``others``, and back where ``both``."""
        self.link(some, others, Link(up=False), both=both)

    def heal(self) -> None:
        """All links are as new."""
        self.link(self.all, self.all, Link())

    def link(
        self, some: Iterable[Host], others: Iterable[Host], link: Link, *, both: bool = True
    ) -> None:
        """Say how frames fare."""
        assert self._switch is not None, "there is no network to change"
        near, far = _ports(some), _ports(others)
        self._switch.link(near, far, link)
        if both:
            self._switch.link(far, near, link)

    def close(self) -> None:
        """End everything on all hosts."""
        for host in self.all:
            host.kill()
        if self._switch is not None:
            self._switch.close()


@contextmanager
def hosts(directory: Path, count: int) -> Iterator[Hosts]:
    """So many hosts; at the end they are gone."""
    made = Hosts(directory, network=cannot_isolate() is None)
    try:
        for _ in range(count):
            made.add()
        yield made
    finally:
        made.close()


_answer: list[str | None] = []


def cannot_isolate() -> str | None:
    """Why hosts with a network cannot be made on this machine; None: they can."""
    if not _answer:
        with tempfile.TemporaryDirectory() as directory:
            trial = None
            try:
                trial = Hosts(Path(directory), network=True)
                trial.add()
                _answer.append(None)
            except (CannotIsolate, OSError) as refused:
                _answer.append(str(refused))
            finally:
                if trial is not None:
                    trial.close()
    return _answer[0]


def _ports(some: Iterable[Host]) -> list[int]:
    return [host.port for host in some if host.port is not None]


def _child_of(pid: int) -> int:
    patience = Patience(_READY_SECONDS)
    while not (found := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert not patience.over, "unshare has no child"
    return int(found[0])


def _command(pid: int) -> str:
    """The command line of a living process; empty for others."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return ""
    return "" if state in "ZX" else line.decode(errors="replace").strip()


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
