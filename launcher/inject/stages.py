"""The order in which libraries were imported ahead, and the variables that each import read.

A stage holds the modules that the import of one library brought along. A library's dependencies
came in its own stage or an earlier one. So a worker that compares all stages up to that of a
library has compared every variable that the library can have read. A guest: standard library,
CPython 3.8 on.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


class Stages:
    """Create it before the first import, on ``traces.Environment``."""

    def __init__(self) -> None:
        self._standing = frozenset(sys.modules)
        #: Library -> number of its stage.
        self.of: "dict[str, int]" = {}
        #: The variables that each stage read, absent ones too.
        self.reads: "list[set[str]]" = []

    def begin(self) -> None:
        """Discard the recorded reads so far: they are the launcher's, not the script's."""
        os.environ._data.reads.clear()  # type: ignore[attr-defined]

    def imported(self, module: str) -> None:
        """Note an import and the variables that it read, even if it failed.

        A part of a library that is imported later counts for the library: a script that imports the
        library may get at the part as well.
        """
        top = module.partition(".")[0]
        at = self.of.get(top, len(self.reads))
        if at == len(self.reads):
            self.reads.append(set())
        new = {name for name in list(sys.modules) if "." not in name} - self._standing
        for name in new:
            self.of.setdefault(name, at)
        content = os.environ._data  # type: ignore[attr-defined]
        self.reads[at].update(map(os.fsdecode, content.reads))

    def up_to(self, library: str, after: int) -> int:
        """Return the number after the stage of a library and after any following stages that read
        nothing, since those need no comparison. The result is at least ``after``.
        """
        end = max(after, self.of.get(library, -1) + 1)
        while end < len(self.reads) and not self.reads[end]:
            end += 1
        return end

    def read_in(self, stages: "Iterable[int]") -> "set[str]":
        """Names that were read in these stages."""
        return {name for at in stages for name in self.reads[at]}
