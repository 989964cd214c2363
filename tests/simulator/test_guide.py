"""docs/guides/simulator.md does what it says: its commands print what it shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from brain.simulator.applications import CATALOGUE
from brain.simulator.spec import read_spec
from brain.simulator.workload import read_workload
from tests.simulator.guide import GUIDE, table

ROOT = GUIDE.parents[2]
TEXT = GUIDE.read_text()
COMMANDS = re.findall(
    r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)",
    "".join(re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)),
    re.MULTILINE,
)
DOCUMENTS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the two files, in which ``brain`` is ours."""
    made = tmp_path_factory.mktemp("guide")
    for name in ("workload.csv", "cluster.yaml"):
        shutil.copy(ROOT / "examples" / name, made)
    ours = made / "bin"
    ours.mkdir()
    (ours / "brain").write_text(f'#!/bin/sh\nexec {sys.executable} -m brain.cli "$@"\n')
    (ours / "brain").chmod(0o755)
    return made


def shown(text: str) -> list[str]:
    """Lines without how long decisions took, and without the width of columns."""
    return [
        re.sub(r"\s+", " ", line)
        for line in text.splitlines()
        if not line.startswith("A decision,")
    ]


def test_its_table_of_columns_is_the_readers() -> None:
    assert table() in TEXT, "run python -m tests.simulator.guide"


@pytest.mark.parametrize(("command", "says"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_print_what_the_guide_shows(place: Path, command: str, says: str) -> None:
    paths = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=os.environ | {"PATH": paths, "PYTHONPATH": str(ROOT), "BRAIN_HOME": str(place)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    assert shown(ran.stdout) == shown(says)


@pytest.mark.parametrize("document", DOCUMENTS, ids=["shipped", "own"])
def test_its_clusters_can_be_read(document: str) -> None:
    assert read_spec(yaml.safe_load(document)).accelerators == 16


def test_its_clusters_and_workload_are_the_shipped_ones() -> None:
    shipped = (ROOT / "examples" / "cluster.yaml").read_text()
    assert DOCUMENTS[0] in shipped
    head = re.findall(r"```csv\n(.*?)```", TEXT, re.DOTALL)[0]
    assert (ROOT / "examples" / "workload.csv").read_text().startswith(head)
    spec = read_spec(yaml.safe_load(shipped))
    assert len(read_workload(head.splitlines(), spec, CATALOGUE)) == 3
