"""Names that are no text: processes may be called anything, and mount points, too."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launcher.agent.worker_group import capacity, standstill
from launcher.ram_checkpoint import slots
from launcher.values.replica import started_ticks
from launcher.workers.processes import process

#: As libraries do that give their process a title, and cut it in the middle of a character.
RENAMES = """
import ctypes, signal
signal.signal(signal.SIGTERM, lambda *_: None)
ctypes.CDLL(None).prctl(15, "a) 训练".encode()[:5])
print(flush=True)
signal.pause()
"""


@pytest.fixture
def oddly_named() -> Iterator[int]:
    """The id of a process whose name is no text, and which catches SIGTERM."""
    with subprocess.Popen([sys.executable, "-c", RENAMES], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        yield worker.pid
        worker.kill()


def test_a_worker_may_be_called_anything(oddly_named: int) -> None:
    assert process.catches(oddly_named, signal.SIGTERM)
    assert capacity.held_bytes([oddly_named]) > 0
    assert standstill.states([oddly_named])[oddly_named] in "RSD"
    assert slots.alive(oddly_named, str(started_ticks(oddly_named)))
