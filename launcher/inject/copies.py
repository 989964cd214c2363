"""Copies in memory of checkpoints on storage; scripts read the copies instead.

The shim loads this module as ``_brain_copies``; it uses only the standard library and supports
CPython 3.8 and later. Once the newest file of a series is durable, the flusher keeps a copy of it
in its agent's memory, and records which durable file is equal to the copy. No process writes into
such a copy; it is only removed as a whole.
"""

from __future__ import annotations

import json
import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: How a file of torch.save begins that can be mapped.
_ZIP = b"PK\x03\x04"


class Copies:
    """The copies in the memory of this user's agents on this machine."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.above = os.path.dirname(root)
        self.mark = "brain-%d-" % os.getuid()

    def copy_of(self, file: Any) -> str | None:
        """Return the path of the copy of a checkpoint; None if no copy is certain to be equal."""
        if not isinstance(file, (str, bytes, os.PathLike)):
            return None
        try:
            # It is opened as the script would: who watches what it reads shall see it first.
            with open(file, "rb") as opened:
                seen = os.fstat(opened.fileno())
                if opened.read(len(_ZIP)) != _ZIP:
                    return None
            durable = {"inode": seen.st_ino, "bytes": seen.st_size, "mtime_ns": seen.st_mtime_ns}
            return next((path for path, of in self._all() if of == durable), None)
        except (OSError, ValueError):  # torch says best what is wrong with it
            return None

    def forget(self) -> bool:
        """Remove the copies of this agent; return True if there were any."""
        mine = _kept(self.root)
        for kept in mine:
            shutil.rmtree(kept, ignore_errors=True)
        return bool(mine)

    def _all(self) -> Iterator[tuple[str, dict[str, int]]]:
        for name in os.listdir(self.above):
            root = os.path.join(self.above, name)
            if name.startswith(self.mark) and os.lstat(root).st_uid == os.getuid():
                for kept in _kept(root):
                    found = _read(kept)
                    if found is not None:
                        yield found


def _kept(root: str) -> list[str]:
    try:
        names = os.listdir(root)
    except OSError:  # its agent has just left
        return []
    return [os.path.join(root, name) for name in names if name.startswith("kept-")]


def _read(kept: str) -> tuple[str, dict[str, int]] | None:
    try:
        with open(os.path.join(kept, "manifest")) as manifest:
            name = os.path.basename(json.load(manifest)["path"])
        with open(os.path.join(kept, "durable")) as durable:
            return os.path.join(kept, name), json.load(durable)
    except (OSError, ValueError, KeyError):  # being removed
        return None
