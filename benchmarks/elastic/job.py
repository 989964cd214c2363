"""One job of several agents on this machine: how the benchmark starts, observes and damages the
job.

Every process of a job has a mark in its environment, by which the benchmark finds and ends it.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.elastic import trace
from tests.patience import Patience

T = TypeVar("T")

MARK = "BENCH_ELASTIC"
_POLL_SECONDS = 0.05
#: For guards and the like, when their launcher is gone.
_TIDY_SECONDS = 3.0


class Stuck(Exception):
    """An expected event did not happen; the message names the event and has the agents' last
    output.
    """


@dataclass
class Agent:
    """One launcher process, which stands for a node."""

    process: "subprocess.Popen[bytes]"
    mark: str
    #: (CLOCK_MONOTONIC, text) of what it printed.
    lines: list[tuple[float, str]] = field(default_factory=list)

    def pids(self) -> list[int]:
        """Return the pids of all living processes of this node, the agent's first.

        Python's resource tracker is left out: it ends once all other processes have ended, and
        nothing else would remove the semaphores that it removes.
        """
        return sorted(marked(self.mark), key=lambda pid: pid != self.process.pid)


class Job:
    """Agents that run one command together. Create a job with ``running``."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        place: Path,
        settings: Callable[[int], Mapping[str, str]],
    ) -> None:
        self._command, self.place, self._settings = command, place, settings
        self.traces = place / "trace"
        self.traces.mkdir()
        self._environment = {
            **environment,
            "BENCH_TRACE": str(self.traces),
            "BENCH_CHECKPOINT": str(place / "checkpoint.pt"),
        }
        self.agents: list[Agent] = []
        #: What agents need beside themselves.
        self._masters: list[Agent] = []
        #: CLOCK_MONOTONIC of the start and the end of every worker, by pid.
        self.started: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self._watched: set[int] = set()

    def start(self) -> Agent:
        """Start one more agent."""
        index = len(self.agents)
        agent = self._launch(self._command(index), str(index), self._settings(index))
        self.agents.append(agent)
        return agent

    def master(self, command: Sequence[str]) -> None:
        """Start the master to which the agents connect, on none of the job's nodes."""
        self._masters.append(self._launch(command, "master", {}))

    def _launch(self, command: Sequence[str], name: str, settings: Mapping[str, str]) -> Agent:
        mark = f"{self.place.name}-{name}"
        process = subprocess.Popen(
            command,
            env={**self._environment, **settings, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=self.place,
        )
        agent = Agent(process, mark)
        threading.Thread(target=_read, args=(agent,), daemon=True).start()
        return agent

    def workers(self) -> list[trace.Worker]:
        """Return the traces that the script's processes have written so far; watch for the ends of
        these processes from now on.
        """
        found = trace.read(self.traces)
        for worker in found:
            if worker.pid not in self._watched:
                self._watched.add(worker.pid)
                self._watch(worker.pid)
        return found

    def until(self, what: str, seconds: float, look: Callable[[], T | None]) -> T:
        """Wait for an event; raise ``Stuck`` if it does not happen in time."""
        patience = Patience(seconds)
        looked_at, longest = time.monotonic(), 0.0
        while not (found := look()):
            # A machine that stood still looks like a launcher that did.
            now = time.monotonic()
            longest, looked_at = max(longest, now - looked_at), now
            if patience.over:
                late = f"not within {seconds:g} s, the longest look took {longest:.2f} s"
                raise Stuck(f"{what}: {late}\n{self.last_words()}")
            if self.agents and all(agent.process.poll() is not None for agent in self.agents):
                raise Stuck(f"{what}: all agents have ended\n{self.last_words()}")
            time.sleep(_POLL_SECONDS)
        return found

    def world(self, size: int, steps: int, seconds: float) -> list[int]:
        """Wait for a living world of ``size`` ranks that has made ``steps`` steps; return its pids
        by rank.
        """

        def look() -> list[trace.Worker]:
            alive = [worker for worker in self.workers() if worker.pid not in self.ended]
            return trace.stepping(alive, size, steps)

        found = self.until(f"a world of {size} with {steps} steps", seconds, look)
        return [worker.pid for worker in found]

    def kill_node(self, index: int) -> None:
        """Kill the agent of a node and all its processes at once, as a power failure would."""
        agent = self.agents[index]
        for pid in agent.pids():
            _signal(pid, signal.SIGKILL)
        agent.process.wait(timeout=10)

    def last_words(self) -> str:
        """Return the last output of the agents."""
        return "\n".join(
            f"--- agent {index}, rc {agent.process.poll()}\n"
            + "\n".join(f"{at:.3f} {text}" for at, text in agent.lines[-15:])
            for index, agent in enumerate([*self.agents, *self._masters])
        )

    def end(self) -> None:
        """Kill all remaining processes of the job, and wait until they have ended.

        Launchers are killed first, and the processes that clean up after them get a moment to do
        so.
        """
        launched = [*self.agents, *self._masters]
        began = time.monotonic()
        for agent in launched:
            agent.process.kill()
            agent.process.wait(timeout=10)
        while pids := [pid for agent in launched for pid in agent.pids()]:
            waited = time.monotonic() - began
            for pid in pids if waited > _TIDY_SECONDS else ():
                _signal(pid, signal.SIGKILL)
            if waited > 20:
                raise Stuck(f"processes {pids} do not end")
            time.sleep(0.02)

    def _watch(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # over before it was seen
            self.ended[pid] = time.monotonic()
            return
        if at := _started_at(pid):
            self.started[pid] = at

        def wait() -> None:
            select.select([fd], [], [])
            self.ended[pid] = time.monotonic()
            os.close(fd)

        threading.Thread(target=wait, daemon=True).start()


def _nothing(_: int) -> Mapping[str, str]:
    return {}


@contextmanager
def running(
    command: Callable[[int], Sequence[str]],
    environment: Mapping[str, str],
    name: str,
    settings: Callable[[int], Mapping[str, str]] = _nothing,
) -> Iterator[Job]:
    """Yield a job with its own directory in memory; at the end remove everything that belongs to
    the job.

    ``command`` and ``settings`` (environment variables) are called for each agent with its index.
    """
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix=f"brain-bench-{name}-", dir=base))
    job = Job(command, environment, place, settings)
    try:
        yield job
    finally:
        try:
            job.end()
        finally:
            shutil.rmtree(place, ignore_errors=True)


def marked(mark: str) -> list[int]:
    """Return the pids of living processes that carry the mark."""
    needle = f"{MARK}={mark}\0".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                if needle in Path(entry.path, "environ").read_bytes() and not _aside(entry.path):
                    found.append(int(entry.name))
    return found


def _started_at(pid: int) -> float | None:
    """Return the start of a process in CLOCK_MONOTONIC seconds, to 10 ms; None if it has ended."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()


def _aside(process: str) -> bool:
    """Return True for a dead process and for the resource tracker of ``multiprocessing``."""
    dead = Path(process, "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return dead or b"resource_tracker" in Path(process, "cmdline").read_bytes()


def _signal(pid: int, signum: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _read(agent: Agent) -> None:
    assert agent.process.stdout is not None
    for line in agent.process.stdout:
        agent.lines.append((time.monotonic(), line.decode(errors="replace").rstrip()))
