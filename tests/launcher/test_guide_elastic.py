"""docs/guides/elastic-api.md does what it says: its scripts run, its walk-through happens."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.launcher.walking import environment, walk, written

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[2] / "docs" / "guides" / "elastic-api.md").read_text()
COMMANDS = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", TEXT)


@pytest.mark.parametrize(("command", "says"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_print_what_the_guide_shows(tmp_path: Path, command: str, says: str) -> None:
    pytest.importorskip("torch")
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=written(TEXT, tmp_path),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.stdout == says


@pytest.mark.timeout(400)
def test_the_walk_through_happens(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    walk(TEXT, written(TEXT, tmp_path), environment(tmp_path))
