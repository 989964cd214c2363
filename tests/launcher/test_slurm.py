"""``srun brain-run …``: one world over the nodes of a step, and the warning before a time limit.

Debian's Slurm runs here with one node. A step of several nodes is played: its environment is made
up here, and both of its hosts are this machine.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.command import slurm
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


def test_a_job_that_cannot_be_requeued_says_why() -> None:
    step = slurm.step_of(STEP)
    assert step is not None
    assert slurm.requeue(step).startswith("scontrol requeue 7: ")
