"""The programs of the benchmark: starts them, reads their resource use from the kernel, and ends
them.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from launcher.workers.processes.process import free_port
from tests.kubernetes.apiserver.server import SHIPPED

_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 60.0
#: Lines that are shown of a program that ended.
_LAST_LINES, _LAST_BYTES = 20, 16_384
#: Exit code of an operator that lost its lease: a kubelet starts it again.
_DEPOSED = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The resources that a program has used so far."""

    cpu_seconds: float
    memory_mib: float


class Program:
    """A child process; its output is stored, and shown if the process ends by itself."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        talks: bool = False,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        pipe = subprocess.PIPE if talks else None
        self.module, self._ended = module, False
        #: Whatever is said belongs to what is measured, but not on the screen.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the program runs
        self.process = subprocess.Popen(
            [sys.executable, *(["-P"] if home else []), "-m", module, *arguments],
            stdin=pipe,
            stdout=pipe or self._log,
            text=True,
            cwd=home,
            env={**os.environ, **(environment or {})},
            stderr=None if talks else self._log,
        )

    def check(self) -> None:
        """Raise SystemExit with the last lines of the program's output if the program ended by
        itself.
        """
        code = self.process.poll()
        if code is not None and not self._ended:
            raise SystemExit(f"{self.module} ended with {code}; its last lines:\n{self._tail()}")

    def _tail(self) -> str:
        length = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, length - _LAST_BYTES))
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:]) or "(it said nothing)"

    def use(self) -> Use:
        """Return the CPU seconds so far, and the peak memory."""
        self.check()
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        # Those of its own children that ended included.
        cpu = sum(map(int, stat[11:15])) / _TICKS
        return Use(cpu_seconds=cpu, memory_mib=int(peak) / 1024)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the program, by force if it does not end in time."""
        self._ended = True
        self.process.send_signal(number)
        try:
            self.process.wait(30.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the program's output after its end."""
        for each in (self._log, self.process.stdin, self.process.stdout):
            if each is not None:
                each.close()


class Server:
    """The process that is the emulated API server, or that controls the real cluster."""

    def __init__(self, program: Program) -> None:
        self._program = program
        #: Programs without which nothing happens any more.
        self.needs: list[Program] = []
        hello = self._read()
        self.url, self.kubeconfig, self.name = hello["url"], hello["kubeconfig"], hello["name"]

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command to the process; return its answer."""
        assert self._program.process.stdin is not None, "the server talks"
        with suppress(BrokenPipeError):
            self._program.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._program.process.stdin.flush()
        return self._read()

    def until(self, what: str, count: int, seconds: float) -> bool:
        """Wait until a count in the server's state reaches a number; return False if the time is
        over.

        Raises SystemExit if a program that is needed for this ends.
        """
        end = time.monotonic() + seconds
        while self.ask("state")[what] < count:
            for program in self.needs:
                program.check()
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def _read(self) -> dict[str, Any]:
        assert self._program.process.stdout is not None, "the server talks"
        line = self._program.process.stdout.readline()
        if not line:
            raise SystemExit("the API server ended; its last words are above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def server(
    kubeconfig: str = "", older: Path | None = None, *, faulty: bool = False
) -> Iterator[Server]:
    """Yield a new emulator with our kinds, or with those of an older commit; or the cluster of a
    kubeconfig.

    With ``faulty``, requests to the cluster pass through a proxy that causes the faults.
    """
    kinds = older / "deploy/crds" if older else SHIPPED
    more = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    more += ["--faulty"] if faulty else []
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as directory:
        told = (directory, f"--definitions={kinds}", *more)
        program = Program("benchmarks.kubernetes.server", *told, talks=True)
        try:
            yield Server(program)
        finally:
            assert program.process.stdin is not None, "the server talks"
            program.process.stdin.close()
            program.process.wait(330.0)
            program.close()


@dataclass(frozen=True, slots=True)
class Product:
    """Brain and its operators, started as the chart starts them."""

    api: Server
    brain: Program
    operators: list[Program]
    start_operator: Callable[[], None]

    def kill_leader(self) -> None:
        """Kill the first operator without a warning."""
        self._drop(self.operators[0], signal.SIGKILL)

    def start_again(self) -> None:
        """Start operators that lost their lease in an outage, as a kubelet does."""
        for each in list(self.operators):
            if each.process.poll() == _DEPOSED:
                self._drop(each, signal.SIGTERM)
                self.start_operator()

    def _drop(self, operator: Program, number: int) -> None:
        self.operators.remove(operator)
        self.api.needs.remove(operator)
        operator.end(number)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all these programs so far."""
        return sum(each.use().cpu_seconds for each in (self.brain, *self.operators))


@contextmanager
def product(
    api: Server,
    older: Path | None = None,
    namespace: str = "",
    *,
    lease_seconds: float | None = 30.0,
) -> Iterator[Product]:
    """Yield Brain on its own database (SQLite) and one operator on the server; ``older`` is a
    commit to run instead.

    ``lease_seconds`` is long by default, so that no lease is lost on a busy machine, where nobody
    would start the operator again. With None the operator's own default applies, for the
    measurement of a failover.
    """
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as place, ExitStack() as stack:
        home = Path(place)
        environment = {"KUBECONFIG": api.kubeconfig} | ({"PYTHONPATH": str(older)} if older else {})

        def start(module: str, *arguments: str) -> Program:
            program = Program(module, *arguments, home=home, environment=environment)
            stack.callback(program.end)
            api.needs.append(program)
            return program

        port = free_port("127.0.0.1")
        url = f"http://127.0.0.1:{port}"
        brain = start("brain.service", f"--home={home}", f"--port={port}")
        answers(f"{url}/livez", brain)
        operators: list[Program] = []
        served = [f"--namespace={namespace}"] if namespace else []
        lease = [f"--lease-seconds={lease_seconds:g}"] if lease_seconds else []
        said = ("--kubernetes", f"--home={home}", f"--url={url}", *served, *lease)
        more = Product(api, brain, operators, lambda: operators.append(start("scaler.cli", *said)))
        more.start_operator()
        yield more


def answers(url: str, program: Program) -> None:
    """Wait until a program answers."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        program.check()
        try:
            if httpx2.get(url, timeout=5).status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer within {_START_SECONDS:.0f} s")
