"""Waiting for what will be so, as long as a slow machine may need."""

import time
from collections.abc import Callable

_LIMIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.01


def eventually(held: Callable[[], object], seconds: float = _LIMIT_SECONDS) -> None:
    """Return once ``held`` is true; fails after ``seconds``."""
    until = time.monotonic() + seconds
    while not held():
        if time.monotonic() > until:
            raise AssertionError(f"not so after {seconds:.0f} s")
        time.sleep(_PAUSE_SECONDS)
