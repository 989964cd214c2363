"""The modules that are imported ahead of a command that runs for the first time."""

import sys
from pathlib import Path

import pytest

from launcher.workers.fork_server import command as commands
from launcher.workers.fork_server.script_imports import TORCH, ScriptImports
from tests.launcher.fork_servers import a_command

NOTHING: tuple[str, ...] = ()
NAMES_TORCH, NAMES_NONE = "import torch\n", "print('ran')\n"


def ahead(directory: Path, *argv: str, python: str = sys.executable, **environment: str) -> object:
    """The modules imported ahead of ``python argv`` in ``directory``."""
    own = {"XDG_CACHE_HOME": str(directory / "cache")} | environment
    config = a_command(directory, python, *argv, environment=own)
    command = commands.read(config.entrypoint.argv)
    return ScriptImports(config, command, print).wanted()


def a_tree(directory: Path, files: dict[str, str]) -> None:
    """Write these files below a directory."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("name", ["timeit", "json.tool", "unittest", "encodings.idna"])
def test_torch_is_not_imported_ahead_of_a_standard_module(name: str, tmp_path: Path) -> None:
    assert ahead(tmp_path, "-m", name) == NOTHING


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"job.py": NAMES_NONE}, NOTHING),
        ({"job.py": NAMES_TORCH}, TORCH),
        ({"job/__init__.py": NAMES_NONE, "job/__main__.py": NAMES_NONE}, NOTHING),
        ({"job/__init__.py": NAMES_NONE, "job/__main__.py": NAMES_TORCH}, TORCH),
        ({"job/__init__.py": NAMES_TORCH, "job/__main__.py": NAMES_NONE}, TORCH),
        ({"job/__main__.py": NAMES_NONE}, NOTHING),
        # Python prefers the package.
        ({"job/__init__.py": "", "job/__main__.py": NAMES_NONE, "job.py": NAMES_TORCH}, NOTHING),
        ({"job.py": NAMES_NONE, "job/data.txt": ""}, NOTHING),
    ],
)
def test_a_module_is_read_where_python_finds_it(
    files: dict[str, str], wanted: object, elsewhere: bool, tmp_path: Path
) -> None:
    a_tree(tmp_path / "libraries" if elsewhere else tmp_path, files)
    assert ahead(tmp_path, "-m", "job", PYTHONPATH=str(tmp_path / "libraries")) == wanted


def test_a_module_in_a_namespace_package_is_found_in_any_of_its_parts(tmp_path: Path) -> None:
    a_tree(tmp_path, {"space/one.py": "", "libraries/space/two.py": NAMES_NONE})
    assert ahead(tmp_path, "-m", "space.two", PYTHONPATH="libraries") == NOTHING


def test_the_packages_of_a_module_are_read_but_not_run(tmp_path: Path) -> None:
    a_tree(tmp_path, {"job/__init__.py": "raise SystemExit('it ran')", "job/step.py": NAMES_NONE})
    assert ahead(tmp_path, "-m", "job.step") == NOTHING
    assert "job" not in sys.modules


def test_torch_is_imported_ahead_of_a_module_that_is_not_found(tmp_path: Path) -> None:
    a_tree(tmp_path, {"libraries/job.py": NAMES_NONE})
    assert ahead(tmp_path, "-m", "job") == TORCH
    assert ahead(tmp_path, "-E", "-m", "job", PYTHONPATH="libraries") == TORCH


def test_modules_of_another_interpreter_are_found_in_its_own_libraries(tmp_path: Path) -> None:
    libraries = "own/lib/python3.12/site-packages"
    a_tree(tmp_path, {f"{libraries}/torch-2.13.0.dist-info/METADATA": ""})
    a_tree(tmp_path, {f"{libraries}/job.py": NAMES_NONE, "own/lib/python3.12/timer.py": ""})
    python = str(tmp_path / "own/bin/python")
    assert ahead(tmp_path, "-m", "job", python=python) == NOTHING
    assert ahead(tmp_path, "-m", "timer", python=python) == NOTHING
    assert ahead(tmp_path, "-m", "absent", python=python) == TORCH
