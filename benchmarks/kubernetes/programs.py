"""Programs of the benchmark: started, measured by what the kernel says of them, ended."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a program used until now."""

    cpu_seconds: float
    memory_mib: float


class Program:
    """A child process of this one."""

    def __init__(
        self, module: str, *arguments: str, talks: bool = False, kubeconfig: str = ""
    ) -> None:
        pipe = subprocess.PIPE if talks else None
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=os.environ | {"KUBECONFIG": kubeconfig},
            # Whatever is said belongs to what is measured, but not on the screen.
            stderr=None if talks else subprocess.DEVNULL,
        )

    def use(self) -> Use:
        """CPU seconds so far, and the most memory that it ever had."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        cpu = (int(stat[11]) + int(stat[12])) / _TICKS
        return Use(cpu_seconds=cpu, memory_mib=int(peak) / 1024)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, by force if it does not."""
        self.process.send_signal(number)
        try:
            self.process.wait(30.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Server:
    """The emulated API server's process."""

    def __init__(self, program: Program) -> None:
        self._program = program
        hello = self._read()
        self.url, self.kubeconfig = hello["url"], hello["kubeconfig"]

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Have it do something; what it answers."""
        assert self._program.process.stdin is not None, "the server talks"
        self._program.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._program.process.stdin.flush()
        return self._read()

    def until(
        self, holds: Callable[[dict[str, Any]], bool], seconds: float, of: Program | None = None
    ) -> bool:
        """Wait until its state is so; False: not in that time, or the program ``of`` ended."""
        end = time.monotonic() + seconds
        while not holds(self.ask("state")):
            if time.monotonic() > end or (of is not None and of.process.poll() is not None):
                return False
            time.sleep(0.05)
        return True

    def _read(self) -> dict[str, Any]:
        assert self._program.process.stdout is not None, "the server talks"
        line = self._program.process.stdout.readline()
        if not line:
            raise SystemExit("the API server ended; its last words are above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def server() -> Iterator[Server]:
    """A fresh API server with our kinds and the namespace of the benchmark."""
    with tempfile.TemporaryDirectory() as directory:
        program = Program("benchmarks.kubernetes.server", directory, talks=True)
        try:
            yield Server(program)
        finally:
            program.end()


@contextmanager
def running(api: Server, module: str, *arguments: str) -> Iterator[Program]:
    """An operator at that server, for as long as the block takes."""
    program = Program(module, *arguments, kubeconfig=api.kubeconfig)
    try:
        yield program
    finally:
        program.end()
