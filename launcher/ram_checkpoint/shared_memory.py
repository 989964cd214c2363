"""An agent's RAM checkpoint: its directory of shared memory, and the flusher.

The directory outlives workers. The flusher (``flusher.py``) outlives a killed agent just long
enough to write accepted saves to storage.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from brain.errors import Unavailable
from launcher.ram_checkpoint import flusher
from launcher.values.ram_checkpoint.links import SHARED, mark, mine

#: Names in it are this long at most, so that the flusher's socket has room in its path.
_NAME_CHARACTERS = 60
_LOOK_SECONDS = 0.01
#: A line of the flusher's; one that tells of many saves is long.
_LINE_BYTES = 1 << 26
#: One that ends sooner after its first word, or without any, failed at once; so many times, and
#: this agent leaves without it.
_AT_ONCE_SECONDS, _FAILURES = 1.0, 3
_FLUSHER = (sys.executable, "-E", "-P", "-m", "launcher.ram_checkpoint.flusher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A save in memory that is not on storage yet."""

    pid: int
    path: str
    bytes: int
    #: Seconds since the epoch; None while ``torch.save`` has not returned.
    accepted: float | None
    #: Storage refuses it.
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    ahead: tuple[Ahead, ...] = ()
    #: Saves that were given up, with the reason.
    lost: tuple[str, ...] = ()
    #: Steps of ``launcher.checkpoint`` in memory, saved here, and when the newest was.
    steps: tuple[int, ...] = ()
    accepted: float | None = None
    #: One of them is not on storage, though it shall be.
    behind: bool = False
    #: The newest number of ``persist`` that is done with.
    answered: int = 0
    #: Why a worker saves directly to storage; empty if none does.
    off: str = ""


class SharedMemory:
    """The shared memory of one agent; create it with ``open``, end it with ``close``."""

    def __init__(
        self, root: Path, lock: int, say: Callable[[str], None], news: Callable[[], None]
    ) -> None:
        """Use ``open``."""
        self.root = root
        self._lock, self._say, self._news = lock, say, news
        self._report = _Report()
        self._losses_said = 0
        #: Times that ``persist`` was called.
        self._asked = 0
        self._closing = False
        self._flusher = self._start_flusher()
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    def open(
        cls,
        root: Path,
        registry: Path,
        say: Callable[[str], None],
        news: Callable[[], None] = lambda: None,
    ) -> "SharedMemory":
        """Create the directory ``root``, and return the RAM checkpoint; ``news`` is called at each
        message from the flusher.

        Also finish directories that ended agents left, and repair links that a crash of the machine
        broke.

        Raises:
            Unavailable: there is no writable shared memory.
        """
        for orphan in orphans():
            adopt(orphan)
        for gone in SHARED.glob(f".gone-brain-{os.getuid()}-*"):
            shutil.rmtree(gone, ignore_errors=True)
        try:
            repair(registry, say)
            registry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = _make(root)
        except OSError as cannot:
            raise Unavailable(f"there is no RAM checkpoint: {cannot}") from cannot
        return cls(root, lock, say, news)

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """Saves that are not on storage yet, according to the flusher's last message."""
        return self._report.ahead

    @property
    def ahead_since(self) -> float | None:
        """Time (Unix seconds) when the oldest save that is not on storage was accepted; None if all
        saves are on storage.
        """
        report = self._report
        since = [each.accepted for each in report.ahead if each.accepted is not None]
        since += [report.accepted] if report.behind and report.accepted is not None else []
        return min(since, default=None)

    @property
    def off(self) -> str:
        """Return the reason why a worker saves directly to storage; empty if no worker does."""
        return self._report.off

    def persist(self) -> None:
        """Also write to storage the steps that were meant to stay in memory."""
        self._asked += 1
        self._ask()

    async def persisted(self) -> None:
        """Wait until the writes of ``persist`` are done."""
        while self._report.answered < self._asked:
            await asyncio.sleep(_LOOK_SECONDS)

    def _ask(self) -> None:
        assert self._flusher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._flusher.stdin.write(b"%d\n" % self._asked)

    @property
    def flusher_pid(self) -> int:
        """Return the pid of the process that writes to storage."""
        return self._flusher.pid

    def holds(self, pid: int | None = None) -> bool:
        """True if a save is not on storage yet; with ``pid``, only saves of this worker count."""
        mark = "slot-" if pid is None else f"slot-{pid}-"
        with contextlib.suppress(FileNotFoundError):
            return any(name.startswith(mark) for name in os.listdir(self.root))
        return False

    async def settled(self, pid: int | None = None) -> str | None:
        """Wait until all saves are on storage or lost; with ``pid``, wait only for the saves of
        this worker. Return the errors of saves that were lost meanwhile; None if none was lost.
        """
        before = len(self._report.lost)
        while self.holds(pid):
            await asyncio.sleep(_LOOK_SECONDS)
        if len(self._report.lost) > before:
            return "; ".join(self._report.lost[before:])
        return None

    async def close(self) -> None:
        """Write all saves to storage, then free the memory."""
        self._closing = True
        assert self._flusher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._flusher.stdin.close()
        await self._watching
        os.close(self._lock)
        if self._flusher.stdin is not None:
            self._flusher.stdin.close()

    def _start_flusher(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*_FLUSHER, str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._lock,),
            bufsize=0,
            cwd="/",
            start_new_session=True,
        )

    async def _watch(self) -> None:
        """Read the flusher's messages; start another flusher if it was killed."""
        failures = 0
        while True:
            began = await self._listen()
            code = await asyncio.to_thread(self._flusher.wait)
            # Its code alone says nothing: it is done when it has given the memory back.
            if code == 0 and not self.root.is_dir():
                if self._closing:
                    return
                self._say(f"{self.root} was removed; checkpoints go directly to storage")
                return
            at_once = began is None or time.monotonic() - began < _AT_ONCE_SECONDS
            failures = failures + 1 if at_once else 0
            if self._closing and failures >= _FAILURES:
                self._say(
                    f"the checkpoint in {self.root} could not be written to storage; the next "
                    "start tries again"
                )
                return
            self._say(
                f"the flusher of the RAM checkpoint exited with code {code}; another one starts"
            )
            if failures:
                await asyncio.sleep(_AT_ONCE_SECONDS)
            if self._flusher.stdin is not None:
                self._flusher.stdin.close()
            self._flusher = self._start_flusher()
            if self._asked:
                self._ask()
            if self._closing:
                assert self._flusher.stdin is not None
                self._flusher.stdin.close()

    async def _listen(self) -> float | None:
        """Read one flusher's messages to its end; return the ``time.monotonic`` of the first
        message, so that a slow start does not count.
        """
        began = None
        reader = asyncio.StreamReader(limit=_LINE_BYTES)
        loop, pipe = asyncio.get_running_loop(), self._flusher.stdout
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await reader.readline():
                began = began or time.monotonic()
                self._report = msgspec.json.decode(line, type=_Report)
                for lost in self._report.lost[self._losses_said :]:
                    self._say(f"a save in memory was not written to storage: {lost}")
                self._losses_said = len(self._report.lost)
                self._news()
        finally:
            transport.close()
        return began


def plain(job: str) -> str:
    """Return a job's name in a form that file names allow."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", job)[: _NAME_CHARACTERS - 20]


def orphans() -> list[Path]:
    """Return this user's directories of shared memory whose agent and flusher have ended."""
    found = filter(mine, SHARED.glob(f"brain-{os.getuid()}-*"))
    return [path for path in found if (path / "lock").exists() and not flusher.held(str(path))]


def adopt(root: Path) -> None:
    """Start a flusher that writes accepted saves to storage and removes the directory, unless a
    flusher already runs.
    """
    try:
        lock = os.open(root / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finishing = subprocess.Popen(
            [*_FLUSHER, str(root)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(lock,),
            cwd="/",
            start_new_session=True,
        )
        # It ends by itself; nobody else would take its end from the kernel.
        threading.Thread(target=finishing.wait, daemon=True).start()
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def repair(registry: Path, say: Callable[[str], None]) -> None:
    """Replace each link into memory that no longer exists by the durable file that was kept for it.

    ``registry`` lists the directories in which workers have saved through memory.
    """
    if not registry.exists():
        return
    for directory in dict.fromkeys(registry.read_text().splitlines()):
        with contextlib.suppress(OSError):  # gone, or not ours any more
            _repair_in(Path(directory), say)


def _repair_in(directory: Path, say: Callable[[str], None]) -> None:
    for entry in sorted(directory.iterdir()):
        if not entry.is_symlink() or not (target := os.readlink(entry)).startswith(mark()):
            continue
        if os.path.exists(target):
            continue
        keep = directory / f".brain-keep-{_job_of(target)}-{entry.name}~"
        if keep.exists():
            os.replace(keep, entry)
            say(
                f"{entry} had not reached storage when the machine went down; the previous save "
                "was restored"
            )
        else:
            entry.unlink()
            if not entry.name.startswith(".brain-"):
                say(
                    f"{entry} had not reached storage when the machine went down; this save is lost"
                )
    for left in directory.glob(".brain-new-*"):
        owner = left.name.removeprefix(".brain-new-").rsplit("-", 2)[0]
        if owner.startswith(f"brain-{os.getuid()}-") and not (SHARED / owner).exists():
            left.unlink()


def _job_of(target: str) -> str:
    """Return the job's part of the directory name in a link."""
    name = Path(target).relative_to(SHARED).parts[0]
    return name.removeprefix(f"brain-{os.getuid()}-").rpartition("-")[0]


def new_root(job: str, replica: int) -> Path:
    """Return a path for a new directory of shared memory.

    Two jobs may have the same name, and the directory is made much later, so the path ends in
    random digits.
    """
    own = os.urandom(4).hex()
    return SHARED / f"brain-{os.getuid()}-{plain(job)}-{max(replica, 0)}.{own}"


def _make(root: Path) -> int:
    """Make the directory, locked before another process can find it; return the lock's
    descriptor.
    """
    made = Path(tempfile.mkdtemp(prefix=f".brain-{os.getuid()}-", dir=SHARED))
    lock = os.open(made / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (made / "steps").mkdir()
        os.rename(made, root)
    except OSError:
        os.close(lock)
        shutil.rmtree(made)
        raise
    return lock


def words(root: Path, declared: str | None, registry: Path, *, shim: bool) -> dict[str, object]:
    """Return the value of the field ``memory`` in BRAIN_WORKER, which workers read."""
    return {
        "directory": str(root),
        "job": _job_of(str(root)),
        "shim": shim,
        "declared": declared,
        "registry": str(registry),
    }
