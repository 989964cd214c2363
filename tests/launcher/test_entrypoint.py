"""Commands of job documents: whatever starts Python, and whatever does not."""

import shutil
import sys
from pathlib import Path

import pytest

from brain.errors import BadInput
from launcher.command.entrypoint import Entrypoint, parse_command

BIN = str(Path(sys.executable).parent)
HERE = {"PATH": f"{BIN}:/usr/bin:/bin"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    return tmp_path


def parse(place: Path, *argv: str) -> Entrypoint:
    return parse_command(argv, HERE, str(place))


@pytest.mark.parametrize("program", ["torchrun", "brain-run", "dlrover-run"])
def test_a_launchers_flags_are_read_and_the_rest_runs(place: Path, program: str) -> None:
    entry = parse(place, program, "--nproc-per-node=2", "train.py", "--lr", "1")
    assert entry.options["nproc_per_node"] == "2"
    assert entry.argv[1:] == ("-u", "train.py", "--lr", "1")
    assert Path(entry.interpreter).samefile(sys.executable)


@pytest.mark.parametrize("module", ["torch.distributed.run", "launcher.cli"])
def test_a_launcher_as_a_module_is_a_launcher(place: Path, module: str) -> None:
    entry = parse(place, "python", "-m", module, "-m", "--role=ps", "train", "x")
    assert (entry.options["role"], entry.name) == ("ps", "-m train")
    assert entry.argv[1:] == ("-u", "-m", "train", "x")


def test_python_with_the_path_of_a_launcher_is_a_launcher(place: Path) -> None:
    torchrun = shutil.which("torchrun", path=BIN)
    assert torchrun is not None
    assert parse(place, "python", torchrun, "--role=ps", "train.py").options["role"] == "ps"


def test_a_script_keeps_pythons_options(place: Path) -> None:
    entry = parse(place, "python", "-O", "-W", "ignore", "-Xdev", "train.py", "-m")
    assert entry.argv == (f"{BIN}/python", "-u", "-O", "-W", "ignore", "-Xdev", "train.py", "-m")
    assert (entry.name, entry.python, entry.options) == ("train.py", True, {})


def test_modules_and_lines_run_without_a_script(place: Path) -> None:
    assert parse(place, "python3", "-m", "pkg.train", "x").name == "-m pkg.train"
    assert parse(place, "python3", "-c", "pass").name == "-c"


def test_anything_else_runs_as_it_stands(place: Path) -> None:
    entry = parse(place, "sh", "-c", "echo $RANK")
    assert (entry.argv, entry.python) == (("sh", "-c", "echo $RANK"), False)


def test_without_python_the_program_itself_runs(place: Path) -> None:
    entry = parse(place, "torchrun", "--no-python", "sh", "-c", "true")
    assert (entry.argv, entry.python) == (("sh", "-c", "true"), False)


def test_run_path_runs_in_one_interpreter(place: Path) -> None:
    entry = parse(place, "torchrun", "--run-path", "train.py", "a")
    assert entry.argv[-2:] == ("train.py", "a")
    assert "runpy" in entry.argv[2]


def test_another_python_can_be_asked_for(place: Path) -> None:
    environment = HERE | {"PYTHON_EXEC": "/usr/bin/python3"}
    entry = parse_command(["torchrun", "train.py"], environment, str(place))
    assert entry.argv[0] == "/usr/bin/python3"


@pytest.mark.parametrize(
    "argv",
    [
        ("torchrun", "nope.py"),
        ("python", "nope.py"),
        ("python", "-m", "torch.distributed.run", "nope.py"),
        ("./nope.py",),
        ("torchrun", "--no-python", "./nope.py"),
    ],
)
def test_a_script_that_does_not_exist_is_named_with_its_directory(
    place: Path, argv: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput, match=rf"nope\.py does not exist in {place}") as refused:
        parse(place, *argv)
    assert refused.value.field == "command"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "empty"),
        (("no-such-program",), "no-such-program is not on PATH"),
        (("./train.py",), "not executable"),
        (("python",), "without a script"),
        (("python", "-m"), "needs the name of a module"),
        (("torchrun", "--bogus", "train.py"), "--bogus"),
        (("torchrun", "--help"), "--help runs no script"),
        (("torchrun",), "training_script"),
        (("torchrun", "-m", "--no-python", "train"), "exclude each other"),
    ],
)
def test_what_cannot_run_is_refused_with_a_remedy(
    place: Path, argv: tuple[str, ...], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        parse(place, *argv)
