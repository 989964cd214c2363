"""Waiting for what will be so, as long as a slow machine may need, and playing who makes it so."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def repeating(turn: Callable[[], object]) -> Iterator[None]:
    """Take turns in a thread of its own until the block ends."""
    done = threading.Event()

    def turns() -> None:
        while not done.wait(0.05):
            turn()

    thread = threading.Thread(target=turns, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)
