"""What of ours runs in a worker leaves the script's world as it was."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

import launcher
from launcher.workers.processes.control import Control

PACKAGE = Path(launcher.__file__).parent
INJECT = PACKAGE / "inject" / "path"


def run(
    tmp_path: Path,
    lines: str,
    *,
    before: Sequence[Path] = (),
    rank: bool = True,
    stderr: "int | IO[str]" = subprocess.PIPE,
    **told: object,
) -> "subprocess.CompletedProcess[str]":
    """Run ``lines`` as a script with our directory in front of ``before`` on PYTHONPATH."""
    script = tmp_path / "script.py"
    script.write_text(lines)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    old = os.pathsep.join(map(str, before)) or None
    message = {"v": 1, "pythonpath": old, "probe": None, "control": None} | told
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [INJECT, *before]))
    if rank:
        environment["BRAIN_WORKER"] = json.dumps(message)
    return subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=100,
        check=False,
    )


def a_probe(tmp_path: Path, lines: str) -> str:
    path = tmp_path / "probe.py"
    path.write_text(lines)
    return str(path)


def test_the_probe_is_started_with_what_the_agent_told(tmp_path: Path) -> None:
    probe = a_probe(tmp_path, "def start(config): print('job', config['job'])")
    assert run(tmp_path, "print('script')", probe=probe, job="digits").stdout == (
        "job digits\nscript\n"
    )


def test_what_cannot_be_said_of_a_part_that_fails_costs_the_script_nothing(tmp_path: Path) -> None:
    probe = a_probe(tmp_path, "def start(config): 1 / 0")
    with open("/dev/full", "w") as full:
        ran = run(tmp_path, "print('script')", probe=probe, stderr=full)
    assert ran.stdout == "script\n"


def test_children_do_not_find_us(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        'ask = \'import os, sys; print(os.environ.get("PYTHONPATH"), "BRAIN_WORKER" in os.environ, '
        'any("inject" in entry for entry in sys.path))\'\n'
        "subprocess.run([sys.executable, '-c', ask])\n"
    )
    assert run(tmp_path, script).stdout == "None False False\n"
    assert run(tmp_path, script, before=[tmp_path]).stdout == f"{tmp_path} False False\n"
    assert run(tmp_path, script, rank=False).stdout == "None False False\n"


def test_the_next_sitecustomize_runs(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('next'); here = 1")
    script = "import sitecustomize; print(sitecustomize.here, sitecustomize.__file__)"
    told = run(tmp_path, script, before=[site]).stdout
    assert told == f"next\n1 {site / 'sitecustomize.py'}\n"


def test_without_another_sitecustomize_there_is_none(tmp_path: Path) -> None:
    script = "import sys\nprint('sitecustomize' in sys.modules)"
    assert run(tmp_path, script).stdout == "False\n"


def test_a_failing_sitecustomize_fails_as_it_would_without_us(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("1 / 0")
    ran = run(tmp_path, "print('script')", before=[site])
    assert "Error in sitecustomize" in ran.stderr
    assert ran.stdout == "script\n"


@pytest.mark.parametrize(
    "lines", ["1 / 0", "def start(config): 1 / 0", "def start(config: return", ""]
)
def test_a_broken_probe_costs_no_job(tmp_path: Path, lines: str) -> None:
    ran = run(tmp_path, "print('script')", probe=a_probe(tmp_path, lines))
    assert (ran.returncode, ran.stdout) == (0, "script\n")
    assert "goes on without start_probe" in ran.stderr


@pytest.mark.parametrize("told", [{"control": "/nowhere"}, {"probe": "/nowhere.py"}, {"v": 99}])
def test_missing_files_cost_no_job(tmp_path: Path, told: dict[str, object]) -> None:
    ran = run(tmp_path, "print('script')", **told)
    assert (ran.returncode, ran.stdout) == (0, "script\n")


def test_a_script_keeps_its_own_packages_of_our_names(tmp_path: Path) -> None:
    for name in ("brain", "collectors", "launcher", "probe"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"mine = '{name}'")
    script = "import brain, collectors, launcher, probe\nprint(brain.mine, launcher.mine)"
    probe = str(PACKAGE.parent / "collectors" / "probe" / "__init__.py")
    assert run(tmp_path, script, probe=probe).stdout == "brain launcher\n"


def test_the_script_sees_its_own_threads_only(tmp_path: Path) -> None:
    control = Control(tmp_path / "control-0")
    script = "import threading; print([thread.name for thread in threading.enumerate()])"
    assert run(tmp_path, script, control=str(control.path)).stdout == "['MainThread']\n"
    control.close()


def test_a_lease_that_is_past_ends_the_process(tmp_path: Path) -> None:
    control = Control(tmp_path / "control-0")
    control.lease(1)
    assert run(tmp_path, "import time; time.sleep(20)", control=str(control.path)).returncode == 83
    control.close()


@pytest.mark.parametrize(
    "file",
    [
        "inject/path/sitecustomize.py",
        "inject/bootstrap.py",
        "inject/fork_server.py",
        "inject/server.py",
        "inject/become.py",
        "inject/ending.py",
        "inject/gate.py",
        "command/torchrun/ask_torch.py",
    ],
)
def test_it_is_python_3_8(file: str) -> None:
    ast.parse((PACKAGE / file).read_text(), feature_version=(3, 8))
    assert "from __future__" not in (PACKAGE / file).read_text()


def test_the_directory_on_the_path_holds_nothing_else() -> None:
    names = {path.name for path in INJECT.iterdir()} - {"__pycache__"}
    assert names == {"sitecustomize.py"}


def test_checkpoint_saved_reaches_the_probe_and_is_silent_without_one(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n"
        "import launcher; launcher.checkpoint_saved('/c.pt'); print('done')\n"
    )
    probe = a_probe(tmp_path, "def start(config): pass\ndef saved(path): print('saved', path)")
    assert run(tmp_path, script, probe=probe).stdout == "saved /c.pt\ndone\n"
    assert run(tmp_path, script).stdout == "done\n"


def test_streams_of_a_forked_worker_are_those_of_an_unbuffered_python_on_a_terminal() -> None:
    become = PACKAGE / "inject" / "become.py"
    lines = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_brain_become", {str(become)!r})
become = importlib.util.module_from_spec(spec)
spec.loader.exec_module(become)
for fd, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
    made = become._stream(fd, stream.name, stream)
    for each in (stream, made):
        print(each.line_buffering, each.write_through, each.encoding, each.errors, each.isatty())
"""
    ours, theirs = os.openpty()
    try:
        command = [sys.executable, "-u", "-c", lines]
        ran = subprocess.run(
            command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, timeout=100, check=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    seen = ran.stdout.splitlines()
    assert seen[0::2] == seen[1::2]
    assert len(seen) == 6
