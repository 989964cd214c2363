"""The wheel: what is in it, and how little its light parts import."""

import json
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from brain import __version__

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "sqlalchemy", "fastapi", "scipy", "numpy", "sklearn", "pydantic", "alembic"}


#: What a checkout has and an exported tree has not.
NOT_EXPORTED = (".git", ".venv", "build", "dist", "node_modules", "__pycache__", ".*_cache")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of a tree without git, and the wheel that is made of the sdist."""
    tree, target = tmp_path_factory.mktemp("tree") / "brain", tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, tree, ignore=_not_exported)
    build = [sys.executable, "-m", "build", "--outdir", target, tree]
    subprocess.run(build, check=True, cwd=target)
    return target


def _not_exported(folder: str, names: list[str]) -> set[str]:
    kept = {"dist"} if Path(folder).name == "web" else set()
    return set(shutil.ignore_patterns(*NOT_EXPORTED)(folder, names)) - kept


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("elastic_brain-*.whl"))


def test_the_wheel_carries_its_version_licence_and_authors(wheel: Path):
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(files.read(name).decode())
    assert (told["Version"], told["License-Expression"]) == (__version__, "Apache-2.0")
    assert told["Author"] == "The Brain authors"
    assert {"LICENSE", "NOTICE", "licenses/inter.txt"} <= set(told.get_all("License-File", []))


def test_the_changelog_has_a_section_for_the_version():
    assert f"\n## {__version__} " in (ROOT / "CHANGELOG.md").read_text()


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
