"""Settings that a script makes before its first import count, whatever was imported ahead."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.values.config import LaunchConfig
from tests.launcher.fork_servers import ANNOUNCES, LIGHT, a_script, printed, run_to_end

_LIGHT = {"PYTHONPATH": LIGHT}

#: Says how many threads torch has, and whether the worker was forked with torch in it.
SAYS = "import torch\nprint(torch.get_num_threads(), '_brain_settings' in sys.modules)\n"
SETS = "os.environ['OMP' + '_NUM_THREADS'] = os.environ.get('CHOSEN', '2')\n"

#: Makes that setting if it is told to, announces a first step as the probe does, and ends once the
#: agent has remembered what was imported, and that it goes on so.
TRAINS = f"""
import os, sys
if "CHOSEN" in os.environ:
    os.environ["OMP" + "_NUM_THREADS"] = os.environ["CHOSEN"]
import torch
{ANNOUNCES}
import glob, time
known = '"plain": "it sets' if "CHOSEN" in os.environ else '"torch"'
while not any(known in open(each).read() for each in glob.glob("elastic-brain/preload-*")):
    time.sleep(0.02)
print(torch.get_num_threads(), "_brain_settings" in sys.modules)
"""


def a_run(directory: Path, lines: str, **environment: str) -> LaunchConfig:
    own = {"XDG_CACHE_HOME": str(directory / "cache"), "OMP_NUM_THREADS": "1"}
    # With bytecode of local modules, as scripts are run.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return a_script(
        directory, "import os, sys\n" + lines, environment=inherited | own | environment
    )


def runs(
    directory: Path, lines: str, torch: Mapping[str, str] = _LIGHT, **environment: str
) -> list[str]:
    """What a worker of these lines says in one run, errors first."""
    (directory / "output.log").unlink(missing_ok=True)
    assert asyncio.run(run_to_end(a_run(directory, lines, **torch, **environment))) == [0]
    return sorted(printed(directory).splitlines(), key=lambda line: not line.startswith("brain:"))


@pytest.mark.parametrize(
    "torch", [_LIGHT, pytest.param({}, marks=pytest.mark.slow)], ids=["light", "real"]
)
def test_a_setting_before_the_import_counts_and_is_known_the_next_time(
    torch: Mapping[str, str], tmp_path: Path
) -> None:
    assert runs(tmp_path, SETS + SAYS, torch) == ["2 False"]
    assert runs(tmp_path, SETS + SAYS, torch) == ["2 True"]


def test_a_setting_that_is_no_more_made_counts_no_more(tmp_path: Path) -> None:
    lines = "if 'CHOSEN' in os.environ:\n    " + SETS + SAYS
    assert runs(tmp_path, lines, CHOSEN="2") == ["2 False"]
    assert runs(tmp_path, lines) == ["1 False"]


def test_one_that_varies_is_imported_by_the_script_itself(tmp_path: Path) -> None:
    for chosen in ("2", "1"):
        assert runs(tmp_path, SETS + SAYS, CHOSEN=chosen) == [f"{chosen} False"]
    assert runs(tmp_path, SETS + SAYS, CHOSEN="2") == ["2 False"]


@pytest.mark.parametrize(
    "noticed",
    [
        "print('said')",
        "open('written', 'w').close()",
        "import socket; socket.socket().close()",
        "import subprocess; subprocess.run(['true'], check=True)",
        "os.makedirs('made', exist_ok=True)",
        "os.nice(1)",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 600)",
    ],
)
def test_a_script_that_was_noticed_goes_on_is_told_and_starts_plain_the_next_time(
    noticed: str, tmp_path: Path
) -> None:
    first = runs(tmp_path, f"{noticed}\n" + SETS + SAYS)
    assert "OMP_NUM_THREADS=2 was set before the script imports torch" in first[0]
    assert "imported that library with 1; because the script " in first[0]
    assert first[-1] == "1 True"
    assert runs(tmp_path, f"{noticed}\n" + SETS + SAYS)[-1] == "2 False"


def test_another_text_of_that_script_is_forked_again(tmp_path: Path) -> None:
    runs(tmp_path, "print('said')\n" + SETS + SAYS)
    assert runs(tmp_path, SAYS) == ["1 True"]


@pytest.mark.parametrize(
    "unnoticed",
    [
        "import mine",
        "open('train.py').read()",
        "os.chdir('/'); os.umask(0o77)",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "import importlib.util; assert importlib.util.find_spec('torch').origin",
    ],
)
def test_what_nobody_can_notice_is_done_twice(unnoticed: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    assert runs(tmp_path, f"{unnoticed}\n" + SETS + SAYS) == ["2 False"]


def test_it_starts_again_as_it_began(tmp_path: Path) -> None:
    begins = (
        "import signal\n"
        "began = [os.getcwd(), os.umask(0o77), not signal.getsignal(signal.SIGUSR2)]\n"
        "began.append(len(os.sched_getaffinity(0)))\n"
        "os.chdir('/'); signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    )
    (said,) = runs(tmp_path, begins + SETS + "import torch\nprint(began)\n")
    assert said == str([str(tmp_path), 0o22, True, len(os.sched_getaffinity(0))])


def test_a_script_that_never_made_settings_is_not_listened_to(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    command = [str(Path(sys.executable).with_name("brain-run")), "train.py"]
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"} | _LIGHT

    def ran(**environment: str) -> tuple[str, str]:
        named = os.environ | own | environment
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=named,
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        # A busy machine is told of after ten seconds.
        said = (line for line in done.stderr.splitlines(True) if ": waiting: " not in line)
        return done.stdout, "".join(said)

    assert ran() == ("1 True\n", "")
    said, told = ran(CHOSEN="2")
    assert said == "1 True\n"
    assert (
        "because an earlier run of the script changed no settings, this run continues without"
        in told
    )
    assert ran(CHOSEN="2")[0] == "2 False\n"


def test_nothing_changes_for_a_script_that_sets_nothing(tmp_path: Path) -> None:
    looks = (
        "print(torch.__spec__.loader.__class__.__name__, torch is sys.modules['torch'],\n"
        "      [each for each in sys.meta_path if 'brain' in type(each).__module__])\n"
    )
    assert runs(tmp_path, SAYS + looks) == ["1 True", "SourceFileLoader True []"]
