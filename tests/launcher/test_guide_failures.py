"""docs/guides/failures.md does what it says: its commands run, and print what it shows."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from brain.cli.output import finding
from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.world import Cause, World
from launcher.values.diagnosis.first import Failed, diagnose, then
from launcher.values.diagnosis.policy import consequence, occurrence
from launcher.values.diagnosis.signs import Signs

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "failures.md"
TEXT = GUIDE.read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(r"```console\n\$ (.*)\n(.*)\n```", TEXT)


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=lambda text: text[:40])
def test_a_command_prints_what_is_shown(tmp_path: Path, command: str, shown: str) -> None:
    pytest.importorskip("torch")
    for name, lines in SCRIPTS.items():
        (tmp_path / name).write_text(f"# {name}\n{lines}")
    ours = tmp_path / "brain-run"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -m launcher.cli "$@"\n')
    ours.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = dict(os.environ) | {"HOME": str(tmp_path), "PATH": path}
    said = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=170,
    ).stdout
    pattern = re.escape(shown).replace("…", ".+")
    assert re.fullmatch(f"{pattern}\n", said), said


def test_what_is_shown_of_a_finding_is_what_the_command_line_says() -> None:
    signs = Signs(oom_kills=1, steps=100)
    failed = Failed(
        rank=5, replica=2, node=NodeName("node-2"), code=-9, message="", signs=signs, heard_at=1.0
    )
    why = diagnose([failed], step=4100)
    assert why is not None
    why = then(why, consequence([occurrence(why, "")], spare=True).told)
    world = World(
        job=JobId("j"),
        epoch=3,
        generation=0,
        cause=Cause.START,
        members=(),
        formed_at=datetime.now(UTC),
        diagnosis=why,
    )
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert "\n".join(finding([world], whole=True)) + "\n" == shown
