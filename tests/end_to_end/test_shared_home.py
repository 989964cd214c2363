"""State directories on a network file system, and several people on one machine."""

import os
import subprocess
import sys

import pytest

from brain import calls
from tests.harness import running
from tests.network_files import mounted


@pytest.mark.timeout(240)
def test_a_home_on_a_network_file_system_serves_as_any_other() -> None:
    with mounted() as home, running(home / "state", "--slots=2") as brain:
        job = brain.submit("counted.py", "--steps=1000000")
        brain.until("samples", 150, job, lambda detail: detail.job.throughput is not None)
        assert (brain.home / "collector" / "probe.sock").is_symlink()
        brain.send(calls.cancel(job))
        brain.finished(job)


def test_a_home_without_locks_is_refused_with_the_remedy() -> None:
    up = [sys.executable, "-m", "brain.cli", "up", "--port=0"]
    with mounted("--no-locks") as home:
        named = os.environ | {"BRAIN_HOME": str(home / "state")}
        ran = subprocess.run(up, env=named, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 1
    assert "takes no locks: No locks available; choose one on a disk of this machine" in ran.stderr
