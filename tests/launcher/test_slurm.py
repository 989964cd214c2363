"""``srun brain-run …``: one world over the nodes of a step, and the warning before a time limit.

Debian's Slurm runs here with one node. A step of several nodes is played: its environment is made
up here, and both of its hosts are this machine.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from brain.errors import Unavailable
from launcher.agent.job_step import step_question
from launcher.command import slurm
from tests.launcher.building import a_config
from tests.launcher.elastic import eventually

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel")
BRAIN_RUN = f"{sys.executable} -m launcher.cli"
#: A requeued job starts again once the credential of its first start is over.
CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/ctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/ctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=2
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 Port={slurmd} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
TRAINS = """
import os, time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = torch.load("state.pt")["step"] if os.path.exists("state.pt") else 0
print(f"attempt {os.environ.get('SLURM_RESTART_COUNT', 0)} begins at step {step}", flush=True)
while not os.path.exists("enough"):
    optimizer.zero_grad(); model(torch.ones(1, 2)).sum().backward(); optimizer.step()
    step += 1
    time.sleep(0.02)
    if step % 10 == 0:
        torch.save({"step": step}, "state.new"); os.replace("state.new", "state.pt")
print("ends", flush=True)
"""
#: What a lease lasts, and pauses that no lease survives, seconds.
LEASE, PAUSE = 3.0, 8.0
PAUSES = [
    pytest.param(PAUSE, id="pause"),
    pytest.param(62.0, id="long pause", marks=[pytest.mark.chaos, pytest.mark.timeout(300)]),
]
STEPS = """
import os, time
print("begins", flush=True)
steps = os.open(f"steps.{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while not os.path.exists("enough"):
    time.sleep(0.1)
    os.write(steps, b".")
print("ends", flush=True)
"""
SHOWS = """
import os, sys
said = [os.environ[name] for name in ("GROUP_RANK", "RANK", "WORLD_SIZE")]
sys.stdout.write(" ".join(said) + "\\n")  # one write: workers share a pipe
"""
GOES_ON = """
import signal, time
warned = []
def save(*_):
    print("saved by its own handler", flush=True)
    warned.append(time.monotonic())
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
while not warned or time.monotonic() < warned[0] + 3:
    time.sleep(0.01)
"""
LEAVES = """
import signal, sys, time
def save(*_):
    time.sleep(20)
    print("saved by its own handler", flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
time.sleep(600)
"""


def ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands find a cluster of one node."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if os.geteuid() or any(shutil.which(each, path=path) is None for each in PROGRAMS):
        pytest.skip("Slurm is not installed, or may not be run: as root, apt-get install slurm-wlm")
    place = Path(tempfile.mkdtemp(prefix="slurm-"))  # sockets have short names
    (place / "state").mkdir()
    (place / "munge.key").write_bytes(os.urandom(1024))
    (place / "munge.key").chmod(0o600)
    place.chmod(0o755)
    ctld, slurmd = ports(2)
    said = CONFIGURATION.format(place=place, user="root", ctld=ctld, slurmd=slurmd)
    (place / "slurm.conf").write_text(said)
    environment = os.environ | {"SLURM_CONF": str(place / "slurm.conf"), "PATH": path}
    munged = ["munged", "--foreground", "--force"]
    for option in ("key-file=munge.key", "socket=munge.socket", "pid-file=munged.pid"):
        name, _, file = option.partition("=")
        munged.append(f"--{name}={place / file}")
    munged += [f"--seed-file={place / 'seed'}", f"--log-file={place / 'munged.log'}"]
    daemons = []
    try:
        for command in (
            munged,
            ["slurmctld", "-D"],
            ["slurmd", "-D", "-N", "localhost"],
            ["slurmd", "-D", "-N", "other"],
        ):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            daemons.append(subprocess.Popen(command, env=environment, **quiet))
            if command is munged:
                eventually((place / "munge.socket").exists, "munge listens")
        idle = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
        eventually(lambda: said_by(idle, environment) == "1", "a node is idle")
        yield environment
    finally:
        # A slurmd does not end while a step of its cannot tell slurmctld that it is done.
        eventually(lambda: not said_by(["squeue", "-h"], environment), "all done", seconds=100)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(60)
        shutil.rmtree(place, ignore_errors=True)


def said_by(command: list[str], environment: dict[str, str]) -> str:
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return asked.stdout.strip()


def test_a_step_of_two_nodes_is_one_world(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "show.py").write_text(SHOWS)
    step = STEP | {"SLURM_JOB_ID": str(ports(1)[0]), "SLURM_STEP_NODELIST": "127.0.0.[1-2]"}
    step |= {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "HOME": str(tmp_path)}
    agents = [
        subprocess.Popen(
            [*BRAIN_RUN.split(), "--nproc-per-node=2", "show.py"],
            cwd=tmp_path,
            env=os.environ | step | {"SLURM_NODEID": str(node)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in (0, 1)
    ]
    said = [agent.communicate(timeout=170)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0]
    assert [sorted(each.split("\n")) for each in said] == [
        ["", "0 0 4", "0 1 4"],
        ["", "1 2 4", "1 3 4"],
    ]


@pytest.mark.timeout(600)
def test_a_warning_suspends_the_job_at_its_checkpoint_and_slurm_starts_it_again(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\nsrun {BRAIN_RUN} train.py\n")
    out = tmp_path / "out.txt"
    environment = cluster | {"HOME": str(tmp_path)}
    flags = ["--requeue", "--open-mode=append", f"--output={out}", f"--chdir={tmp_path}"]
    job = said_by(["sbatch", "--parsable", *flags, str(tmp_path / "job.sh")], environment)
    try:
        eventually(lambda: (tmp_path / "state.pt").exists(), "a checkpoint", seconds=100)
        said_by(["scancel", "--signal=USR1", job], environment)
        state = ["squeue", "-h", "-j", job, "-o", "%T"]
        eventually(lambda: said_by(state, environment) == "PENDING", "requeued", seconds=100)

        begun_again = "attempt 1 begins"
        eventually(lambda: begun_again in out.read_text(), "begun again", seconds=200)
        (tmp_path / "enough").touch()
        eventually(lambda: "ends" in out.read_text().split(), "its end", seconds=100)
    finally:
        said_by(["scancel", job], environment)
    said = out.read_text()
    assert "attempt 0 begins at step 0\n" in said
    assert "brain: SIGUSR1: the job is suspended at its next checkpoint\n" in said
    begun = int(said.partition("attempt 1 begins at step ")[2].partition("\n")[0])
    assert begun > 0
    assert begun % 10 == 0


@pytest.mark.parametrize("script", [GOES_ON, LEAVES], ids=["goes on", "leaves"])
def test_a_script_that_handles_the_warning_gets_it_once(
    script: str, cluster: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(script)
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        run = subprocess.Popen(
            ["srun", *BRAIN_RUN.split(), "own.py"],
            cwd=tmp_path,
            env=cluster | {"HOME": str(tmp_path)},
            stdout=file,
            stderr=file,
        )
    eventually(lambda: "ready" in out.read_text(), "the script", seconds=100)
    step = said_by(["squeue", "-h", "-s", "-o", "%i"], cluster).split()[-1]
    said_by(["scancel", "--signal=USR1", step], cluster)
    assert run.wait(100) == 0, out.read_text()
    assert out.read_text().count("saved by its own handler") == 1
    assert "suspended" not in out.read_text()


def address() -> str:
    """One of this machine that is not loopback: agents that meet there may be on two hosts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])


@dataclass
class PausedStep:
    """A job of two agents in one step, whose workers write a byte for each of their steps."""

    environment: dict[str, str]
    directory: Path
    job: str

    def steps(self) -> list[int]:
        return [size(self.directory / f"steps.{rank}") for rank in (0, 1)]

    def text(self) -> str:
        """All that agents and workers have written."""
        return "".join(each.read_text() for each in self.directory.glob("said.*"))

    def step_on(self) -> None:
        """Wait until both workers have taken ten more steps than now."""
        before = self.steps()
        eventually(
            lambda: all(now > then + 10 for now, then in zip(self.steps(), before, strict=True)),
            f"further steps\n{self.text()}",
            seconds=100,
        )

    def processes(self) -> tuple[int, list[int]]:
        """The process of Slurm that runs the step, and those that it started."""
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"[{self.job}.0]" in (place / "cmdline").read_text():
                    manager = int(place.name)
                    return manager, descendants(manager)
        raise AssertionError("no slurmstepd")


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def descendants(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


@pytest.fixture
def paused_step(cluster: dict[str, str], tmp_path: Path) -> Iterator[PausedStep]:
    (tmp_path / "train.py").write_text(STEPS)
    port = ports(1)[0]
    flags = f"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint={address()}:{port}"
    command = f"{BRAIN_RUN} {flags} --local-addr={address()} train.py"
    inner = f"exec {command} > said.$SLURM_PROCID.${{SLURM_RESTART_COUNT:-0}} 2>&1"
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\nsrun -n2 sh -c '{inner}'\n")
    environment = cluster | {"HOME": str(tmp_path)}
    flags = ["-n2", "--requeue", f"--output={tmp_path / 'out.txt'}", f"--chdir={tmp_path}"]
    job = said_by(["sbatch", "--parsable", *flags, str(tmp_path / "job.sh")], environment)
    step = PausedStep(environment, tmp_path, job)
    try:
        step.step_on()
        yield step
    finally:
        said_by(["scancel", job], environment)


@pytest.mark.parametrize("seconds", PAUSES)
def test_a_suspended_job_goes_on_without_losing_a_step(
    seconds: float, paused_step: PausedStep
) -> None:
    said_by(["scontrol", "suspend", paused_step.job], paused_step.environment)
    time.sleep(seconds)
    before = paused_step.steps()
    time.sleep(1)
    assert paused_step.steps() == before

    said_by(["scontrol", "resume", paused_step.job], paused_step.environment)
    paused_step.step_on()
    time.sleep(LEASE)  # nothing was only put off
    paused_step.step_on()
    said = paused_step.text()
    assert said.count("begins") == 2, said
    assert "no other agent took its place: its world goes on" in said
    (paused_step.directory / "enough").touch()
    eventually(lambda: paused_step.text().count("ends") == 2, "its end", seconds=60)


def test_agents_of_a_job_that_was_requeued_while_they_were_paused_never_step_again(
    paused_step: PausedStep,
) -> None:
    manager, started = paused_step.processes()
    stopped = [manager, *started]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE)
        said_by(["scontrol", "requeue", paused_step.job], paused_step.environment)
        before = paused_step.steps()
        for pid in started:  # as long as its manager is stopped, Slurm ends no process of the step
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        requeued = f"other agents may run in its place: Slurm has requeued job {paused_step.job}"
        eventually(lambda: requeued in paused_step.text(), "word of it", seconds=60)
        eventually(lambda: not any(map(runs, started)), "their end", seconds=60)
        # For some milliseconds after a pause a worker may be quicker than the watch over its lease.
        after = paused_step.steps()
        assert all(now <= then + 1 for now, then in zip(after, before, strict=True))
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def runs(pid: int) -> bool:
    """False for a process that has ended, even if its parent has not noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NODELIST": "gpu[01-04]",
    "SLURM_TOPOLOGY_ADDR": "spine.leaf1.gpu03",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
}


def test_flags_come_from_the_step_where_the_command_line_is_silent() -> None:
    assert slurm.options_for(slurm.step_of(STEP), {"nnodes": "2:4"}) == {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "gpu01:20218",
        "rdzv_id": "slurm-7.1",
        "node_rank": 2,
        "topology": "spine/leaf1",
    }


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({}, {"rdzv_endpoint": "head:29500"}),
        ({}, {"master_addr": "head"}),
        ({}, {"standalone": True}),
        ({"SLURM_STEP_NUM_TASKS": "16"}, {}),
        ({"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}, {}),
        ({"SLURM_STEP_ID": ""}, {}),
    ],
    ids=["endpoint", "master", "standalone", "many tasks", "one node", "no step"],
)
def test_a_step_says_nothing_where_it_is_not_asked(
    changed: dict[str, str], options: dict[str, object]
) -> None:
    assert slurm.options_for(slurm.step_of(STEP | changed), options) == {}


def test_tasks_that_are_jobs_of_their_own_are_told() -> None:
    step = slurm.step_of(STEP | {"SLURM_STEP_NUM_TASKS": "16"})
    assert "give srun --ntasks-per-node=1 and brain-run --nproc-per-node=4" in slurm.advice(
        step, {}
    )
    assert slurm.advice(slurm.step_of(STEP), {}) == ""


RUNS = "JobId=7 JobState=RUNNING Restarts=0 Command=/job.sh Restarts=5 JobState=FAILED"
LISTED = """\
StepId=7.batch StartTime=2026-11-27T10:00:00 State=RUNNING
StepId=7.1 StartTime=2026-11-27T10:00:00 State=RUNNING
StepId=7.TBD StartTime=Unknown State=PENDING
StepId=7.2 StartTime=2026-11-27T11:00:00 State=RUNNING
"""
#: When the other step had run for ten minutes.
PAUSED_AT = datetime(2026, 11, 27, 11, 10, tzinfo=UTC).timestamp()


def why_over(job: str, steps: str = LISTED, ran_at: float = PAUSED_AT) -> str:
    step = slurm.step_of(STEP)
    assert step is not None
    return slurm.judge(step, ran_at, job, steps)


def test_a_step_that_runs_was_succeeded_by_nobody() -> None:
    assert why_over(RUNS) == ""


@pytest.mark.parametrize(
    ("job", "steps", "why"),
    [
        ("", "", "Slurm has no job 7"),
        (RUNS.replace("Restarts=0", "Restarts=1"), LISTED, "Slurm has requeued job 7"),
        (RUNS.replace("RUNNING", "COMPLETING"), LISTED, "job 7 is COMPLETING"),
        (RUNS.replace("RUNNING", "PENDING"), "", "job 7 is PENDING"),
        (RUNS, "", "step 7.1 is over"),
        (RUNS, LISTED.replace("7.1 ", "7.3 "), "step 7.1 is over"),
    ],
    ids=["forgotten", "requeued", "ends", "waits", "without steps", "with other steps"],
)
def test_a_step_that_others_may_have_succeeded_is_over(job: str, steps: str, why: str) -> None:
    assert why_over(job, steps) == why


def test_a_suspended_job_is_asked_about_again() -> None:
    with pytest.raises(Unavailable, match="job 7 is SUSPENDED"):
        why_over(RUNS.replace("RUNNING", "SUSPENDED"))


def test_a_step_that_began_during_the_pause_may_be_a_successor_until_it_ends() -> None:
    with pytest.raises(Unavailable, match=r"step 7\.2 began during the pause"):
        why_over(RUNS, ran_at=PAUSED_AT - 900)
    assert why_over(RUNS, LISTED.partition("StepId=7.2")[0], PAUSED_AT - 900) == ""


@pytest.mark.parametrize("nodes", [1, 4, 5], ids=["one agent", "no Slurm here", "more agents"])
def test_slurm_is_asked_only_if_it_can_know(nodes: int, tmp_path: Path) -> None:
    config = a_config(tmp_path, ["true"], nodes_max=nodes, step=slurm.step_of(STEP))
    assert asyncio.run(step_question(config)) is None


def test_a_job_that_cannot_be_requeued_says_why() -> None:
    step = slurm.step_of(STEP)
    assert step is not None
    assert slurm.requeue(step).startswith("scontrol requeue 7: ")
