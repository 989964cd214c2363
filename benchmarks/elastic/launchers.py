"""The launchers that are compared: the command and the settings with which an agent of each is
started.
"""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"
TRAIN = str(SCRIPTS / "train.py")
HEAVY = str(SCRIPTS / "train_heavy.py")

#: The smallest whole numbers with which torchrun holds together; 1 × 2 split its brain under load.
TUNED = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5"
#: What is written anew for a library, and told how to find its peers by the environment.
TORCHFT = str(SCRIPTS / "train_torchft.py")
IN_PROCESS = str(SCRIPTS / "train_in_process.py")
#: Without it no join succeeds: torch 2.13 dies of `wait timeout … MASTER_ADDR` after 60 s.
NO_SHARING = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The launcher of one row."""

    name: str
    program: str
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    script: str = TRAIN
    arguments: tuple[str, ...] = ()
    nodes: str = "1:3"
    #: Seconds that one change may take before it is given up.
    patience_seconds: float = 60.0
    #: A change takes it tens of seconds, so that fewer are staged.
    slow: bool = False
    #: Why it cannot be run here; empty: it can.
    absent: str = ""
    #: A program that agents meet at instead of the first of them; ``{port}`` is put in.
    master: tuple[str, ...] = ()
    #: The environment of each agent, where ``{port}``, ``{index}`` and ``{rank}`` are put in.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Whether a change makes new processes; else those that stay step on in another world.
    restarts: bool = True
    #: The script has its three lines: processes stay, the launcher changes the world around them.
    in_process: bool = False

    def agent(self, port: int, index: int) -> list[str]:
        """Return the command of an agent of a job that meets at ``port``."""
        meeting = [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{port if self.restarts else 0}",
            f"--rdzv-id=bench-{port}" + ("" if self.restarts else f"-{index}"),
            "--local-addr=127.0.0.1",
        ]
        return [
            self.program,
            f"--nnodes={self.nodes}",
            "--nproc-per-node=1",
            "--max-restarts=100",
            *(() if self.master and self.restarts else meeting),
            *self.flags,
            self.script,
            *self.arguments,
        ]

    def told(self, port: int, index: int) -> dict[str, str]:
        """Return the environment variables that an agent gets in addition to ``environment``."""
        # Who comes later takes the rank of who left: those beyond --nnodes are refused.
        known = {"port": port, "index": index, "rank": min(index, 2)}
        return {name: value.format(**known) for name, value in self.settings.items()}


def beside(name: str) -> str:
    """Return the path of a program that is installed with this interpreter."""
    return str(Path(sys.executable).parent / name)


def known(home: Path) -> dict[str, Launcher]:
    """Return the launchers of this project's environment by name; brain-run keeps its state under
    ``home``.
    """
    ours = {"BRAIN_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "BRAIN_DEBUG": "1"}
    brain = beside("brain-run")
    torchrun = beside("torchrun")
    memory = _absent_flag("--memory-checkpoint")
    made = [
        Launcher(
            name="torchrun tuned",
            program=torchrun,
            flags=(TUNED,),
            environment=NO_SHARING,
        ),
        Launcher(
            name="torchrun default",
            program=torchrun,
            environment=NO_SHARING,
            patience_seconds=120.0,
            slow=True,
        ),
        Launcher(name="brain-run", program=brain, environment=ours),
        Launcher(
            name="brain-run memory",
            program=brain,
            flags=("--memory-checkpoint",),
            environment=ours,
            absent=memory,
        ),
        Launcher(
            name="brain-run in process",
            program=brain,
            environment=ours,
            script=IN_PROCESS,
            in_process=True,
        ),
        Launcher(
            name="torchrun tuned, heavy imports",
            program=torchrun,
            flags=(TUNED,),
            environment=NO_SHARING,
            script=HEAVY,
        ),
        Launcher(name="brain-run, heavy imports", program=brain, environment=ours, script=HEAVY),
    ]
    return {each.name: each for each in made}


def absent(name: str, why: str) -> Launcher:
    """Return a launcher that is not run, with the reason."""
    return Launcher(name=name, program="", absent=why)


def environment(launcher: Launcher) -> dict[str, str]:
    """Return the environment of a launcher's agents: this process's environment without variables
    that would influence a launcher or a rank.
    """
    steering = ("PET_", "TORCHELASTIC_", "BRAIN_", "MASTER_", "BENCH_")
    ranks = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(steering) and key not in ranks
    }
    return inherited | dict(launcher.environment)


def free_port() -> int:
    """Return an unused port below the range from which the kernel assigns ports."""
    for port in random.SystemRandom().sample(range(15_000, 30_000), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port between 15000 and 30000")


def listening(port: int) -> bool:
    """Return True if a process listens on the port; the check does not connect."""
    wanted = f":{port:04X}"
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A" and local.endswith(wanted):
                return True
    return False


def _absent_flag(flag: str) -> str:
    shown = subprocess.run([beside("brain-run"), "--help"], capture_output=True, text=True)
    known = any(form in shown.stdout for form in (flag, flag.replace("-", "_").replace("__", "--")))
    return "" if known else f"brain-run has no {flag} yet"
