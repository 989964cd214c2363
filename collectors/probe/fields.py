"""The control file that a worker shares with its agent, as numbers."""

from __future__ import annotations

import mmap
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Version of the control file.
LAYOUT = 2

# 8-byte fields.
VERSION, PARK, LEASE, STEPS, LAST, SAVED, PARKED, FIRST = range(8)
LIFE, DOING, WAITED, WAITS = range(10, 14)
HELD = 15
COUNT = 16


def mapped(path: str | None) -> Any:
    """Return the control file as numbers. Fields are native and aligned, so reads are never
    torn.
    """
    if path is None or sys.byteorder != "little":
        return [0] * COUNT
    with open(path, "r+b") as file:
        seen = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    return seen if seen[VERSION] == LAYOUT else [0] * COUNT
