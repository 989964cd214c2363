"""Ends all that a test started for a state directory, also where the test itself is killed.

A process of its own, because a test that runs into its time limit may not get to clean up. It reads
the directory from standard input and then waits for the end of that stream.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from tests.patience import Patience

ROOT = Path(__file__).parents[1]
#: Seconds that ``brain up`` has to end.
_GRACE_SECONDS = 40.0


@contextmanager
def guarded(home: Path) -> Iterator[None]:
    """Nothing that names ``home`` is left after the block, however it ends."""
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.guard"],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    assert guard.stdin is not None
    guard.stdin.write(f"{home}\n".encode())
    guard.stdin.flush()
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait()


def processes(home: Path) -> Iterator[tuple[int, list[str]]]:
    """Other processes that name ``home`` or work in it, with their words: a forked worker, whose
    environment does not show, works in its job's directory.
    """
    needle = str(home).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            known = needle in line or needle in (entry / "environ").read_bytes()
            known = known or (entry / "cwd").readlink().is_relative_to(home)
        except OSError:
            continue
        if line and known:
            yield int(entry.name), line.decode(errors="replace").split("\0")


def end(home: Path, spared: int) -> None:
    """Ask all processes of ``home`` but one to end; once ``brain up`` has, kill the others."""
    patience = Patience(_GRACE_SECONDS)
    _signal(home, spared, signal.SIGTERM)
    while any({"brain.cli", "up"} <= set(words) for _, words in processes(home)):
        if patience.over:
            break
        time.sleep(0.1)
    while _signal(home, spared, signal.SIGKILL):
        time.sleep(0.1)
    remove_groups(home)


def remove_groups(home: Path) -> None:
    """Remove the empty control groups of replicas, where no scaler is left that would."""
    for group in Path("/sys/fs/cgroup").rglob(f"brain-{crc32(os.fsencode(home)):08x}-*"):
        with suppress(OSError):
            group.rmdir()


def _signal(home: Path, spared: int, number: signal.Signals) -> bool:
    """Send a signal to all of them; False where there are none."""
    found = [pid for pid, _ in processes(home) if pid != spared]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(found)


if __name__ == "__main__":
    # The test's command line may name the directory, too.
    test = os.getppid()
    directory = Path(sys.stdin.buffer.readline().decode().rstrip("\n"))
    sys.stdin.buffer.read()
    end(directory, spared=test)
