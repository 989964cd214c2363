"""``--world``, ``--topology``, ``--parallel``: refused in a sentence, and agents of different sizes
for real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brain.errors import BadInput
from launcher.command.entrypoint import parse_command
from launcher.options import launch_config
from launcher.values.config import LaunchConfig
from launcher.values.observation import Shape
from launcher.workers.processes.process import free_port

SCRIPT = """
import os, pathlib, time
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE"
names += " ROLE_RANK ROLE_WORLD_SIZE"
place = pathlib.Path(os.environ["MARKS"])
(place / " ".join(os.environ[name] for name in names.split())).touch()
while len(list(place.iterdir())) < 3:
    time.sleep(0.02)
"""


def config(directory: Path, *arguments: str, **environment: str) -> LaunchConfig:
    """What a command line means."""
    (directory / "train.py").touch()
    command = ["brain-run", *arguments, "train.py"]
    known = dict(os.environ) | {"HOME": str(directory)} | environment
    return launch_config(parse_command(command, known, str(directory)), known, str(directory))


MEET = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--world=many"], "--world=many is not DESIRED[:MIN[:MAX]]"),
        (["--world=8:9"], "1 <= MIN <= DESIRED <= MAX"),
        (["--world=8", "--nnodes=2", *MEET], "--nnodes=2 counts machines, but --world counts"),
        (["--world=8", "--node_unit=2", *MEET], "--node_unit=2 counts machines"),
        (["--world=8"], "this machine alone starts 1 processes; give --nproc-per-node=8"),
        (["--topology=a/b/c/d/e"], "--topology=a/b/c/d/e must be up to 4 names"),
        (["--topology=a//b"], "give zone/spine/rack/switch"),
        (["--parallel=0x2"], "--parallel=0x2 is not TENSORxPIPELINE"),
        (["--parallel=4x2", "--nproc-per-node=4", "--node_unit=3"], "give a multiple of 2"),
    ],
)
def test_what_cannot_be_used_is_said_with_flag_value_and_remedy(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    with pytest.raises(BadInput) as refused:
        config(tmp_path, *arguments)

    assert says in str(refused.value)


def test_a_world_is_wished_in_processes_with_the_fewest_and_the_most(tmp_path: Path) -> None:
    made = config(tmp_path, "--world=8:4:16", *MEET)

    assert made.shape == Shape(processes=8, least=4, most=16)


def test_processes_of_every_cpu_may_serve_a_world(tmp_path: Path) -> None:
    made = config(tmp_path, "--nproc-per-node=cpu", "--world=9999:1", *MEET)

    assert made.processes == len(os.sched_getaffinity(0))


def test_the_environment_says_where_a_machine_is_for_plain_commands_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    known = dict(os.environ) | {"BRAIN_TOPOLOGY": "z/sw3"}
    entrypoint = parse_command([sys.executable, "train.py"], known, str(tmp_path))

    assert launch_config(entrypoint, known, str(tmp_path)).topology == ("z", "sw3")


def test_a_copy_of_the_network_over_several_machines_is_the_unit(tmp_path: Path) -> None:
    made = config(tmp_path, "--parallel=4x2", "--nproc-per-node=4", "--nnodes=2:4", *MEET)

    assert (made.unit, made.parallel) == (2, (4, 2))


def test_agents_of_1_and_2_processes_make_a_world_of_3_that_torchrun_could_have_made(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port('127.0.0.1')}"
    command = [sys.executable, "-m", "launcher.cli", "--world=3", "--rdzv-backend=c10d", endpoint]
    known = {**os.environ, "MARKS": str(marks), "BRAIN_HOME": str(tmp_path / "home")}
    agents = [
        subprocess.Popen(
            [*command, f"--nproc-per-node={count}", f"--topology={switch}", "train.py"],
            env=known,
            cwd=tmp_path,
            start_new_session=True,
        )
        for count, switch in ((2, "z/sw1"), (1, "z/sw2"))
    ]
    try:
        codes = [agent.wait(60) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait(10)

    assert codes == [0, 0]
    assert {path.name for path in marks.iterdir()} == {
        "0 3 0 2 0 2 0 3",
        "1 3 1 2 0 2 1 3",
        "2 3 0 1 1 2 2 3",
    }
