"""The commit that later ones are measured beside, in the same run: its files come out of git."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The commit before pools decided by what was measured.
BASE = "65270bc"


def checkout(place: Path, *folders: str) -> Path:
    """Put ``folders`` of that commit below ``place``, which a process then has as PYTHONPATH.

    Raises:
        subprocess.CalledProcessError: this is no clone, or one that was cut off after that commit.
    """
    archive = git("archive", BASE, *folders)
    subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
    return place


def git(*arguments: str) -> bytes:
    """What git says of this checkout."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout
