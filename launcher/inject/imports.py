"""Imports modules in a fork server: without the garbage collector, and beside training processes.

The fork server loads this module as ``_brain_imports``; it uses only the standard library and
supports CPython 3.8 and later.
"""

import gc
import importlib
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def import_uncollected(module: str) -> None:
    """Import a module with the garbage collector off, because the collector would find almost no
    garbage and take a fifth of the import's time.
    """
    standing = gc.get_threshold()
    gc.set_threshold(0)  # not gc.disable(): a library that disables it shall find it so
    try:
        importlib.import_module(module)
    finally:
        first, *others = gc.get_threshold()
        gc.set_threshold(first or standing[0], *others)


def origin_of(module: str) -> str:
    """Return the file of a module's top-level package; for a module of torch, the file of the
    module itself.
    """
    name = module if module.split(".")[0] == "torch" else module.split(".")[0]
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return getattr(spec, "origin", None) or ""


class Pacer:
    """An import finder that pauses before every import, so that training keeps its processor
    time.
    """

    def __init__(self, share: float) -> None:
        self.rest = (1 - share) / share
        self.since = time.monotonic()

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> None:
        """Find nothing, but pause first."""
        worked = time.monotonic() - self.since
        if worked > 0.005:
            time.sleep(min(0.25, worked * self.rest))
            self.since = time.monotonic()
