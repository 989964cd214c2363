"""Runs one program once under one launcher, disturbed or not, and records what it did."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.corpus.programs import Program
from benchmarks.elastic.job import MARK, marked
from benchmarks.elastic.launchers import free_port

EVENTS = ("plain", "killed", "resized", "stopped")
#: A run that takes longer is ended and told so.
_RUN_SECONDS = 180.0
#: How long a step lasts until the run is disturbed; where it is resized, as the program says.
_PAUSE_SECONDS: Mapping[str, float] = {"plain": 0.0, "killed": 0.2, "stopped": 0.2}
#: Steps in which a second launcher joins, of the eight from ``moment`` to the last save but one. A
#: world grows at a save, and the last save ends the program.
_JOINING_STEPS = 5
#: What a launcher left may end by itself for so long.
_TIDY_SECONDS = 5.0
_POLL_SECONDS = 0.05
_STEP = re.compile(r"^step (\d+) loss (\S+)$")
_RESUMED = re.compile(r"^resumed at (\d+)$")
_DRAWN = re.compile(r"^drawn (.+)$")
#: What is another in every run of the same launcher.
_PASSING = (
    (r"/[\w./-]*corpus-[\w./-]+", "<work>"),
    (r"\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(,\d+)?|\d\d:\d\d:\d\d(\.\d+)?", "<time>"),
    (r"(?<=<time> )\d+(?= torch/)", "<pid>"),
    (r"0x[0-9a-f]{6,}", "<address>"),
    (r"(?i)(?<=pid[: =])( ?)\d+", "<pid>"),
    (r"(localhost|127\.0\.0\.1):\d+", r"\1:<port>"),
    (r"(_runtime|_per_second|step_time)': '[^']*'", r"\1': <speed>"),
)
#: What tells a person how fast it goes, or what else to buy; bars leave lines of blanks, too.
_PROGRESS = re.compile(r"\d(\.\d+)? ?(it|s|examples|B)/(s|it)\]?|[?]it/s|% ?\||^💡")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The record of one run; if a run was stopped and continued, the record covers both parts."""

    #: Of the launcher, of each in turn where there were several.
    exit_codes: tuple[int, ...]
    #: The loss of each step as it was trained last.
    losses: Mapping[int, str] = field(default_factory=dict)
    #: Steps after which a start of the program went on.
    resumed: tuple[int, ...] = ()
    #: What each rank of each start drew without a seed.
    drawn: tuple[str, ...] = ()
    #: Lines of each worker's output, made stable.
    messages: tuple[str, ...] = ()
    #: Commands of processes that outlived the launcher.
    left: tuple[str, ...] = ()
    #: What the launcher printed last, for a person.
    last_words: str = ""
    seconds: float = 0.0
    #: It was killed, grew, or was stopped while it ran.
    disturbed: bool = True
    #: The run before this one did not end.
    hung: bool = False

    @property
    def final_step(self) -> int:
        """Return the last step that was trained."""
        return max(self.losses, default=0)


class _Place:
    """The directory of one run, with the launchers that work in it."""

    def __init__(
        self, work: Path, programs: Path, launcher: str, program: Program, event: str
    ) -> None:
        self.work = work
        self._pause = work / "pause"
        self.pause(_PAUSE_SECONDS.get(event, program.step_seconds))
        words = {
            "{work}": str(work),
            "{pause}": str(self._pause),
            "{made}": str(programs.parent / "made"),
        }
        self._command = [_filled(part, words) for part in program.command]
        self._launcher = str(programs / launcher)
        self._mark = work.name
        self._port = free_port()
        self._started = 0
        self._read: dict[Path, list[str]] = {}
        self._overwritten: list[str] = []
        self._environment = _environment(work, programs) | {MARK: self._mark}

    def start(self, *flags: str) -> "subprocess.Popen[bytes]":
        """Start a launcher; the launchers of one place meet at one port."""
        self._started += 1
        logs = self.work / "logs" / str(self._started)
        meeting = (
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self._port}",
            f"--rdzv-id={self._mark}",
            "--local-addr=127.0.0.1",
            "--rdzv-conf=last_call_timeout=1",
        )
        said = (self.work / f"launcher-{self._started}.txt").open("wb")
        with said:
            return subprocess.Popen(
                [
                    self._launcher,
                    *meeting,
                    "--redirects=3",
                    f"--log-dir={logs}",
                    *flags,
                    *self._command,
                ],
                env=self._environment,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pause(self, seconds: float) -> None:
        """Lengthen each step by a number of seconds from now on."""
        new = self._pause.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._pause)

    def move(self) -> None:
        """Let the next launchers meet at another port, because earlier ones may still hold the
        present port.
        """
        self._port = free_port()

    def lines(self) -> list[str]:
        """Return the lines that workers have printed to standard output so far, by start and rank.

        torchrun overwrites the logs of a world that grew, so lines that were already read are kept.
        """
        now = _lines(self.work, "stdout.log")
        for path, before in self._read.items():
            if now.get(path, [])[: len(before) - 1] != before[:-1]:
                self._overwritten += before
        self._read = now
        return [*self._overwritten, *(line for lines in now.values() for line in lines)]

    def errors(self) -> list[str]:
        """Return the lines that workers printed to standard error, each line once."""
        return sorted(
            {line for lines in _lines(self.work, "stderr.log").values() for line in lines}
        )

    def pids(self) -> list[int]:
        return marked(self._mark)

    def last_words(self) -> str:
        said = sorted(self.work.glob("launcher-*.txt"))
        return "\n".join(path.read_text(errors="replace")[-1_500:] for path in said)


def run(program: Program, launcher: str, event: str, programs: Path) -> Seen:
    """Run ``program`` under ``launcher``, which is in the directory ``programs``, and cause
    ``event``.
    """
    with tempfile.TemporaryDirectory(prefix="corpus-") as work:
        place = _Place(Path(work), programs, launcher, program, event)
        began = time.monotonic()
        try:
            codes, disturbed = _ACTS[event](place, program)
            left = _left(place)
        finally:
            for pid in place.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        lines = place.lines()
        messages = [*lines, *place.errors()]
        return Seen(
            exit_codes=codes,
            losses={int(found[1]): found[2] for line in lines if (found := _STEP.match(line))},
            resumed=tuple(int(found[1]) for line in lines if (found := _RESUMED.match(line))),
            drawn=tuple(found[1] for line in lines if (found := _DRAWN.match(line))),
            messages=tuple(
                stable(line)
                for line in messages
                if line.strip() and not (_DRAWN.match(line) or _PROGRESS.search(line))
            ),
            left=left,
            last_words=place.last_words(),
            seconds=time.monotonic() - began,
            disturbed=disturbed,
        )


def stable(line: str) -> str:
    """Return a line without the parts that differ between two runs of the same launcher."""
    for pattern, name in _PASSING:
        line = re.sub(pattern, name, line)
    return line


def _filled(part: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        part = part.replace(word, value)
    return part


def _plain(place: _Place, program: Program) -> tuple[tuple[int, ...], bool]:
    return (_ended(place.start("--nnodes=1", "--nproc-per-node=2")),), True


def _killed(place: _Place, program: Program) -> tuple[tuple[int, ...], bool]:
    launcher = place.start("--nnodes=1", "--nproc-per-node=2", "--max-restarts=2")
    came = _moment(place, program, launcher)
    worker = _worker(place, 1, 1)
    if worker is not None:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    place.pause(0)
    return (_ended(launcher),), came and worker is not None


def _resized(place: _Place, program: Program) -> tuple[tuple[int, ...], bool]:
    flags = ("--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=2")
    began = time.monotonic()
    first = place.start(*flags)
    came = _moment(place, program, first)
    place.pause(joining_pause(program.step_seconds, time.monotonic() - began))
    second = place.start(*flags)
    grew = False
    while not grew and first.poll() is None:
        grew = _has_grown(place, program)
        time.sleep(_POLL_SECONDS)
    place.pause(0)
    return (_ended(first), _ended(second)), came and grew


def joining_pause(step_seconds: float, first_seconds: float) -> float:
    """Return the seconds that a step lasts while the second launcher joins, which imports as much
    as the first.

    ``first_seconds`` is the time from the start of the first launcher until now, which is longer on
    a busy machine.
    """
    return max(step_seconds, first_seconds / _JOINING_STEPS)


def _has_grown(place: _Place, program: Program) -> bool:
    """Return True if a world of two trains. A worker of it may still wait for the safe point, so a
    program that resumes shows this by resuming.
    """
    if program.resumes:
        return any(_RESUMED.match(line) for line in place.lines())
    return None not in (_worker(place, 1, 0), _worker(place, 2, 0))


def _stopped(place: _Place, program: Program) -> tuple[tuple[int, ...], bool]:
    flags = ("--nnodes=1", "--nproc-per-node=2")
    first = place.start(*flags)
    came = _moment(place, program, first)
    first.send_signal(signal.SIGTERM)
    code = _ended(first)
    place.pause(0)
    place.move()
    return (code, _ended(place.start(*flags))), came


_ACTS: Mapping[str, Callable[[_Place, Program], tuple[tuple[int, ...], bool]]] = {
    "plain": _plain,
    "killed": _killed,
    "resized": _resized,
    "stopped": _stopped,
}


def _moment(place: _Place, program: Program, launcher: "subprocess.Popen[bytes]") -> bool:
    """Wait for the moment at which the program is disturbed; return True if it came before the
    launcher ended.
    """
    wanted = re.compile(program.moment)
    deadline = time.monotonic() + _RUN_SECONDS
    while not any(wanted.search(line) for line in place.lines()):
        if launcher.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _ended(launcher: "subprocess.Popen[bytes]") -> int:
    """Return the launcher's exit code; that of SIGKILL if the launcher had to be killed."""
    try:
        return launcher.wait(timeout=_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        return launcher.wait()


def _left(place: _Place) -> tuple[str, ...]:
    deadline = time.monotonic() + _TIDY_SECONDS
    while place.pids() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    found = []
    for pid in place.pids():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found.append(stable(b" ".join(words).decode(errors="replace").strip()))
    return tuple(sorted(found))


def _worker(place: _Place, launcher: int, rank: int) -> int | None:
    """Return the pid of a rank that the first or second launcher started, found by its output
    files.

    A worker's environment does not help, because a forked worker shows the environment of its
    parent.
    """
    logs, name = str(place.work / "logs" / str(launcher)), f"/{rank}/stdout.log"
    for pid in sorted(place.pids()):
        with suppress(OSError):
            prints = os.readlink(f"/proc/{pid}/fd/1")
            if prints.startswith(f"{logs}/") and prints.endswith(name):
                return pid
    return None


def _lines(work: Path, name: str) -> dict[Path, list[str]]:
    paths = sorted(work.glob(f"logs/**/{name}"), key=lambda path: path.stat().st_ctime)
    return {path: path.read_text(errors="backslashreplace").splitlines() for path in paths}


def _environment(work: Path, programs: Path) -> dict[str, str]:
    """Return an environment without the caller's variables, without network, and with its own home
    directory.
    """
    return {
        "PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(work),
        "BRAIN_HOME": str(work / "brain"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # Without it no join succeeds under torchrun 2.13: `wait timeout … MASTER_ADDR` after 60 s.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
