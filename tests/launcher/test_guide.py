"""docs/guides/launcher.md does what it says: its commands run, its walk-through happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.command import flags
from launcher.command.torchrun import description
from tests.launcher.conformance.cases import CASES
from tests.launcher.guide import GUIDE, tables
from tests.launcher.walking import environment, walk, written

TEXT = GUIDE.read_text()
COMMANDS = re.findall(
    r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)",
    "".join(re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)),
    re.MULTILINE,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return written(TEXT, tmp_path)


def test_its_tables_of_flags_are_the_parsers() -> None:
    assert tables() in TEXT, "run python -m tests.launcher.guide"


def test_there_are_as_many_cases_as_it_says() -> None:
    assert "runs more than a hundred commands under both launchers" in TEXT
    assert len(CASES) > 100


def test_flags_of_torchrun_that_differ_are_flags_of_torchrun() -> None:
    named = set(re.findall(r"^\| `(--[a-z-]+)` \|", TEXT.partition("<!-- flags")[0], re.MULTILINE))
    known = {
        name for flag in description.torchrun_of(sys.executable, {}).flags for name in flag.names
    }
    assert named <= known
    assert {f"--{dest.replace('_', '-')}" for dest in flags.IDLE_TORCHRUN} <= named


@pytest.mark.parametrize(("command", "says"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_print_what_the_guide_shows(place: Path, command: str, says: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    assert sorted(ran.stdout.splitlines()) == sorted(says.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_walk_through_happens(place: Path) -> None:
    pytest.importorskip("torch")
    walk(TEXT, place, environment(place))
