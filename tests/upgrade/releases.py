"""Two releases on one state directory: each program is started from the code of either.

The previous release is a commit of this repository, unpacked into ``build/``. Its dependencies are
those of today: an interpreter of its own finds its code first and then today's packages.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pytest

from tests.guard import ROOT, guarded, processes
from tests.hosts.worlds import eventually
from tests.soak.changes import Proof, Records, newest

#: The last commit of the first wave, which stands for the release before this one.
PREVIOUS = "65270bc"
_PARTS = ("brain", "collectors", "launcher", "scaler", "migrations", "web/dist", "web/src/styles")
SCRIPT = ROOT / "tests/scripts/replicated.py"


@dataclass(frozen=True)
class Release:
    """The code of one release, as the interpreter that runs it."""

    name: str
    python: Path


TODAY = Release("today's", Path(sys.executable))


def previous() -> Release:
    """Unpack the previous release; skip the test where the clone has no history."""
    packed = subprocess.run(
        ["git", "archive", PREVIOUS, *_PARTS], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(f"this clone has no commit {PREVIOUS}: git fetch --unshallow")
    place = ROOT / "build/upgrade" / PREVIOUS
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    venv.create(place / ".venv", with_pip=False)
    packages = sysconfig.get_path("purelib", vars={"base": str(place / ".venv")})
    paths = f"{place}\n{sysconfig.get_path('purelib')}\n"
    (Path(packages) / "release.pth").write_text(paths)
    return Release("the previous", place / ".venv/bin/python")


@dataclass
class House:
    """A state directory, and the programs that serve it."""

    home: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: str = "0"

    @property
    def work(self) -> Path:
        """The directory of the job."""
        return self.home / "work"

    @property
    def url(self) -> str:
        """Address of the service."""
        return str(json.loads((self.home / "service.json").read_text())["url"])

    def service(self, release: Release) -> None:
        """Start the service, at the address that it had before."""
        (self.home / "service.json").unlink(missing_ok=True)
        self._start(release, "service", "brain.service")
        eventually(self._listens, "the service", 60, self.logs)
        self.port = self.url.rpartition(":")[2]

    def scaler(self, release: Release) -> None:
        """Start the scaler, for as many replicas as the job may have."""
        self._start(release, "scaler", "scaler.cli", "--url", self.url, "--slots=3")

    def stop(self, program: str) -> None:
        """End one program, as an upgrade does."""
        process = self.running.pop(program)
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    def brain(self, release: Release, *words: str) -> str:
        """Run a command of the release's ``brain``; returns what it prints."""
        done = subprocess.run(
            [release.python, "-P", "-m", "brain.cli", *words],
            env=self._environment(),
            cwd=self.work,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def submit(self, release: Release) -> None:
        """Start the job, with one replica of at most three."""
        (self.work / "records").mkdir(parents=True)
        checkpoint = self.work / "replicated.pt"
        self.brain(
            release,
            *(
                "submit",
                "--name=job",
                "--replicas=1:3",
                "--policy=off",
                f"--checkpoint={checkpoint}",
            ),
            *("--", str(release.python), str(SCRIPT), "--records=records"),
            f"--checkpoint={checkpoint}",
        )

    def agents(self) -> dict[int, int]:
        """Process of each replica that lives."""
        found = {}
        for pid, words in processes(self.home):
            if "--replica-dir" in words:
                found[int(Path(words[words.index("--replica-dir") + 1]).name)] = pid
        return found

    def logs(self) -> str:
        """The ends of all logs, for a failed test."""
        found = [*self.home.glob("*.log"), *self.home.glob("replicas/*/*/*.log")]
        return "\n".join(
            f"--- {path.relative_to(self.home)}\n"
            + "\n".join(path.read_text(errors="replace").splitlines()[-25:])
            for path in sorted(found)
        )

    def _listens(self) -> bool:
        assert self.running["service"].poll() is None, self.logs()
        return (self.home / "service.json").exists()

    def _start(self, release: Release, name: str, module: str, *arguments: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [release.python, "-P", "-m", module, "--home", str(self.home), *arguments],
                env=self._environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _environment(self) -> dict[str, str]:
        settings = {"BRAIN_HOME": str(self.home), "BRAIN_PORT": self.port}
        return {**os.environ, **settings, "BRAIN_TICK_SECONDS": "0.3", "COLUMNS": "200"}


@contextmanager
def house(home: Path) -> Iterator[House]:
    """A state directory; nothing that serves it outlives the block."""
    home.mkdir(parents=True)
    with guarded(home):
        made = House(home)
        yield made
        for program in [*made.running]:
            made.stop(program)


@dataclass
class Training:
    """What the job's workers wrote down."""

    house: House
    records: Records

    @property
    def found(self) -> Sequence[Proof]:
        """All steps so far."""
        return self.records.look()

    @property
    def epoch(self) -> int:
        """The newest world that made a step."""
        return newest(self.found)

    @property
    def workers(self) -> set[int]:
        """Processes of the newest world."""
        names = [path.name.split("-") for path in self.records.place.iterdir()]
        return {int(pid) for epoch, _, pid, _ in names if int(epoch) == self.epoch}

    def steps(self, more: int, *, size: int | None = None) -> None:
        """Wait until so many more steps were made, by a world of that size."""
        first = max((each.step for each in self.found), default=0)
        self.until(
            lambda: any(
                each.step >= first + more and size in (None, each.size) for each in self.found
            ),
            f"{more} steps after {first}, size {size}",
        )

    def until(self, look: Callable[[], object], what: str) -> None:
        """Wait for something to become true."""
        eventually(look, what, 90, self.house.logs)
