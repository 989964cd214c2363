"""docs/guides/elastic-data.md does what it says: its commands run, and print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "elastic-data.md"
TEXT = GUIDE.read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", TEXT)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=lambda text: text[:40])
def test_a_command_prints_what_is_shown(tmp_path: Path, command: str, shown: str) -> None:
    if "deal" not in command:
        pytest.importorskip("torch")
    for name, lines in SCRIPTS.items():
        (tmp_path / name).write_text(lines)
    ours = tmp_path / "brain-run"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -m launcher.cli "$@"\n')
    ours.chmod(0o755)
    root = Path(__file__).parents[3]
    environment = dict(os.environ) | {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(root),
    }
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    )
    assert ran.stdout == shown
