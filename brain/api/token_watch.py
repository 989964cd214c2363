"""Checks the tokens of all open streams with one query, so that streams of revoked tokens end."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from math import inf
from threading import Lock
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from brain.errors import Unavailable
from brain.ports import Stores

#: A check counts for all tokens for this share of the time between two checks of a token.
_SHARED = 0.5
#: Seconds without a query after the stores were unavailable, so that no stream waits for them.
_AWAY_SECONDS = 1.0


class Look(NamedTuple):
    """The result of one check of the tokens ``among``."""

    #: Number of revocations in this process, and (``at``) seconds on a monotonic clock, both from
    #: before the tokens were read.
    revocations: int
    at: float
    among: frozenset[str] = frozenset()
    #: Ids of tokens that may be invalid.
    doubtful: frozenset[str] = frozenset()


class TokenWatch:
    """Checks the tokens of all open streams together. Any thread may use it."""

    def __init__(
        self,
        stores: Stores,
        revocations: Callable[[], int],
        monotonic: Callable[[], float],
        *,
        seconds: float,
    ) -> None:
        """``seconds`` is the time between two checks of one token."""
        self._stores, self._revocations, self._monotonic = stores, revocations, monotonic
        self._shared_seconds = seconds * _SHARED
        self._watched: Counter[str] = Counter()
        self._lock = Lock()
        self._last, self._not_before = Look(-1, -inf), -inf
        self._looking: asyncio.Task[Look] | None = None

    @contextmanager
    def watching(self, token: str) -> Iterator[None]:
        """Within the block, each check includes this token."""
        with self._lock:
            self._watched[token] += 1
        try:
            yield
        finally:
            with self._lock:
                self._watched[token] -= 1
                self._watched += Counter()

    def shared(self, token: str) -> Look | None:
        """Return the last check if it is recent and includes this token; None otherwise."""
        last = self._last
        return last if self._counts_for(token, last) else None

    async def looked(self, token: str) -> None:
        """Wait for a recent check of all tokens, which all waiting streams share.

        Raises:
            Unavailable: the stores cannot be read.
        """
        if self.shared(token) is None:
            await asyncio.shield(self.begin(token))

    def begin(self, token: str) -> "asyncio.Future[Look]":
        """Start a check in a thread, unless a check is running; return the running check. Call this
        method on the event loop only.
        """
        if self._looking is None or self._looking.done():
            looking = run_in_threadpool(self.look, token)
            # It belongs to no request, so it has no span of one.
            self._looking = asyncio.create_task(looking, context=Context())
            # An error is for those who wait; nobody may.
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._looking

    def look(self, token: str) -> Look:
        """Return a check that includes a token: the last check if it is recent, otherwise a new
        one.

        Raises:
            Unavailable: the stores cannot be read.
        """
        with self._lock:
            if not self._counts_for(token, self._last):
                self._last = self._read(frozenset({*self._watched, token}))
            return self._last

    def _read(self, among: frozenset[str]) -> Look:
        count, at = self._revocations(), self._monotonic()
        if at < self._not_before:
            raise Unavailable("the database was unavailable a moment ago; try again")
        try:
            with self._stores.transaction(read_only=True) as tx:
                return Look(count, at, among, tx.uses.doubtful(among))
        except Unavailable:
            self._not_before = self._monotonic() + _AWAY_SECONDS
            raise

    def _counts_for(self, token: str, last: Look) -> bool:
        return (
            token in last.among
            and last.revocations == self._revocations()
            and self._monotonic() - last.at < self._shared_seconds
        )
