"""A mounted directory with the ways of a network file system."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import SCRIPTS


@contextmanager
def mounted(*flags: str) -> Iterator[Path]:
    """A mounted directory, whose path is short enough for sockets."""
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("a file system of our own needs FUSE and the right to mount")
    place = Path(tempfile.mkdtemp(prefix="network-"))
    backing, mountpoint = place / "backing", place / "mounted"
    backing.mkdir()
    mountpoint.mkdir()
    command = [sys.executable, str(SCRIPTS / "network_files.py"), *flags]
    command += [str(backing), str(mountpoint)]
    serving = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        while not mountpoint.is_mount():
            if serving.poll() is not None:
                assert serving.stderr is not None
                said = serving.stderr.read().decode()
                if "libfuse" in said:
                    pytest.skip("libfuse is not installed: apt-get install libfuse2 fuse")
                raise AssertionError(said)
            time.sleep(0.05)
        yield mountpoint
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
        subprocess.run(["umount", "--lazy", str(mountpoint)], capture_output=True)
        shutil.rmtree(place, ignore_errors=True)
