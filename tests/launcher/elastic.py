"""A job of real agents on this machine, beside a Brain that only wishes and listens."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from brain import wire
from brain.types.job import Checkpoint, Intent, JobId
from brain.types.world import DesiredWorld, ReplicaEnd, WorldEvent, WorldReport
from launcher.values.replica import ReplicaIntent, held, read, write
from tests.patience import Patience

T = TypeVar("T")
JOB = JobId("0197f000-0000-7000-8000-00000000000e")
COUNTED = Path(__file__).parent.parent / "scripts" / "counted.py"


def desired(
    replicas: int = 1, *, generation: int = 0, version: int = 1, **fields: Any
) -> DesiredWorld:
    """A wish for a running world."""
    made = {
        "job": JOB,
        "intent": Intent.RUN,
        "processes_per_replica": 1,
        "unit": 1,
        "minimum": 1,
        "patience_seconds": 30.0,
        "restart_limit": 3,
    }
    return DesiredWorld(
        replicas=replicas, generation=generation, version=version, **(made | fields)
    )


class WishingBrain:
    """Answers the two questions of a coordinator over HTTP; ``away`` makes it refuse."""

    def __init__(self, first: DesiredWorld) -> None:
        self._desired, self._reports = first, dict[tuple[int, str, int], WorldReport]()
        self._changed = threading.Condition()
        self.away = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wishes(self, replicas: int | None = None, **fields: Any) -> None:
        """Change the wish; without a size only what ``fields`` say."""
        with self._changed:
            size = {} if replicas is None else {"replicas": replicas}
            version = self._desired.version + 1
            self._desired = replace(self._desired, version=version, **(size | fields))
            self._changed.notify_all()

    def reports(self) -> list[WorldReport]:
        """What was reported so far, in order."""
        with self._changed:
            return list(self._reports.values())

    def told(self, event: WorldEvent, seconds: float = 60, **fields: Any) -> WorldReport:
        """Wait for a report of ``event`` whose fields are as given."""
        patience = Patience(seconds)
        with self._changed:
            while True:
                for report in self._reports.values():
                    same = all(getattr(report, key) == value for key, value in fields.items())
                    if report.event is event and same:
                        return report
                seen = "\n".join(f"{r.epoch} {r.event} {r.detail}" for r in self._reports.values())
                if not self._changed.wait(0.5) and patience.over:
                    raise AssertionError(f"no {event} {fields} in {seconds:g} s, only:\n{seen}")

    def close(self) -> None:
        """Stop answering."""
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _poll(self, etag: str, seconds: float) -> DesiredWorld | None:
        with self._changed:
            self._changed.wait_for(lambda: f'"{self._desired.etag}"' != etag or self.away, seconds)
            return None if f'"{self._desired.etag}"' == etag else self._desired

    def _keep(self, report: WorldReport) -> None:
        with self._changed:
            self._reports.setdefault((report.epoch, report.event, report.generation), report)
            self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        brain = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if brain.away:
                    return self._answer(503, b"")
                wait = float(self.path.partition("wait=")[2] or 0)
                found = brain._poll(self.headers.get("If-None-Match", ""), wait)
                if brain.away:
                    return self._answer(503, b"")
                return self._answer(304 if found is None else 200, wire.encode(found))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if brain.away or not self.path.endswith("/world"):
                    return self._answer(503, b"")
                brain._keep(wire.decode(body, WorldReport))
                return self._answer(204, b"")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                body = b"" if status in (204, 304) else body
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(BrokenPipeError):  # a long poll of an agent that ended
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler


@dataclass
class ElasticJob:
    """``replicas/<job>/`` and the agents that a scaler would have started there."""

    home: Path
    brain: WishingBrain
    command: tuple[str, ...]
    minimum: int = 1
    declares: Checkpoint = field(default_factory=Checkpoint)
    #: Where agents are told that Brain is; None: where it is.
    url: str | None = None
    agents: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """Of the job."""
        return self.home / "replicas" / JOB

    @property
    def work(self) -> Path:
        """Where the script runs."""
        return self.home / "work"

    def start(self, generation: int = 0) -> int:
        """Start one more replica; returns its id."""
        replica = len(self.agents)
        place = self.directory / str(replica)
        place.mkdir(parents=True)
        intent = ReplicaIntent(
            job=JOB,
            name="counted",
            replica=replica,
            generation=generation,
            command=self.command,
            directory=str(self.work),
            minimum=self.minimum,
            checkpoint=self.declares,
            restart_limit=3,
            brain_url=self.url or self.brain.url,
            token_file=str(self.directory / "token"),
            home=str(self.home),
        )
        write(place / "intent.json", intent)
        with (place / "agent.log").open("wb") as log:
            self.agents[replica] = subprocess.Popen(
                [sys.executable, "-E", "-P", "-m", "launcher.agent", "--replica-dir", str(place)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.work,
            )
        return replica

    def begin(self, replicas: int) -> None:
        """Start the first replicas and wait until their world has saved."""
        for _ in range(replicas):
            self.start()
        self.brain.told(WorldEvent.STEPPING, epoch=1)
        self.saved()

    def start_and_wait(self) -> int:
        """Start the first replica and wait until its world was formed."""
        replica = self.start()
        self.brain.told(WorldEvent.FORMED, epoch=1)
        return replica

    def pause(self) -> None:
        """SIGSTOP to every process of the job, as when the machine under it stands still."""
        stopped: set[int] = set()
        while more := {pid for pid, _ in self._processes()} - stopped:
            for pid in more:
                os.kill(pid, signal.SIGSTOP)
            stopped |= more

    def go_on(self) -> None:
        """The end of ``pause``."""
        for pid, _ in self._processes():
            os.kill(pid, signal.SIGCONT)

    def kill(self, replica: int) -> None:
        """kill -9 of an agent."""
        self.agents[replica].kill()
        self.agents[replica].wait(timeout=30)

    def ended(self, replica: int, seconds: float = 60) -> ReplicaEnd:
        """Wait for an agent's end and return what it left."""
        try:
            self.agents[replica].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"replica {replica} did not end\n{self.logs()}") from None
        found = read(self.directory / str(replica) / "exit.json", ReplicaEnd)
        assert found is not None, f"replica {replica} left no exit.json\n{self.logs()}"
        return found

    def workers(self) -> list[int]:
        """Pids of the script's processes."""
        script = next(word for word in self.command if word.endswith(".py")).encode()
        return [pid for pid, line in self._processes() if script in line]

    def workers_of(self, replica: int) -> list[int]:
        """Those of ``workers`` that descend from an agent, once it has any: a world forms before
        its forked workers say what they run."""
        agent = self.agents[replica].pid
        return eventually(
            lambda: [pid for pid in self.workers() if agent in _ancestors(pid)],
            f"workers of replica {replica}",
        )

    def coordinator(self) -> int:
        """Replica that coordinates, once one does: between two there is none for a moment."""
        (found,) = eventually(self._coordinators, "a coordinator")
        return found

    def _coordinators(self) -> list[int]:
        pid = json.loads((self.directory / "coordinator.json").read_text())["pid"]
        return [replica for replica, agent in self.agents.items() if agent.pid == pid]

    def saved(self) -> None:
        """Wait until the script has saved twice, so that the first save was announced."""
        file = self.work / "counted.pt"
        eventually(file.exists, "a first checkpoint")
        first = file.stat().st_ino
        eventually(lambda: file.stat().st_ino != first, "a second checkpoint")

    def checkpoint(self) -> dict[str, Any]:
        """The final checkpoint: ``step`` and ``used`` (how often each example was used)."""
        import torch

        state = torch.load(self.work / "counted.pt", weights_only=True)
        return {"step": state["step"], "used": state["used"].tolist()}

    def logs(self) -> str:
        """What agents and workers printed."""
        found = sorted(self.directory.glob("*/*.log"))
        return "\n".join(f"--- {path}\n{path.read_text()[-3000:]}" for path in found)

    def orphans(self) -> list[bytes]:
        """Command lines of everything that still runs for this job, its collector apart."""
        return [line for _, line in self._processes() if b"collectors.loop" not in line]

    def _processes(self) -> Iterator[tuple[int, bytes]]:
        needle = str(self.home).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                known = line + (entry / "environ").read_bytes() + bytes((entry / "cwd").readlink())
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if needle in known and line and state != "Z":
                yield int(entry.name), line


def _ancestors(pid: int) -> Iterator[int]:
    with suppress(OSError):  # one of them has ended
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            yield pid


def steps_of(examples: int, batch: int, steps: int) -> list[int]:
    """How often ``counted.py`` uses each example in an undisturbed run."""
    used = [0] * examples
    for index in range(steps * batch):
        used[index % examples] += 1
    return used


def eventually(look: Callable[[], T | None], what: str, seconds: float = 60) -> T:
    """Wait for something that no event tells."""
    patience = Patience(seconds)
    while not (found := look()):
        assert not patience.over, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)
    return found


@contextmanager
def job(
    home: Path, *options: str, first: DesiredWorld, minimum: int = 1, script: str | None = None
) -> Iterator[ElasticJob]:
    """A job of ``counted.py``, or of a script given as text; at the end nothing may be left."""
    brain = WishingBrain(first)
    file = COUNTED
    if script is not None:
        file = home / "script.py"
        file.write_text(script)
    command = (sys.executable, str(file), *options)
    made = ElasticJob(home=home, brain=brain, command=command, minimum=minimum)
    made.directory.mkdir(parents=True)
    made.work.mkdir()
    (made.directory / "token").write_text("brn_secret")
    try:
        yield made
    except BaseException:
        print(made.logs())
        raise
    finally:
        for agent in made.agents.values():
            agent.kill()
            agent.wait(timeout=30)
        brain.close()
        lock = home / "collector" / "lock"
        for pid, line in made._processes():
            if b"collectors.loop" in line and held(lock):
                with suppress(ProcessLookupError):  # one that found another there ends by itself
                    os.kill(pid, signal.SIGTERM)
        eventually(lambda: not made.orphans(), f"an end of {made.orphans()}")
