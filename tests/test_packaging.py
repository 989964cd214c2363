"""The wheel: what is in it, and how little its light parts import."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

from brain import __version__

ROOT = Path(__file__).parents[1]
HEAVY = {
    "torch",
    "sqlalchemy",
    "fastapi",
    "scipy",
    "numpy",
    "sklearn",
    "pydantic",
    "alembic",
    "opentelemetry",
}


#: What a checkout has and an exported tree has not.
NOT_EXPORTED = (
    ".git",
    ".venv",
    "build",
    "dist",
    "node_modules",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)


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


def test_an_interrupt_while_a_command_is_loaded_ends_it_without_a_traceback():
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'brain.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from _elastic_brain import brain; brain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


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
    assert not loaded & {"httpx2", "rich", "msgspec", "yaml", "asyncio", "email", *HEAVY}


def test_a_service_loads_what_fits_models_no_sooner_than_it_fits_one():
    code = "import json, sys\nimport brain.service.start\nprint(json.dumps(sorted(sys.modules)))"
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    fitting = {"sklearn", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats"}
    assert not set(json.loads(printed.stdout)) & fitting


@pytest.mark.parametrize("module", ["brain.service.backup", "brain.service.gc"])
def test_a_command_on_the_state_directory_loads_no_service(module: str):
    code = f"import json, sys\nimport {module}\nprint(json.dumps(sorted(sys.modules)))"
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert not set(json.loads(printed.stdout)) & {"fastapi", "uvicorn", "brain.service.serve"}


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel and what some of its extras ask for."""

    directory: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run its Python with our own state directory, and nothing of ours on its path."""
        own = {"BRAIN_HOME": str(self.directory / "home"), "TMPDIR": str(self.directory)}
        return subprocess.run(
            [self.directory / "bin" / "python", *words],
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | own,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def brain(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program ``brain``."""
        return self.run("-c", "from _elastic_brain import brain; brain()", *words)


def installed(wheel: Path, directory: Path, *extras: str) -> Installed:
    """What ``pip install WHEEL[EXTRAS]`` makes, with distributions linked from this environment."""
    venv.create(directory, with_pip=False)
    (packages,) = directory.glob("lib/python3*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    for name in needed("elastic-brain", extras, set()):
        distribution = metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "bin"}:
            link = packages / top
            if not link.exists() and not top.startswith("__"):
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return Installed(directory)


def needed(name: str, extras: tuple[str, ...], seen: set[str]) -> Iterator[str]:
    """Distributions that one asks for, directly or not, as far as they are installed here."""
    for requirement in metadata.requires(name) or ():
        of = re.search(r"extra == .(\w+)", requirement)
        found = re.split(r"[^\w.-]", requirement)[0]
        if found in seen or (of is not None and of[1] not in extras):
            continue
        seen.add(found)
        try:
            metadata.version(found)
        except metadata.PackageNotFoundError:
            continue
        yield found
        yield from needed(found, (), seen)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without extras."""
    return installed(wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def client_only(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with the command line, and no service."""
    return installed(wheel, tmp_path_factory.mktemp("cli"), "cli")


@pytest.fixture(scope="module")
def server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with the service, and nothing that sends traces."""
    return installed(wheel, tmp_path_factory.mktemp("server"), "cli", "server")


@pytest.mark.parametrize("words", [(), ("--help",), ("jobs",)])
def test_without_extras_brain_says_what_to_install(bare: Installed, words: tuple[str, ...]):
    done = bare.brain(*words)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        "brain: `brain` needs click, pyyaml, rich: pip install 'elastic-brain[cli]'\n",
    )


def test_without_extras_the_launcher_runs(bare: Installed):
    done = bare.run("-m", "_elastic_brain", "launcher.cli", "--help")
    assert (done.returncode, "--nproc-per-node" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (("up", "--port=0"), "server"),
        (("demo",), "server,torch"),
        (("simulate", "--help"), "server"),
        (("replay",), "server"),
        (("migrate",), "server"),
        (("migrate", "--crds"), "kubernetes"),
        (("doctor", "--cluster"), "kubernetes"),
    ],
)
def test_a_command_that_needs_an_extra_names_its_pip_line_before_it_starts(
    client_only: Installed, words: tuple[str, ...], extras: str
):
    done = client_only.brain(*words)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    says = (
        rf"brain: `brain {words[0]}[^`]*` needs [\w, -]+: pip install 'elastic-brain\[{extras}\]'\n"
    )
    assert re.fullmatch(says, done.stderr)
    assert not (client_only.directory / "home").exists()


def test_with_the_command_line_alone_one_asks_a_service_elsewhere(client_only: Installed):
    done = client_only.brain("jobs")
    assert (done.returncode, "no Brain runs on this machine" in done.stderr) == (1, True)


def test_a_service_that_is_started_by_its_module_names_its_extra_too(client_only: Installed):
    done = client_only.run("-m", "_elastic_brain", "brain.service")
    assert done.returncode == 1
    assert done.stderr.startswith("brain.service: the service needs alembic")
    assert done.stderr.endswith("pip install 'elastic-brain[server]'\n")


@pytest.mark.parametrize(
    "words", [("brain.service", "--traces"), ("brain.cli", "up", "--port=0", "--set=traces=true")]
)
def test_traces_without_their_extra_are_refused_with_its_pip_line(
    server: Installed, words: tuple[str, ...]
):
    done = server.run("-m", "_elastic_brain", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert not (server.directory / "home").exists()
    assert done.stderr == (
        "brain: the setting traces needs opentelemetry-exporter-otlp-proto-http, "
        "opentelemetry-sdk: pip install 'elastic-brain[otel]'\n"
    )
