"""A whole Brain for tests: ``brain up`` on a free port, and how to look at it and harm it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from brain import calls
from brain.client import BrainClient
from brain.errors import Unavailable
from brain.types.record import Event
from brain.views import JobDetail
from tests import guard
from tests.guard import guarded
from tests.patience import Patience

T = TypeVar("T")

_UP = ("-m", "brain.cli", "up", "--port=0")
SCRIPTS = Path(__file__).parent / "scripts"
#: Settings under which a loop takes seconds; what is short is only waiting.
FAST: Mapping[str, object] = {
    "tick_seconds": 0.3,
    "dwell_seconds": 4,
    "lease_seconds": 3,
    "patience_seconds": 30,
    "verify_seconds": 40,
    "restart_seconds": 2,
    "stale_seconds": 20,
}


@dataclass(frozen=True)
class Brain:
    """A running ``brain up``."""

    home: Path
    process: subprocess.Popen[bytes]

    @property
    def client(self) -> BrainClient:
        """An admin's client for the service as it listens now."""
        return self.client_with((self.home / "admin.token").read_text().strip())

    def client_with(self, token: str) -> BrainClient:
        """A client with another token."""
        return BrainClient(json.loads((self.home / "service.json").read_text())["url"], token)

    def agent(self, job: str) -> BrainClient:
        """A client as the agents of a job have it."""
        with self.client_with((self.home / "scaler.token").read_text().strip()) as scaler:
            return self.client_with(scaler.send(calls.mint_agent_token(job)).secret)

    def send(self, call: Any, *, seconds: float = 20) -> Any:
        """Do one operation, again while the service is away."""
        patience = Patience(seconds)
        while True:
            try:
                with self.client as client:
                    return client.send(call)
            except (Unavailable, OSError, ValueError):
                if patience.over:
                    raise
                time.sleep(0.2)

    def work(self, name: str) -> Path:
        """The directory of the job of this name."""
        return self.home / "work" / name

    def submit(self, *script: str, **document: Any) -> str:
        """Start a job that runs a script of ``tests/scripts`` in its own directory."""
        command = [sys.executable, str(SCRIPTS / script[0]), *script[1:]]
        body = {"name": "job", "command": command} | document
        work = self.work(str(body["name"]))
        work.mkdir(parents=True, exist_ok=True)
        body["directory"] = str(work)
        return str(self.send(calls.submit(body)).id)

    def detail(self, job: str) -> JobDetail:
        """The job as Brain shows it now."""
        detail: JobDetail = self.send(calls.job(job))
        return detail

    def events(self, job: str) -> list[Event]:
        """Everything that happened to a job."""
        found: list[Event] = []
        while page := self.send(calls.job_events(job, after=found[-1].id if found else 0)).items:
            found += page
        return found

    def until(
        self, stage: str, seconds: float, job: str, look: Callable[[JobDetail], T | None]
    ) -> T:
        """Wait until ``look`` finds something; fail with the stage and the job's last words.

        A busy machine has longer than these seconds (``tests/patience.py``).
        """
        patience = Patience(seconds)
        while True:
            detail = self.detail(job)
            found = look(detail)
            if found is not None and found is not False:
                return found
            if patience.over:
                why = detail.job.decision.explanation.reason if detail.job.decision else "none"
                raise AssertionError(
                    f"{stage}: not within {seconds:g} s; job {detail.job.state} "
                    f"({detail.job.reason}), world {detail.world}, plan {detail.job.plan}, "
                    f"decision {why}\n{self.logs()}"
                )
            time.sleep(0.1)

    def saved(self, job: str, *, seconds: float = 60) -> None:
        """Wait until the script has saved twice: before the first save was announced, at the step
        that follows it, a resize is held."""
        path = self.work(self.detail(job).job.name) / "counted.pt"
        self.until("the first checkpoint", seconds, job, lambda _: path.exists())
        first = path.stat().st_ino
        self.until("a second checkpoint", seconds, job, lambda _: path.stat().st_ino != first)

    def finished(self, job: str, *, seconds: float = 90) -> JobDetail:
        """Wait until the job ended."""
        return self.until(
            "the end of the job",
            seconds,
            job,
            lambda detail: detail if detail.job.finished_at else None,
        )

    def pid_of(self, module: str) -> int | None:
        """The process of ours that runs ``module``; None while there is none."""
        return next((pid for pid, words in self.processes() if module in words), None)

    def processes(self) -> Iterator[tuple[int, list[str]]]:
        """Every process whose command line or environment names this state directory."""
        return guard.processes(self.home)

    def logs(self, *, lines: int = 25) -> str:
        """The ends of all logs, for a failed test."""
        found = [*self.home.glob("logs/*.log"), *self.home.glob("**/replicas/*/*/*.log")]
        return "\n".join(
            f"--- {path.relative_to(self.home)}\n"
            + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in [self.home / "up.log", *sorted(found)]
            if path.exists()
        )


@contextmanager
def running(
    home: Path,
    *options: str,
    settings: Mapping[str, object] = FAST,
    ready_seconds: float = 90,
    python: Sequence[str] = (sys.executable,),
) -> Iterator[Brain]:
    """``brain up`` until the block ends; nothing that it started outlives that, or this process.

    ``python``: the interpreter of all its programs.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "service.json").unlink(missing_ok=True)
    with _up(home, python, options, settings) as process, guarded(home):
        brain = Brain(home, process)
        patience = Patience(ready_seconds)
        while not (home / "service.json").exists():
            if process.poll() is not None or patience.over:
                raise AssertionError(f"brain up is not ready ({process.poll()}):\n{brain.logs()}")
            time.sleep(0.1)
        brain.send(calls.health())
        yield brain


def _up(
    home: Path, python: Sequence[str], options: tuple[str, ...], settings: Mapping[str, object]
) -> subprocess.Popen[bytes]:
    chosen = [f"--set={key}={value}" for key, value in settings.items()]
    with (home / "up.log").open("ab") as printed:
        return subprocess.Popen(
            [*python, *_UP, f"--home={home}", *chosen, *options],
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
