"""What others leave in shared memory, or say to an agent, that must not be taken for the job's."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.memory.hold import orphans
from launcher.memory.links import SHARED


@pytest.fixture
def planted() -> Iterator[Path]:
    """A name of ours in shared memory, which anybody may take."""
    path = SHARED / f"brain-{os.getuid()}-planted{os.getpid()}-0"
    yield path
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def test_a_link_in_shared_memory_is_nobodys_left_directory(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    planted.symlink_to(tmp_path)
    assert planted not in orphans()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what belongs to another user")
def test_what_another_user_made_in_shared_memory_is_not_finished_for_them(planted: Path) -> None:
    planted.mkdir()
    (planted / "lock").touch()
    ours = planted in orphans()
    os.chown(planted, 65534, 65534)
    assert (ours, planted in orphans()) == (True, False)
