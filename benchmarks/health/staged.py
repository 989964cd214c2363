"""Causes thirty failures, and compares the launcher's report with the truth: the first failed rank,
and the kind of failure.

Most failures are real: ``brain-run`` starts ranks that talk to each other over TCP. One rank fails,
and the others fail because of it, as ranks in a collective do; then the launcher's final report is
read. Failures that this machine cannot cause are recorded: the launcher's own code reads files like
those that the kernel and the driver would write.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.resources import NodeName
from launcher.values.diagnosis.first import MEANING, Failed, GoneNode, diagnose
from launcher.values.diagnosis.signs import Signs
from launcher.workers.processes import evidence

_SECONDS = 60.0
_SCRIPT = """
import errno, os, signal, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

def meet():
    if rank == 0:
        listening = socket.create_server((host, port))
        return [listening.accept()[0] for _ in range(size - 1)]
    while True:
        try:
            return [socket.create_connection((host, port))]
        except OSError:
            time.sleep(0.02)

def wait_for_peers():
    import select
    while True:
        for peer in select.select(peers, [], [])[0]:
            if not peer.recv(1):
                raise ConnectionResetError(104, "Connection reset by peer")

def fail():
{body}

peers = meet()
# All have met: rank 0 tells them so.
for peer in peers:
    peer.sendall(b"x") if rank == 0 else peer.recv(1)
fail() if rank == {rank} else wait_for_peers()
wait_for_peers()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One failure, and the report that is expected."""

    name: str
    kind: FailureKind
    #: Rank that fails first; None where no single one does.
    rank: int | None
    #: What that rank does; nothing where it is recorded.
    body: str = ""
    processes: int = 3
    flags: tuple[str, ...] = ()
    recorded: Callable[[Path], Diagnosis | None] | None = None

    @property
    def real(self) -> bool:
        """Return True if real processes run."""
        return self.recorded is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The launcher's report of a failure."""

    kind: FailureKind | None
    rank: int | None
    sentence: str


def play(case: Case) -> Told | None:
    """Cause the failure; return the launcher's report, None if there was none."""
    with tempfile.TemporaryDirectory(prefix="brain-health-") as scratch:
        if case.recorded is not None:
            found = case.recorded(Path(scratch))
            return found and Told(kind=found.kind, rank=found.rank, sentence=found.sentence)
        return _run(case, Path(scratch))


def said(told: Told | None) -> str:
    """Return the report as one line."""
    return "nothing was said" if told is None else told.sentence


def _run(case: Case, scratch: Path) -> Told | None:
    body = "\n".join(f"    {line}" for line in case.body.strip().splitlines())
    script = scratch / "train.py"
    script.write_text(_SCRIPT.replace("{body}", body).replace("{rank}", str(case.rank)))
    command = [sys.executable, "-m", "launcher.cli", "--standalone", "--preload=none"]
    command += [f"--nproc-per-node={case.processes}", *case.flags, str(script)]
    home = {"HOME": str(scratch), "BRAIN_HOME": str(scratch / "home"), "LOGS": str(scratch)}
    ran = subprocess.run(
        command, cwd=scratch, env=os.environ | home, capture_output=True, timeout=_SECONDS
    )
    lines = ran.stderr.decode(errors="replace").splitlines()
    return next((_read(line) for line in reversed(lines) if line.startswith("brain: rank")), None)


def _read(line: str) -> Told:
    sentence = line.removeprefix("brain: ")
    rank = re.match(r"rank (\d+)", sentence)
    kinds = [kind for kind, words in MEANING.items() if words in sentence]
    return Told(
        kind=kinds[0] if kinds else None, rank=int(rank[1]) if rank else None, sentence=sentence
    )


# --- recorded ----------------------------------------------------------------------------------


def machine(
    root: Path,
    *,
    oom_kill: int = 0,
    host_oom_kill: int = 0,
    version: int = 2,
    cards: tuple[str, ...] = (),
    log: str = "",
) -> None:
    """Write the files of a machine below ``root``."""
    for directory in ("proc/self", "proc/driver/nvidia/gpus", "sys/fs/cgroup/memory/pod", "dev"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "proc/vmstat").write_text(f"nr_free_pages 7\noom_kill {host_oom_kill}\n")
    counted = f"under_oom 0\noom_kill {oom_kill}\n"
    if version == 2:
        (root / "proc/self/cgroup").write_text("0::/\n")
        (root / "sys/fs/cgroup/memory.events").write_text(f"low 0\noom 1\noom_kill {oom_kill}\n")
    elif version == 1:
        (root / "proc/self/cgroup").write_text("5:memory:/pod\n")
        (root / "sys/fs/cgroup/memory/pod/memory.oom_control").write_text(counted)
    for known in (root / "proc/driver/nvidia/gpus").iterdir():
        known.rmdir()
    for card in cards:
        (root / "proc/driver/nvidia/gpus" / card).mkdir()
    (root / "dev/kmsg").write_text(log)


def signs(root: Path, code: int, before: evidence.Baseline, tail: str = "") -> Signs:
    """Return the findings of the launcher's own code from these files."""
    return evidence.signs(
        before,
        code=code,
        steps=40,
        raised=root / "none",
        error=b"",
        tail=tail.encode(),
        now_ns=0,
        root=root,
    )


def _failed(rank: int, code: int, found: Signs, heard_at: float) -> Failed:
    return Failed(
        rank=rank,
        replica=rank,
        node=NodeName(f"node-{rank}"),
        code=code,
        message="",
        signs=found,
        heard_at=heard_at,
    )


#: What peers of a rank that is gone say, and when: sooner than its own end is seen.
_RESET = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
    "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:544] Connection closed by peer [10.0.0.2]\n"
)
_LAUNCH = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
    "RuntimeError: CUDA error: unspecified launch failure\n"
)


def _beside_victim(failed: Failed) -> Diagnosis | None:
    victim = _failed(0, 1, Signs(tail=_RESET), failed.heard_at - 0.2)
    return diagnose([victim, failed], step=40)


def _oom(version: int, host: bool = False) -> Callable[[Path], Diagnosis | None]:
    def recorded(root: Path) -> Diagnosis | None:
        machine(root, oom_kill=2, host_oom_kill=5, version=version)
        before = evidence.baseline(root)
        machine(root, oom_kill=2 if host else 3, host_oom_kill=6, version=version)
        return _beside_victim(_failed(1, -signal.SIGKILL, signs(root, -9, before), 10.0))

    return recorded


def _card(log: str, left: tuple[str, ...]) -> Callable[[Path], Diagnosis | None]:
    def recorded(root: Path) -> Diagnosis | None:
        cards = ("0000:3b:00.0", "0000:86:00.0")
        machine(root, cards=cards)
        before = evidence.baseline(root)
        machine(root, cards=left or cards, log=log)
        return _beside_victim(_failed(1, 1, signs(root, 1, before, _LAUNCH), 10.0))

    return recorded


def _gone(root: Path) -> Diagnosis | None:
    victims = [_failed(rank, 1, Signs(tail=_RESET), 9.0 + rank) for rank in (0, 1)]
    return diagnose(victims, gone=[GoneNode(replica=2, node=NodeName("node-2"))], step=40)


def _xid(number: int) -> str:
    micros = 10**15  # long after any machine has started
    said = f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=77, GPU has fallen off the bus."
    return f"4,900,{micros},-;{said}\n"


def _clocks(root: Path) -> Diagnosis | None:
    """Return the diagnosis of a failure whose victim is heard first, although it failed later."""
    slow = Signs(tail="", traceback=_LAUNCH.replace("CUDA error: unspecified launch failure", "x"))
    culprit = _failed(3, 1, Signs(traceback=slow.traceback, lag_seconds=4.0), 20.0)
    other = _failed(5, 1, Signs(traceback=slow.traceback, lag_seconds=0.1), 17.0)
    return diagnose([other, culprit], step=40)


_K = FailureKind
CASES = (
    Case(name="an exception", kind=_K.CODE, rank=1, body="raise ValueError('a banana')"),
    Case(name="an exception of rank 0", kind=_K.CODE, rank=0, body="return {}['loss']"),
    Case(
        name="an exception that follows from another",
        kind=_K.CODE,
        rank=2,
        body="try:\n    1 / 0\nexcept ArithmeticError as e:\n    raise RuntimeError('bad') from e",
    ),
    Case(
        name="a rank that takes long to end after its error",
        kind=_K.CODE,
        rank=1,
        body="import atexit\natexit.register(time.sleep, 1.5)\n"
        "for p in peers: p.shutdown(socket.SHUT_RDWR)\nassert False, 'shapes differ'",
    ),
    Case(
        name="a module that is missing on one node",
        kind=_K.CODE,
        rank=2,
        body="import surely_not_installed",
    ),
    Case(
        name="an error that speaks of connections",
        kind=_K.CODE,
        rank=1,
        body="raise ValueError('connection string is malformed')",
    ),
    Case(
        name="an error file of @record",
        kind=_K.CODE,
        rank=1,
        body="import json\n"
        "told = 'Traceback (most recent call last):\\n  File \"t\", line 3\\nKeyError: 1'\n"
        "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(json.dumps({'message': "
        "{'message': 'KeyError: 1', 'extraInfo': {'py_callstack': told, "
        "'timestamp': str(int(time.time()))}}}))\nos._exit(1)",
    ),
    Case(name="a code of its own", kind=_K.EXIT, rank=1, body="sys.exit(3)"),
    Case(name="an end without a word", kind=_K.EXIT, rank=2, body="os._exit(9)"),
    Case(
        name="no memory left for the process",
        kind=_K.MEMORY,
        rank=1,
        body="import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "bytearray(1 << 32)",
    ),
    Case(
        name="an allocator's words",
        kind=_K.MEMORY,
        rank=1,
        body="raise RuntimeError('[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: "
        "can\\'t allocate memory: you tried to allocate 8 bytes')",
    ),
    Case(name="the kernel's OOM killer, cgroup v2", kind=_K.MEMORY, rank=1, recorded=_oom(2)),
    Case(name="the kernel's OOM killer, cgroup v1", kind=_K.MEMORY, rank=1, recorded=_oom(1)),
    Case(name="the OOM killer of a host", kind=_K.MEMORY, rank=1, recorded=_oom(0, host=True)),
    Case(
        name="an accelerator without memory",
        kind=_K.DEVICE_MEMORY,
        rank=1,
        body="raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')",
    ),
    Case(name="Xid 79", kind=_K.DEVICE, rank=1, recorded=_card(_xid(79), ())),
    Case(name="Xid 94", kind=_K.DEVICE, rank=1, recorded=_card(_xid(94), ())),
    Case(name="a card that is gone", kind=_K.DEVICE, rank=1, recorded=_card("", ("0000:86:00.0",))),
    Case(
        name="an ECC error in the script's words",
        kind=_K.DEVICE,
        rank=2,
        body="raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
    ),
    Case(
        name="an illegal address, which is the script's",
        kind=_K.CODE,
        rank=1,
        body="raise RuntimeError('CUDA error: an illegal memory access was encountered')",
    ),
    Case(
        name="a peer that nobody knows",
        kind=_K.NETWORK,
        rank=1,
        body="socket.create_connection(('no-such-host.invalid', 1))",
    ),
    Case(
        name="a collective that timed out",
        kind=_K.NETWORK,
        rank=2,
        body="for p in peers: pass\nraise RuntimeError('[Rank 2] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE) ran for 600000 milliseconds')",
    ),
    Case(
        name="a full disk",
        kind=_K.STORAGE,
        rank=1,
        body="with open('/dev/full', 'w') as file: file.write('x' * 100000)",
    ),
    Case(
        name="a stale mount",
        kind=_K.STORAGE,
        rank=0,
        body="raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), '/data/shard-7')",
    ),
    Case(
        name="a broken disk",
        kind=_K.STORAGE,
        rank=2,
        body="raise OSError(errno.EIO, os.strerror(errno.EIO), '/data/shard-7')",
    ),
    Case(
        name="a segmentation fault",
        kind=_K.CRASH,
        rank=1,
        body="import ctypes\nctypes.string_at(0)",
    ),
    Case(name="an abort", kind=_K.CRASH, rank=2, body="os.abort()"),
    Case(
        name="a kill from outside",
        kind=_K.KILLED,
        rank=1,
        body="os.kill(os.getpid(), signal.SIGKILL)",
    ),
    Case(
        name="SIGTERM from outside",
        kind=_K.KILLED,
        rank=2,
        body="os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)",
    ),
    Case(name="a host that is gone", kind=_K.NODE, rank=None, recorded=_gone),
    Case(name="hosts whose ends are heard out of order", kind=_K.CODE, rank=3, recorded=_clocks),
)
