"""Checks out an older commit, with which a benchmark compares this one in the same run."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The commit before pools decided by what was measured.
BASE = "65270bc"


def checkout(place: Path, *folders: str) -> Path:
    """Write ``folders`` of the older commit below ``place``, so that a process can have ``place``
    as its PYTHONPATH.

    Raises:
        subprocess.CalledProcessError: this is no clone, or its history lacks the commit.
    """
    archive = git("archive", BASE, *folders)
    subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
    return place


def git(*arguments: str) -> bytes:
    """Return the output of a git command in this checkout."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout
