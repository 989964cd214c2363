"""Waiting for what will be so, as long as a slow machine may need."""

import time
from collections.abc import Callable

from tests.patience import Patience

_LIMIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.01


def eventually(held: Callable[[], object], seconds: float = _LIMIT_SECONDS) -> None:
    """Return once ``held`` is true; fails after ``seconds``."""
    patience = Patience(seconds)
    while not held():
        if patience.over:
            raise AssertionError(f"not so after {seconds:.0f} s")
        time.sleep(_PAUSE_SECONDS)
