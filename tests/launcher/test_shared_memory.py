"""A real loader of data that finds /dev/shm full, under a real launcher, named with the remedy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Large(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.zeros(1 << 18)

if __name__ == "__main__":
    for batch in DataLoader(Large(), batch_size=8, num_workers=1):
        pass
"""
BUS = """
import mmap

with open("/dev/shm/large", "w+b") as file:
    file.truncate(4 << 20)
    mmap.mmap(file.fileno(), 4 << 20).write(b"x" * (4 << 20))
"""
MOUNT = "mount -t tmpfs -o size=1m tmpfs /dev/shm"


def in_little_memory(directory: Path, *command: str) -> str:
    """Run a command where /dev/shm has 1 MiB; return what it printed."""
    inside = ["unshare", "--mount", "sh", "-c", f'{MOUNT} && exec "$@"', "sh", *command]
    environment = os.environ | {"BRAIN_HOME": str(directory / "home")}
    done = subprocess.run(
        inside, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("script", [LOADER, BUS], ids=["a loader", "a bus error"])
def test_full_shared_memory_is_named_with_the_remedy(tmp_path: Path, script: str) -> None:
    if (
        not shutil.which("unshare")
        or os.geteuid() != 0
        or "rw" not in in_little_memory(tmp_path, "grep", " /dev/shm ", "/proc/mounts")
    ):
        pytest.skip("mounting a small /dev/shm takes root and a namespace of one's own")
    (tmp_path / "train.py").write_text(script)
    run = str(Path(sys.executable).with_name("brain-run"))
    said = in_little_memory(
        tmp_path, run, "--nproc_per_node", "1", "--max-restarts", "0", "train.py"
    )
    assert "shared memory (/dev/shm, which has 1 MiB) is full" in said
    assert "--shm-size" in said
