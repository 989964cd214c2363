"""Projects whose packages are named as ours are, with a PYTHONPATH that puts them first."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OURS = ("brain", "collectors", "launcher", "scaler")
SCRIPT = """
import json, os, sys
import brain, collectors, launcher, scaler
files = [module.__file__ for module in (brain, collectors, launcher, scaler)]
path, wanted = [os.path.abspath(each) for each in sys.path], os.environ["PYTHONPATH"]
print(json.dumps([files, path, wanted]))
"""
TORCH = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in OURS[:3]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "scaler.py").write_text("")
    return tmp_path


def ran(project: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=project,
        env=dict(os.environ) | {"HOME": str(project), "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


@pytest.mark.parametrize(
    ("flags", "before"),
    [
        ((), ""),
        pytest.param((), TORCH, marks=pytest.mark.slow),
        (("--preload=none",), ""),
        pytest.param(("--memory-checkpoint",), TORCH, marks=pytest.mark.slow),
    ],
    ids=["forked", "torch", "started", "memory checkpoint"],
)
def test_a_script_runs_and_finds_its_own(
    flags: tuple[str, ...], before: str, project: Path
) -> None:
    if before:
        pytest.importorskip("torch")
    (project / "plain.py").write_text(SCRIPT)
    (project / "train.py").write_text(before + SCRIPT)
    plain = ran(project, sys.executable, "plain.py")
    run = ran(project, program("brain-run"), "--nproc-per-node=1", *flags, "train.py")
    assert run.returncode == 0, run.stderr
    # On a busy machine an import takes the ten seconds after which an agent says that it waits.
    said = [line for line in run.stderr.splitlines() if not line.startswith("brain: waiting: ")]
    assert said == []
    assert json.loads(run.stdout) == json.loads(plain.stdout)
    files = [*(project / name / "__init__.py" for name in OURS[:3]), project / "scaler.py"]
    assert json.loads(run.stdout)[0] == list(map(str, files))


@pytest.mark.parametrize(
    "command",
    [
        ["brain-run", "--help"],
        ["brain", "run", "--help"],
        ["brain-scale", "--help"],
        ["brain-collect", "--help"],
        ["brain", "doctor", "--help"],
    ],
    ids=" ".join,
)
def test_every_program_is_found(command: list[str], project: Path) -> None:
    run = ran(project, program(command[0]), *command[1:])
    assert run.returncode == 0, run.stderr


def test_files_named_as_modules_of_python_come_after_those(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the project has this')")
    (tmp_path / "train.py").write_text("print('trained')")
    command = [program("brain"), "run", "--nproc-per-node=1", "train.py"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env=dict(os.environ) | {"HOME": str(tmp_path)},
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "trained\n"), run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["brain", "c10d"])
def test_torchrun_is_not_warned(backend: str, project: Path) -> None:
    pytest.importorskip("torch")
    (project / "train.py").write_text(TORCH + SCRIPT)
    run = ran(
        project, program("torchrun"), f"--rdzv-backend={backend}",
        "--rdzv-endpoint=localhost:0", "train.py",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "handler" not in run.stderr
    assert json.loads(run.stdout)[0][2] == str(project / "launcher" / "__init__.py")
