"""What the tests' own harness starts ends with it, and waits are longer on a busy machine."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.guard import ROOT, processes
from tests.harness import running
from tests.patience import SLOWEST, Patience

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.harness import running

with running(Path(sys.argv[1])) as brain:
    job = brain.submit("counted.py", "--steps=100000", replicas={"min": 1, "max": 1})
    brain.saved(job)
    print("trains", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_harness_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, home], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "trains\n"), killed.stderr

    patience = Patience(60)
    while left := list(processes(home)):
        assert not patience.over, left
        time.sleep(0.1)


def test_a_harness_whose_command_line_names_the_directory_outlives_its_block(
    tmp_path: Path,
) -> None:
    block = (
        "import sys; from pathlib import Path; from tests.guard import guarded\n"
        "with guarded(Path(sys.argv[1])): pass\n"
        "print('went on')"
    )
    command = [sys.executable, "-c", block, tmp_path]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_a_brain_that_is_not_ready_in_time_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "home"

    with pytest.raises(AssertionError, match="not ready"), running(home, ready_seconds=0):
        pass

    assert list(processes(home)) == []


def test_a_wait_is_as_many_times_longer_as_processes_have_to_share_a_core() -> None:
    def lasted(runnable: int) -> int:
        times = iter(range(10_000))
        patience = Patience(10, clock=lambda: next(times), runnable=lambda: runnable, cores=2)
        return next(second for second in range(10_000) if patience.over)

    assert [lasted(1), lasted(2), lasted(8)] == [10, 10, 40]
    assert lasted(1000) == pytest.approx(10 * SLOWEST, abs=1)
