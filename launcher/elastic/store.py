"""A key-value store in which the members of a new world publish their addresses to each other.

torch's process groups use this store, which has no server: agents and their coordinator forward
each value to all members, and ``get`` waits until it arrives. The store opens no connection, so no
connection can be late or refused. Each world has a separate store, so no value is stale.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist


class Over(RuntimeError):
    """Raised if a wait in the store ends because its world was discarded."""


class RendezvousStore(dist.Store):  # type: ignore[misc]  # torch has no types here
    """The key-value store of one world; keys are strings, values are bytes."""

    def __init__(self, post: Callable[[str, bytes], None], patience_seconds: float) -> None:
        """``post`` sends a value to all other members."""
        super().__init__()
        self._post = post
        #: Longest time that a caller waits here.
        self.patience_seconds = patience_seconds
        self._values: dict[str, bytes] = {}
        self._over = False
        self._changed = threading.Condition()

    def posted(self, key: str, value: bytes) -> None:
        """Store a value that another member has set."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def cancel(self) -> None:
        """End all waits with ``Over``."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def set(self, key: str, value: Any) -> None:
        content = value.encode() if isinstance(value, str) else bytes(value)
        self.posted(key, content)
        self._post(key, content)

    def get(self, key: str) -> bytes:
        """Wait until a member sets the value, and return it."""
        self.wait([key])
        return self._values[key]

    def check(self, keys: list[str]) -> bool:
        """True if all ``keys`` have a value."""
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have a value.

        Raises:
            Over: the world was discarded.
            TimeoutError: some key got no value in time.
        """
        seconds = self.patience_seconds if timeout is None else timeout.total_seconds()
        until = time.monotonic() + min(seconds, self.patience_seconds)
        with self._changed:
            while not self.check(keys):
                if self._over:
                    raise Over("the world that was forming was given up")
                if not self._changed.wait(until - time.monotonic()):
                    raise TimeoutError(f"no member has published {', '.join(keys)}")
