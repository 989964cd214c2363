"""The order in which libraries were imported in advance, and the variables that each import read.

A stage contains the modules that the import of one library added. A library's dependencies are in
its own stage or an earlier one. So a worker that compares all stages up to the stage of a library
has compared every variable that the library may have read. This module runs inside workers, uses
only the standard library and supports CPython 3.8 and later.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


class Stages:
    """The stages that imports have made so far.

    Create this object before the first import, once ``os.environ`` uses ``traces.Environment``.
    """

    def __init__(self) -> None:
        self._standing = frozenset(sys.modules)
        #: Library -> number of its stage.
        self.of: "dict[str, int]" = {}
        #: The variables that each stage read, absent ones too.
        self.reads: "list[set[str]]" = []

    def begin(self) -> None:
        """Discard the reads recorded so far, because they come from the launcher."""
        os.environ._data.reads.clear()  # type: ignore[attr-defined]

    def imported(self, module: str) -> None:
        """Record an import and the variables that it read, even if it failed.

        A submodule that is imported later is recorded with its library, because a script that
        imports the library may also use the submodule.
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
        """Return the number of the first stage after the stage of ``library`` in which imports read
        variables.

        Only such a stage needs a comparison. The result is at least ``after``; it is the number of
        all stages if no such stage follows.
        """
        end = max(after, self.of.get(library, -1) + 1)
        while end < len(self.reads) and not self.reads[end]:
            end += 1
        return end

    def read_in(self, stages: "Iterable[int]") -> "set[str]":
        """Return the names of the environment variables that imports read in ``stages``."""
        return {name for at in stages for name in self.reads[at]}
