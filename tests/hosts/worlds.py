"""An elastic job by hand on several hosts, and what its workers wrote down about their worlds."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from launcher.workers.processes.process import free_port
from tests.hosts.machines import Host, Hosts, Program
from tests.patience import Patience
from tests.scripts.beating import BEAT

T = TypeVar("T")
BEATING = Path(__file__).parent.parent / "scripts" / "beating.py"
PORT = 29400


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one worker did: from its first step to its last, CLOCK_MONOTONIC seconds."""

    epoch: int
    rank: int
    size: int
    first: float
    last: float
    step: int
    host: str


@dataclass
class HandJob:
    """``brain-run`` on some hosts, one agent each, meeting at the first host."""

    hosts: Hosts
    work: Path
    nnodes: str
    #: Flags of ``brain-run`` beside the rendezvous.
    flags: Sequence[str] = ()
    pace_seconds: float = 0.02
    #: The script and its arguments; None: ``beating.py``.
    script: Sequence[str] | None = None
    #: Directory of the checkpoint inside ``work``; empty: that itself.
    storage: str = ""
    #: Agents say everything; else what they say to anybody.
    debug: bool = True
    #: Variables of the agents, beside those of this process.
    environment: Mapping[str, str] = field(default_factory=dict)
    agents: dict[str, list[Program]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records.mkdir(parents=True, exist_ok=True)
        #: Of the rendezvous; loopback is shared with other tests.
        self.port = PORT if self.hosts.network else free_port("127.0.0.1")

    @property
    def records(self) -> Path:
        """Where workers write down that they live."""
        return self.work / "records"

    @property
    def checkpoint(self) -> Path:
        """The file that worlds go on from."""
        return self.work / self.storage / "step.txt"

    def start(self, *which: Host) -> None:
        """Start an agent on each of these hosts."""
        for host in which or self.hosts:
            command = [
                sys.executable,
                "-m",
                "launcher.cli",
                f"--nnodes={self.nnodes}",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={self.hosts[0].address}:{self.port}",
                "--rdzv-id=soak",
                f"--local-addr={host.address}",
                f"--checkpoint={self.checkpoint}",
                "--max-restarts=1000",
                *self.flags,
                *(self.script or self._beating()),
            ]
            # By hand, wherever these tests run.
            told = dict.fromkeys(("KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID"), "")
            told |= {"BRAIN_DEBUG": "1" if self.debug else ""} | dict(self.environment)
            made = host.start(command, directory=self.work, environment=told)
            self.agents.setdefault(host.name, []).append(made)

    def agent(self, host: Host) -> Program:
        """The newest agent of a host."""
        return self.agents[host.name][-1]

    def alive(self, host: Host) -> bool:
        """Whether a host's newest agent runs."""
        return host.name in self.agents and self.agent(host).code is None

    def leave(self, host: Host) -> None:
        """Notice that a host goes."""
        host.signal(self.agent(host), signal.SIGTERM)

    def _beating(self) -> Sequence[str]:
        return (
            str(BEATING),
            f"--records={self.records}",
            f"--checkpoint={self.checkpoint}",
            f"--pace={self.pace_seconds}",
        )

    def lives(self) -> list[Life]:
        """What every worker did so far."""
        found = []
        for file in self.records.iterdir():
            content = file.read_bytes()
            if len(content) == BEAT.size:
                epoch, rank, size, first, last, step = BEAT.unpack(content)
                made = Life(
                    epoch=epoch,
                    rank=rank,
                    size=size,
                    first=first / 1e9,
                    last=last / 1e9,
                    step=step,
                    host=file.name.split("-")[2],
                )
                found.append(made)
        return found

    def workers(self, host: Host) -> list[int]:
        """Processes of a host that keep a record, as this machine numbers them."""
        records = os.fspath(self.records)
        return [pid for pid in host.pids() if any(f.startswith(records) for f in _open_files(pid))]

    def saved_step(self) -> int:
        """Step of the checkpoint; 0 where there is none."""
        return int(self.checkpoint.read_text()) if self.checkpoint.exists() else 0

    def running(self, *which: Host, seconds: float = 60.0, after: float = 0.0) -> list[Life]:
        """Wait until the newest world is that of exactly these hosts and steps; ``after`` a time.

        Returns:
            Its workers.
        """
        names = {host.name for host in which}

        def look() -> list[Life] | None:
            ended = [host.name for host in which if not self.alive(host)]
            assert not ended, f"agents of {ended} have ended\n{self.logs()}"
            lives = self.lives()
            newest = max((life.epoch for life in lives), default=0)
            there = [life for life in lives if life.epoch == newest]
            fresh = time.monotonic() - 0.5
            if {life.host for life in there} != names or len(there) != there[0].size:
                return None
            return there if all(life.last > max(fresh, after) for life in there) else None

        return eventually(look, f"a world of {sorted(names)}", seconds, self.logs)

    def logs(self) -> str:
        """What agents and workers printed, and the worlds there were."""
        found = [
            f"--- {program.log} exit {program.code}\n{program.text()[-4000:]}"
            for programs in self.agents.values()
            for program in programs
        ]
        return "\n".join([*found, *map(str, sorted(self.lives(), key=lambda each: each.first))])


def overlaps(lives: Iterable[Life], *, slack: float = 0.0) -> list[str]:
    """Where two worlds lived at a time, or two had one epoch; empty where all is well.

    ``slack`` seconds are forgiven, for processes that were not allowed to run.
    """
    worlds: dict[int, list[Life]] = {}
    for life in lives:
        worlds.setdefault(life.epoch, []).append(life)
    found = []
    for epoch, members in worlds.items():
        ranks = [life.rank for life in members]
        if len({life.size for life in members}) != 1 or len(set(ranks)) != len(ranks):
            found.append(f"two worlds have epoch {epoch}: {members}")
    begun = {epoch: min(life.first for life in members) for epoch, members in worlds.items()}
    for epoch, members in worlds.items():
        last = max(members, key=lambda life: life.last)
        for later in worlds:
            if later > epoch and begun[later] < last.last - slack:
                found.append(
                    f"epoch {epoch} lived until {last.last:.3f} ({last}), "
                    f"epoch {later} began at {begun[later]:.3f}"
                )
    return found


def _open_files(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(entry.path))
    return found


def eventually(
    look: Callable[[], T | None], what: str, seconds: float, tell: Callable[[], str]
) -> T:
    """Wait for something that no event tells."""
    patience = Patience(seconds)
    while not (found := look()):
        if patience.over:
            raise AssertionError(f"{what}: not within {seconds:g} s\n{tell()}")
        time.sleep(0.05)
    return found
