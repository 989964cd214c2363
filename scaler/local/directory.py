"""The directory of one replica: the writer of each file, and the fact that the file proves.

    file         writer                                    fact
    intent.json  scaler, before anything is started        the replica is written down
    limits.json  scaler, before the start and at changes   its reservation, and what enforces it
    agent.log    scaler, created as it starts the agent    at most one agent was ever started
    lock         agent, before anything else, for its life the agent runs
    state.json   agent                                     the agent had the lock: pid, start time
    exit.json    agent, the last thing it writes           how the agent ended
    gone.json    scaler, if the agent left no report       that the agent ended, and why

The agent inherits ``agent.log`` as its output, and the scaler locks that file for it. If this lock
is held, an agent was started that may not have taken its own ``lock`` yet; if not, no agent
started, or it has ended. So no other process needs to test a ``lock`` that an agent is about to
take.
"""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from brain.types.world import ReplicaEnd
from scaler.files import hand_over, locked, read_json, write_json
from scaler.ports import ReplicaPhase

T = TypeVar("T")

#: Characters of the agent's last output that are kept as the reason of its end.
_LAST_WORDS = 300
_DIRECTORY = "--replica-dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The state that an agent writes once it has its lock."""

    pid: int
    #: Field 22 of ``/proc/<pid>/stat``; with the pid it identifies one process.
    started_ticks: int
    #: Seconds that the agent gives its workers to save and end; None if not recorded.
    grace_seconds: float | None = None


class ReplicaDirectory:
    """The scaler's access to ``$BRAIN_HOME/replicas/<job>/<id>``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, intent: Mapping[str, object]) -> bool:
        """Record the replica by writing its intent to storage; return False if another scaler has
        done so.

        Raises:
            OSError: the intent cannot be written; the directory is removed again.
        """
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        try:
            hand_over(self.path, self.path.parent)
            write_json(self.path / "intent.json", intent)
        except OSError:
            # Otherwise a full disk would leave another directory behind at every attempt.
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        return True

    def intent(self, kind: type[T]) -> T | None:
        """Read the intent; None if a crash left a directory without one."""
        return read_json(self.path / "intent.json", kind)

    def state(self) -> AgentState | None:
        """Read the agent's state: the process that took the lock."""
        return read_json(self.path / "state.json", AgentState)

    def agent(self) -> int | None:
        """Return the pid of the process that is certainly the agent; None if there is none.

        A job that runs as the agent's user can also write ``state.json``, and could name another
        process there, which Brain would then end, or whose environment Brain would read. So the
        process must have this directory among its arguments; only the agent and the job's own
        processes have it.
        """
        state = self.state()
        if state is None or not self.runs() or started_ticks(state.pid) != state.started_ticks:
            return None
        with suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{state.pid}/cmdline").read_bytes()
            if b"\0".join((b"", _DIRECTORY.encode(), bytes(self.path), b"")) in words:
                return state.pid
        return None

    def ending(self) -> ReplicaEnd | None:
        """Read how the agent ended: from its own record, else from a scaler's record."""
        names = ("exit.json", "gone.json")
        found = (read_json(self.path / name, ReplicaEnd) for name in names)
        return next((ending for ending in found if ending), None)

    def runs(self) -> bool:
        """True if an agent holds the lock.

        The lock is tested only if ``state.json`` shows that an agent has had it. Otherwise the test
        could disturb an agent that is about to take the lock.
        """
        return (self.path / "state.json").exists() and locked(self.path / "lock")

    def launched(self) -> bool:
        """True if an agent was ever started here."""
        return (self.path / "agent.log").exists()

    def starting(self) -> bool:
        """True if an agent was started and still has its output open."""
        return locked(self.path / "agent.log")

    def phase(self) -> ReplicaPhase:
        """Return the phase that the files prove; a held lock is the strongest proof."""
        if self.runs():
            return ReplicaPhase.RUNNING
        if self.ending():
            return ReplicaPhase.ENDED
        if self.state() is None and self.starting():
            return ReplicaPhase.STARTING
        if not self.launched():
            return ReplicaPhase.INTENDED
        # Since the first look an agent may have taken its lock, or even ended.
        if self.runs():
            return ReplicaPhase.RUNNING
        return ReplicaPhase.ENDED if self.ending() else ReplicaPhase.GONE

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str], directory: str
    ) -> subprocess.Popen[bytes] | None:
        """Start the agent in a new Unix session; return None if an agent was started here before.

        Raises:
            OSError: the agent cannot be started; its directory does not exist, for example.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        try:
            output = os.open(self.path / "agent.log", flags, 0o600)
        except FileExistsError:
            return None
        try:
            hand_over(output, self.path)
            fcntl.flock(output, fcntl.LOCK_EX)
            return subprocess.Popen(
                [*command, _DIRECTORY, str(self.path)],
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the agent; return False if no process is certainly the agent."""
        pid = self.agent()
        if pid is None:
            return False
        with process(pid) as descriptor:
            # Looked at again behind the descriptor, which can mean no other process from here on.
            if descriptor is None or self.agent() != pid:
                return False
            signal.pidfd_send_signal(descriptor, number)
            return True

    def close(self, ending: ReplicaEnd) -> None:
        """Record how the replica ended, unless it is alive or has its own record."""
        if not (self.runs() or self.starting() or self.ending()):
            write_json(self.path / "gone.json", ending)

    def last_words(self) -> str:
        """Return the last line that the agent printed."""
        try:
            with (self.path / "agent.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                text = file.read(4096).decode(errors="replace")
        except FileNotFoundError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1][-_LAST_WORDS:] if lines else ""


def started_ticks(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may contain spaces and parentheses; the fields after its last one do not.
    return int(stat.rpartition(")")[2].split()[19])


@contextmanager
def process(pid: int) -> Iterator[int | None]:
    """Open a descriptor of a process, valid even if the pid is reused; None if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _signal(number: int) -> str:
    """Return a signal's name; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how(code: int | None, last_words: str) -> str:
    if code is None:
        said = "its agent disappeared without writing a reason"
    elif code < 0:
        said = f"its agent was ended by {_signal(-code)}"
    else:
        said = f"its agent exited with code {code}"
    return f"{said}; its last output: {last_words}" if last_words else said
