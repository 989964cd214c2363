"""In which order libraries were imported ahead, and which variables they read meanwhile.

A stage is what the import of one library brought along. Whatever a library relies on came in its
own stage or in an earlier one, so a worker that compares all stages up to that of a library has
compared all that the library can have read. A guest: standard library, CPython 3.8 on.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


class Stages:
    """Make it before the first import, on ``traces.Environment``."""

    def __init__(self) -> None:
        self._standing = frozenset(sys.modules)
        #: Library -> number of its stage.
        self.of: "dict[str, int]" = {}
        #: The variables that each stage read, absent ones too.
        self.reads: "list[set[str]]" = []

    def begin(self) -> None:
        """Forget what was read until now: the launcher read it."""
        os.environ._data.reads.clear()  # type: ignore[attr-defined]

    def imported(self, module: str) -> None:
        """Note an import and the variables it read, whether it failed or not.

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
        """The number behind the stage of a library, and behind those after it that read nothing:
        nothing would be compared for them. At least ``after``."""
        end = max(after, self.of.get(library, -1) + 1)
        while end < len(self.reads) and not self.reads[end]:
            end += 1
        return end

    def read_in(self, stages: "Iterable[int]") -> "set[str]":
        """Names that were read in these stages."""
        return {name for at in stages for name in self.reads[at]}
