"""Agents of one job on this machine whose script has a session, and what its processes wrote."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

SCRIPT = Path(__file__).parents[1] / "scripts" / "staying.py"
#: Longer than any change takes on a busy machine: with a load of ten a processor an agent imports
#: torch for two minutes.
PATIENCE_SECONDS = 300.0
T = TypeVar("T")


def _unused_port() -> int:
    """Below those that the kernel gives out, so that nothing takes it before its agent does."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with socket.socket() as asking, suppress(OSError):
            asking.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True, slots=True)
class Made:
    """One step of one process."""

    rank: int
    size: int
    world: int
    steps: int
    parameters: str


class Stage:
    """Use ``staged``."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.agents: list[subprocess.Popen[bytes]] = []
        self._port = _unused_port()

    def start(self) -> "subprocess.Popen[bytes]":
        """Start one more agent."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("BRAIN_", "PET_"))},
            "STAYING": str(self.place / "steps"),
            "BRAIN_HOME": str(self.place / "home"),
            "OMP_NUM_THREADS": "1",
        }
        brain_run = str(Path(sys.executable).parent / "brain-run")
        command = [brain_run, "--nnodes=1:3", "--nproc-per-node=1", "--max-restarts=20"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}"]
        command += [f"--rdzv-id=staying-{self._port}", "--local-addr=127.0.0.1", str(SCRIPT)]
        with (self.place / f"agent-{len(self.agents)}").open("wb") as out:
            agent = subprocess.Popen(
                command, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        self.agents.append(agent)
        if len(self.agents) == 1:  # it coordinates: the others find it
            self.until("agent that listens", self._listening)
        return agent

    def _listening(self) -> bool:
        wanted = f"0100007F:{self._port:04X}"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(line[1] == wanted and line[3] == "0A" for line in lines)

    def steps(self) -> dict[int, list[Made]]:
        """What each process has made so far."""
        found = {}
        for file in (self.place / "steps").iterdir():
            if file.name.isdigit():
                lines = file.read_text().rpartition("\n")[0].splitlines()
                words = [line.split() for line in lines]
                found[int(file.name)] = [Made(*map(int, w[:4]), w[4]) for w in words]
        return found

    def world(self, size: int, *, after: int = 0) -> dict[int, int]:
        """Wait for a world of ``size``, later than ``after``, that makes steps; pids by rank."""

        def look() -> dict[int, int] | None:
            last = {pid: made[-3:] for pid, made in self.steps().items() if len(made) >= 3}
            newest = max((m.world for made in last.values() for m in made), default=0)
            members = {
                made[-1].rank: pid
                for pid, made in last.items()
                if all((m.size, m.world) == (size, newest) for m in made)
            }
            return members if newest > after and len(members) == size else None

        return self.until(f"a world of {size} after {after}", look)

    def newest(self) -> int:
        """Epoch of the newest world that made a step."""
        return max(m.world for made in self.steps().values() for m in made)

    def until(self, what: str, look: Callable[[], T | None]) -> T:
        """Wait until there is something to see."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := look()):
            if time.monotonic() > deadline:
                said = [f.read_text()[-2000:] for f in sorted(self.place.glob("agent-*"))]
                raise AssertionError(f"no {what}:\n" + "\n---\n".join(said))
            time.sleep(0.02)
        return found

    def finish(self) -> int:
        """Have training end a little later, and wait until all agents have; the last step."""
        last = max(made[-1].steps for made in self.steps().values()) + 25
        half = self.place / "half"
        half.write_text(str(last))
        half.rename(self.place / "steps" / "end")
        self.until("end", lambda: all(a.poll() is not None for a in self.agents) or None)
        return last

    def fail(self, rank: int) -> None:
        """Have the script of a rank end with 3."""
        (self.place / "steps" / f"fail-{rank}").touch()

    def end(self) -> None:
        """Leave nothing running."""
        for agent in self.agents:
            if agent.poll() is None:
                with suppress(ProcessLookupError):
                    agent.send_signal(signal.SIGCONT)
                    agent.kill()
            agent.wait(timeout=30)


@contextmanager
def staged(place: Path, agents: int) -> Iterator[Stage]:
    """So many agents, started; at the end none runs."""
    (place / "steps").mkdir()
    stage = Stage(place)
    try:
        for _ in range(agents):
            stage.start()
        yield stage
    finally:
        stage.end()
