"""The files of a replica and its job: locks, the scaler's request, the agent's report.

docs/reference/protocols.md describes the layout. Locks are ``flock``: the kernel releases a lock
when the process that holds it ends, so a free lock proves that the process has ended.
"""

import fcntl
import os
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from brain import wire
from brain.errors import BadInput
from brain.types.job import Checkpoint
from brain.types.world import ReplicaEnd

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIntent:
    """A scaler's order for a replica: ``intent.json``, written before the agent starts."""

    v: int = 1
    job: str
    name: str
    replica: int
    #: Role of its pod, or the group of the replica.
    role: str = "worker"
    node: str = "localhost"
    generation: int = 0
    #: As submitted.
    command: tuple[str, ...]
    processes: int = 1
    directory: str | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    unit: int = 1
    minimum: int = 1
    restart_limit: int = 10
    brain_url: str | None = None
    token_file: str | None = None
    home: str
    accelerator: str | None = None
    #: Address at which agents on other machines reach this one; None if all are on this machine.
    address: str | None = None
    port: int = 0
    #: File in which the scaler keeps the other agents' addresses.
    place_file: str | None = None
    #: Zone, spine, rack and switch of its node with ``/`` between them; empty: not known.
    topology: str = ""
    #: Replicas beyond the desired world are kept warm instead of being let go.
    spares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """``state.json``: the process that runs the replica."""

    pid: int
    #: Field 22 of ``/proc/<pid>/stat``; with the pid it names a process for good.
    started_ticks: int
    generation: int
    address: str
    #: ``starting``, ``waiting``, ``running`` or ``stopping``.
    phase: str
    #: Seconds that its workers get to save and end; None until it has read its command.
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinating:
    """``coordinator.json``: the agent that forms worlds."""

    pid: int
    #: host:port.
    address: str
    epoch: int
    #: Rises with every agent that takes the leadership; the highest term holds it.
    term: int = 0
    #: Start time of the process, which names it together with ``pid``.
    ticks: int = 0


class Lock:
    """An exclusive flock, held from ``take`` until ``release`` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def take(self) -> bool:
        """Take the lock; return False if another process holds it. A second call changes
        nothing.
        """
        if self._fd is not None:
            return True
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def stands(self) -> bool:
        """True while ``path`` is still the file that this process has locked, so nobody has deleted
        the file.
        """
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # a file system that does not answer proves nothing

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def held(path: Path) -> bool:
    """True if some process holds the lock at ``path``; if the file is missing, the lock is free."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def write(path: Path, value: object, *, durable: bool = True) -> None:
    """Replace the file by ``value`` as JSON; readers see either the old or the new content.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(wire.encode(value))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def settle(path: Path) -> None:
    """Sync ``path`` to disk, so that it survives a power cut; a missing file is no error.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    for each in (path, path.parent):
        try:
            fd = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read(path: Path, kind: type[T]) -> T | None:
    """Return the value that ``write`` wrote; None if the file is missing or empty (after a power
    cut).

    Raises:
        BadInput: the file's content has another shape; the message names the file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return wire.decode(content, kind) if content else None
    except BadInput as bad:
        raise BadInput(f"{path}: {bad}", field=bad.field) from bad


class ReplicaPlace:
    """``$BRAIN_HOME/replicas/<job>/<id>/``: the files of a replica, for its agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "output.log"
        self.lock = Lock(directory / "lock")

    def intent(self) -> ReplicaIntent:
        """Read the scaler's intent.

        Raises:
            BadInput: the file is missing or malformed.
        """
        intent = read(self.directory / "intent.json", ReplicaIntent)
        if intent is None:
            raise BadInput(
                f"{self.directory}/intent.json is missing; start the agent through the scaler, "
                "which writes this file"
            )
        wire.check_version(intent.v, sender="the scaler")
        return intent

    def status(
        self, *, generation: int, address: str, phase: str, grace_seconds: float | None = None
    ) -> None:
        """Write which process runs the replica, and the replica's phase."""
        status = ReplicaStatus(
            pid=os.getpid(),
            started_ticks=started_ticks(os.getpid()),
            generation=generation,
            address=address,
            phase=phase,
            grace_seconds=grace_seconds,
        )
        # Whom it is about does not outlive a power cut either.
        write(self.directory / "state.json", status, durable=False)

    def end(self, ended: ReplicaEnd) -> None:
        """Write the replica's end."""
        write(self.directory / "exit.json", replace(ended, at=datetime.now(UTC)))


class JobPlace:
    """``$BRAIN_HOME/replicas/<job>/``: the files of a job, for the agent that coordinates."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = Lock(directory / "coordinator.lock")

    def keep(self, name: str, value: object, *, durable: bool = True) -> Path:
        """Write ``<name>.json``; return its path."""
        path = self.directory / f"{name}.json"
        write(path, value, durable=durable)
        return path

    def find(self, name: str, kind: type[T]) -> T | None:
        """Read ``<name>.json``; None if it is missing."""
        return read(self.directory / f"{name}.json", kind)

    def alive(self, replica: int) -> bool:
        """True if a replica's agent runs, because its lock is held."""
        return held(self.directory / str(replica) / "lock")


def started_ticks(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
