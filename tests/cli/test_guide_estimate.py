"""docs/guides/estimate.md does what it says: its commands run and print what it shows."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from brain import calls
from tests.harness import FAST, Brain, running
from tests.patience import Patience

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "estimate.md"
TEXT = GUIDE.read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(
    r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)",
    "".join(re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)),
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    pytest.importorskip("torch")
    # Busy machines scatter; what is shown is the way, not the figures.
    settings = dict(FAST) | {"spread_limit": 0.2}
    with running(tmp_path_factory.mktemp("guide") / "home", settings=settings) as up:
        patience = Patience(90)
        while not up.send(calls.nodes()).items:
            assert not patience.over, up.logs()
            time.sleep(0.2)
        yield up


def shell(brain: Brain) -> dict[str, str]:
    """A shell's environment in which ``brain`` and ``python`` are ours."""
    ours = brain.home.parent / "bin"
    ours.mkdir(exist_ok=True)
    (ours / "brain").write_text(f'#!/bin/sh\nexec {sys.executable} -m brain.cli "$@"\n')
    (ours / "brain").chmod(0o755)
    path = f"{ours}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return dict(os.environ) | {"BRAIN_HOME": str(brain.home), "PATH": path}


def here(command: str) -> str:
    """The command as it works where no virtual environment is activated and others compute, too.

    Trials end when they were measured: on a quiet machine after some ten seconds each.
    """
    patient = command.replace("--probe ", "--probe --probe-seconds 330 ")
    return patient.replace("-- python ", f"-- {sys.executable} ")


def pattern(line: str) -> str:
    """A line of the guide as a pattern: ``…`` is anything, space is space."""
    return r"\s+".join(re.escape(word).replace("…", ".*") for word in line.split())


@pytest.mark.timeout(600)
def test_its_commands_print_what_it_shows(brain: Brain) -> None:
    place = brain.home.parent / "work"
    place.mkdir()
    for name, lines in SCRIPTS.items():
        (place / name).write_text(lines)
    (place / "last.pt").write_text("trained")
    for command, says in COMMANDS:
        ran = subprocess.run(
            ["bash", "-c", here(command)],
            cwd=place,
            env=shell(brain),
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr + brain.logs()
        printed = [line for line in ran.stdout.splitlines() if line.strip()]
        expected = says.splitlines()
        assert len(printed) == len(expected), ran.stdout + ran.stderr
        for shown, line in zip(expected, printed, strict=True):
            assert re.fullmatch(pattern(shown), line.strip()), (shown, line, ran.stderr)
    assert (place / "last.pt").read_text() == "trained"
