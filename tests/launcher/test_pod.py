"""The agent of a replica that is a pod: what it is told, whom it asks, what it leaves."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from brain import wire
from launcher.coordinator.pod_leadership import PodLeadership
from launcher.coordinator.pod_place import PodPlace, read_place
from launcher.pod.program import RUN, PodIntent, intent
from launcher.values.replica import ReplicaIntent
from tests.launcher.observations import members

MINE, OTHER = "10.0.0.2:29399", "10.0.0.1:29399"


def told(file: Path, **said: object) -> Path:
    file.write_bytes(wire.encode(PodPlace(**said)))  # type: ignore[arg-type]
    return file


def leadership(file: Path) -> PodLeadership:
    return PodLeadership(str(file), MINE)


def test_an_agent_asks_whom_the_scaler_names(tmp_path: Path):
    assert leadership(told(tmp_path / "place", endpoint=OTHER)).candidates(None) == [OTHER]


def test_who_is_named_coordinates_and_nobody_else(tmp_path: Path):
    file = told(tmp_path / "place", endpoint=MINE)

    assert leadership(file).claim(MINE, 0, hung=False)
    assert not leadership(told(file, endpoint=OTHER)).claim(MINE, 0, hung=False)


def test_another_is_asked_once_another_is_named(tmp_path: Path):
    file = told(tmp_path / "place", endpoint="10.0.0.9:29399")
    mine = leadership(file)
    told(file, endpoint=OTHER)

    assert mine.candidates(None) == [OTHER]


def test_the_cluster_knows_who_is_gone(tmp_path: Path):
    file = told(tmp_path / "place", endpoint=MINE, gone=(0, 1))

    gone = asyncio.run(
        leadership(file).gone(members([0, 1], node="n1"), lease_expired=False, in_touch=False)
    )

    assert gone == {0, 1}


def test_nobody_is_named_before_the_scaler_says_so(tmp_path: Path):
    assert read_place(tmp_path / "none") == PodPlace()
    (tmp_path / "half").write_text('{"endpoint": "10.0')
    assert read_place(tmp_path / "half") == PodPlace()


def test_an_agent_is_told_its_address_and_node_by_its_pod(tmp_path: Path):
    asked = PodIntent(job="uid", name="digits", replica=3, command=("torchrun", "x.py"), port=29399)
    environment = {"POD_IP": "10.0.0.2", "NODE_NAME": "n1"}

    made = intent(asked, PodPlace(endpoint=OTHER, topology="z/s"), environment, tmp_path, tmp_path)

    assert isinstance(made, ReplicaIntent)
    assert (made.address, made.port, made.node, made.topology) == ("10.0.0.2", 29399, "n1", "z/s")
    assert made.token_file == str(tmp_path / "token")


def test_behind_a_shell_the_launchers_names_are_ours(tmp_path: Path):
    command = ("/bin/sh", "-c", "cd / && command -v dlrover-run && echo $WORD")
    asked = PodIntent(
        job="uid",
        name="digits",
        replica=3,
        command=command,
        shell=True,
        exports={"WORD": "said"},
        port=29399,
    )
    environment = os.environ | {
        "BRAIN_POD": wire.encode(asked).decode(),
        "BRAIN_POD_HOME": str(tmp_path),
        "BRAIN_POD_FILES": str(tmp_path),
    }
    run = [sys.executable, "-m", "launcher.pod"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [str(tmp_path / "home" / "shims" / "dlrover-run"), "said"]


def test_a_command_is_run_with_the_values_that_kubernetes_put_into_it(tmp_path: Path):
    asked = PodIntent(
        job="uid", name="digits", replica=3, command=("sh", "$(NAME)"), shell=True, port=29399
    )
    environment = os.environ | {
        "BRAIN_POD": wire.encode(asked).decode(),
        "BRAIN_POD_HOME": str(tmp_path),
        "BRAIN_POD_FILES": str(tmp_path),
    }
    run = [sys.executable, "-m", "launcher.pod", RUN, "sh", "-c", "echo value"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "value\n"
