"""Try what a job must not do to the Brain that runs it: ``attacker.py HOME PIDS SOCKET FILE…``.

``SOCKET``: of a program of the user who started Brain.

Prints one JSON object: each attempt, and why it failed; null where it succeeded.
"""

import ctypes
import json
import multiprocessing.shared_memory
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HOME = Path(sys.argv[1])
PIDS = [int(word) for word in sys.argv[2].split(",")]
SOCKET = sys.argv[3]
OTHERS = [Path(word) for word in sys.argv[4:]]
PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)


def called(answer: int) -> None:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def connect(path: Path, kind: socket.SocketKind = socket.SOCK_DGRAM) -> None:
    with socket.socket(socket.AF_UNIX, kind) as sending:
        sending.connect(str(path))


def memory(pid: int) -> None:
    with open(f"/proc/{pid}/mem", "rb"):
        pass


def open_all(descriptors: Path) -> None:
    for each in descriptors.iterdir():
        each.stat()


def replica() -> Path:
    """The directory of this job's replica, as its agent was told."""
    pid = os.getpid()
    while pid > 1:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "--replica-dir" in words:
            return Path(words[words.index("--replica-dir") + 1])
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise SystemExit("no agent started this")


def mislead(secret: Path, name: str) -> None:
    """Have the service take its own secret for a file of this job."""
    there = replica() / name
    there.unlink(missing_ok=True)
    there.symlink_to(secret)


def harmful() -> dict[str, Callable[[], object]]:
    tries: dict[str, Callable[[], object]] = {}
    names = ("admin.token", "scaler.token", "key", "brain.db", "service.json", "wishes.json")
    for secret in [*(HOME / name for name in names), *OTHERS]:
        tries[f"read {secret}"] = secret.read_bytes
        tries[f"write {secret}"] = lambda secret=secret: secret.open("ab").close()
        tries[f"open {secret} to all"] = lambda secret=secret: secret.chmod(0o666)
        tries[f"link {secret}"] = lambda secret=secret: os.link(secret, replica() / "linked")
        tries[f"replace {secret}"] = lambda secret=secret: Path("made").replace(secret)
    tries["list the state directory"] = lambda: (HOME / "logs").iterdir().__next__()
    tries["open the state directory to all"] = lambda: HOME.chmod(0o777)
    tries["connect to the collector"] = lambda: connect(HOME / "collector" / "probe.sock")
    tries["connect to a program of the user"] = lambda: connect(Path(SOCKET), socket.SOCK_STREAM)
    for name in ("output.log", "agent.log", "exit.json", "other"):
        tries[f"a link as {name}"] = lambda name=name: mislead(HOME / "admin.token", name)
    tries["a pipe as exit.json"] = lambda: os.mkfifo(replica() / "exit.json")
    tries["a directory of links"] = lambda: (replica().parent / "9").symlink_to(HOME)
    place = replica().parents[3]
    tries["put its home where its logs are"] = lambda: (place / "brain").rename(place / "before")
    tries["move the directory of the service"] = lambda: HOME.parent.rename(HOME.parents[1] / "x")
    for pid in PIDS:
        tries[f"environ of {pid}"] = Path(f"/proc/{pid}/environ").read_bytes
        tries[f"memory of {pid}"] = lambda pid=pid: memory(pid)
        tries[f"files of {pid}"] = lambda pid=pid: open_all(Path(f"/proc/{pid}/fd"))
        tries[f"root of {pid}"] = lambda pid=pid: os.listdir(f"/proc/{pid}/root")
        tries[f"trace {pid}"] = lambda pid=pid: called(libc.ptrace(PTRACE_SEIZE, pid, None, None))
        tries[f"signal {pid}"] = lambda pid=pid: os.kill(pid, 0)
        tries[f"signal {pid} by its descriptor"] = lambda pid=pid: signal.pidfd_send_signal(
            os.pidfd_open(pid), signal.SIGWINCH
        )
    tries["become root"] = lambda: subprocess.run(["su", "-c", "true"], check=True, timeout=20)
    return tries


def ordinary() -> dict[str, Callable[[], object]]:
    def share() -> None:
        shared = multiprocessing.shared_memory.SharedMemory(create=True, size=1024)
        shared.close()
        shared.unlink()

    return {
        "shared memory": share,
        "a temporary file": lambda: tempfile.NamedTemporaryFile().close(),
        "a file in its home": lambda: (Path.home() / "made").write_text("made"),
        "a link in its home": lambda: (Path.home() / "link").symlink_to("made"),
        "a device": lambda: Path("/dev/null").write_text("x"),
        "a child": lambda: subprocess.run(["sleep", "0"], check=True, timeout=20),
        "a signal to a child": lambda: subprocess.Popen(["sleep", "60"]).kill(),
    }


def outcome(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except (OSError, subprocess.SubprocessError) as why:
        return f"{type(why).__name__}: {why}"
    return None


Path("made").write_text("made")
said = {
    "uid": os.getuid(),
    "ordinary": {name: outcome(attempt) for name, attempt in ordinary().items()},
    "harmful": {name: outcome(attempt) for name, attempt in harmful().items()},
}
Path("said.partial").write_text(json.dumps(said))
Path("said.partial").rename("said.json")
