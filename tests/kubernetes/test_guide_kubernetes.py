"""docs/guides/kubernetes.md does what it says: its commands run and print what it shows."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from brain.cli import COMMANDS
from scaler.adapters import foreign
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from tests.kubernetes.apiserver import serving
from tests.kubernetes.apiserver.server import Server

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guides" / "kubernetes.md").read_text()
DOCUMENTS = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
STEPS = re.findall(
    r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)",
    "".join(re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)),
    re.MULTILINE,
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A cluster that knows nothing of our kinds yet."""
    with serving(tmp_path, definitions=()) as up:
        yield up


def kubectl_minor() -> int:
    """The minor version of this machine's kubectl; 0 where there is none."""
    if shutil.which("kubectl") is None:
        return 0
    asked = ["kubectl", "version", "--client", "-o", "json"]
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'"minor": "(\d+)', ran.stdout)
    return int(found[1]) if found else 0


def pattern(shown: str) -> str:
    """What is shown as a pattern: ``…`` is anything, alone on a line any lines; space is space."""
    lines = []
    for line in shown.splitlines():
        words = (re.escape(word).replace("…", ".*") for word in line.split())
        lines.append(r"(?:.*\n)*?" if line.strip() == "…" else r"\s+".join(words) + r"\s*\n")
    return r"\s*" + "".join(lines)


def shell(place: Path, server: Server) -> dict[str, str]:
    """A shell's environment in which ``brain`` is ours and the cluster is the emulator."""
    ours = place / "bin"
    ours.mkdir()
    (ours / "brain").write_text(f'#!/bin/sh\nexec {sys.executable} -m brain.cli "$@"\n')
    (ours / "brain").chmod(0o755)
    path = f"{ours}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = {"HOME": str(place), "BRAIN_HOME": str(place / "brain")}
    return dict(os.environ) | home | {"PATH": path, "KUBECONFIG": str(server.kubeconfig)}


@pytest.mark.timeout(600)
def test_its_commands_print_what_it_shows(server: Server, tmp_path: Path) -> None:
    if kubectl_minor() < 28:
        pytest.skip("no kubectl of 1.28 or later on this machine")
    place = tmp_path / "work"
    place.mkdir()
    (place / "deploy").symlink_to(ROOT / "deploy")
    for name, text in DOCUMENTS.items():
        (place / name).write_text(text)
    given = shell(place, server)
    for command, shown in STEPS:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        expected = pattern(shown)
        assert re.fullmatch(expected, ran.stdout), f"{command}\n{ran.stdout}\n{ran.stderr}"


def test_its_documents_are_documents() -> None:
    job, plan = (yaml.safe_load(DOCUMENTS[name]) for name in ("digits.yaml", "by-hand.yaml"))
    meta = {"uid": "u", "generation": 1}

    read = read_elastic_job(job | {"metadata": job["metadata"] | meta})
    read_scale_plan(plan | {"metadata": plan["metadata"] | meta})

    assert read.metadata.name == plan["spec"]["ownerJob"]


def test_its_commands_of_brain_exist() -> None:
    blocks = "".join(re.findall(r"```(?:sh|console)\n(.*?)```", TEXT, re.DOTALL))
    started = re.findall(r"^(?:\$ )?brain ([a-z-]+)", blocks, re.MULTILINE)
    named = re.findall(r"`brain ([a-z-]+)[^`]*`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
    assert set(started + named) <= set(COMMANDS)


def test_its_annotations_are_those_that_are_read() -> None:
    table = TEXT.partition("| annotation of the job")[2].partition("\n\n")[0]
    named = set(re.findall(r"`[a-z.…]*/([a-z-]+)", table))
    ours = (foreign.MANAGED_BY, foreign.MIN, foreign.MAX, foreign.UNIT, foreign.WORKERS)
    assert named == {each.partition("/")[2] for each in ours}


def test_its_files_exist() -> None:
    paths = set(re.findall(r"deploy/[a-z/-]+[a-z]|scaler/[a-z/_]+\.py", TEXT))
    assert [path for path in paths if not (ROOT / path).exists()] == []
