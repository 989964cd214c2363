"""Maps the control file that a worker shares with its agent."""

from __future__ import annotations

import mmap
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Version of the control file's layout.
LAYOUT = 2

# 8-byte fields.
VERSION, PARK, LEASE, STEPS, LAST, SAVED, PARKED, FIRST = range(8)
LIFE, DOING, WAITED, WAITS = range(10, 14)
HELD = 15
COUNT = 16


def mapped(path: str | None) -> Any:
    """Return the mapped control file as aligned integers; each integer is read and written
    atomically. All integers are 0 if there is no file, or if the file has a layout of another
    version.
    """
    if path is None or sys.byteorder != "little":
        return [0] * COUNT
    with open(path, "r+b") as file:
        seen = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    return seen if seen[VERSION] == LAYOUT else [0] * COUNT
