"""The wheel: what is in it, and how little its light parts import."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "sqlalchemy", "fastapi", "scipy", "numpy", "sklearn", "pydantic", "alembic"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target]
    subprocess.run([*build, ROOT], check=True, cwd=target)
    return next(target.glob("elastic_brain-*.whl"))


def test_the_wheel_has_the_four_packages_the_dashboard_and_the_migrations(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "brain/cycle.py",
        "collectors/probe/__init__.py",
        "launcher/cli.py",
        "scaler/loop.py",
        "brain/_ui/index.html",
        "brain/_examples/digits.py",
        "brain/_tokens.css",
        "brain/simulator/report/page.css",
        "brain/py.typed",
        "launcher/inject/path/sitecustomize.py",
    ):
        assert wanted in names
    assert any(name.startswith("brain/_migrations/versions/") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_the_wheel_takes_five_top_level_names_and_no_more(wheel: Path):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "_elastic_brain.py",
        "brain",
        "collectors",
        "launcher",
        "scaler",
    }


@pytest.mark.parametrize(
    "modules",
    ["launcher.cli, collectors.loop", "launcher.agent", "scaler.cli, scaler.loop", "brain.cli"],
)
def test_what_runs_beside_a_job_imports_nothing_heavy(modules: str):
    code = f"import json, sys; import {modules}; print(json.dumps(sorted(sys.modules)))"
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert not HEAVY & set(json.loads(printed.stdout))


def test_brain_help_imports_click_and_little_else():
    code = (
        "import json, sys\nfrom brain.cli import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    loaded = set(json.loads(printed.stdout.splitlines()[-1]))
    assert not loaded & {"httpx2", "rich", "msgspec", "yaml", "asyncio", *HEAVY}
