"""Sends spooled samples to the service: each request has the samples of one job, and the job's
token.
"""

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from brain import calls, wire
from brain.client import AsyncBrainClient
from brain.errors import BadInput, BrainError, Overloaded, Unavailable, UnknownVersion
from brain.types.telemetry import Receipt, Sample
from collectors.spool import Spool, SpooledBatch

log = logging.getLogger("collectors")

#: Most samples of one request, about 400 KB, which is far below the service's limits.
BATCH = 500
#: Seconds until the second attempt, and longest delays for each kind of error.
FIRST_SECONDS = 0.5
LONGEST_AWAY_SECONDS = 5.0
LONGEST_REFUSED_SECONDS = 60.0


def delay_seconds(error: BrainError, failures: int, luck: float) -> float:
    """Return the seconds until the next attempt.

    The delay doubles with every failure in a row, up to 5 s if the service is unreachable, and up
    to a minute if the service refuses the request (401, 403, 404, 426). The delay is never below
    ``Retry-After``.

    Args:
        luck: uniform in [0, 1); spreads senders that failed together.

    >>> delay_seconds(Unavailable("gone"), failures=1, luck=0.0)
    0.25
    >>> delay_seconds(Unavailable("gone"), failures=30, luck=0.5)
    3.75
    >>> delay_seconds(Overloaded("busy", retry_after_seconds=4), failures=1, luck=0.5)
    4.375
    """
    away = isinstance(error, Unavailable | Overloaded)
    longest = LONGEST_AWAY_SECONDS if away else LONGEST_REFUSED_SECONDS
    step = min(longest, FIRST_SECONDS * 2.0 ** min(failures - 1, 20))
    least = error.retry_after_seconds if isinstance(error, Overloaded) else 0.0
    return least + step * (0.5 + luck / 2)


@dataclass(slots=True)
class _Way:
    """The delivery state of one job: failures, next attempt, batch size and client."""

    failures: int = 0
    #: Time of the next attempt, on the monotonic clock.
    not_before: float = 0.0
    batch: int = BATCH
    error: str | None = None
    url: str = ""
    token: str = ""
    client: AsyncBrainClient | None = None


@dataclass(slots=True)
class Delivered:
    """Numbers of samples by outcome, counted since the collector started."""

    stored: int = 0
    duplicates: int = 0
    rejected: int = 0
    unreadable: int = 0
    last_error: str | None = None
    ways: dict[str, _Way] = field(default_factory=dict)


class Delivery:
    """Sends the spooled samples to Brain.

    Args:
        url: returns the present URL of a job's service; None while it is unknown.
        token: returns a job's token.
    """

    def __init__(
        self, spool: Spool, *, url: Callable[[str], str | None], token: Callable[[str], str]
    ) -> None:
        self._spool, self._url, self._token = spool, url, token
        self.counts = Delivered()

    async def turn(self) -> float:
        """Send all samples that are due; return the seconds until more are due."""
        for job in self._spool.jobs():
            way = self._way(job)
            while time.monotonic() >= way.not_before:
                batch = self._spool.take(job, way.batch)
                if batch is None:
                    break
                await self._attempt(way, batch)
        now = time.monotonic()
        # A job whose first sample arrived during an attempt is due now.
        waits = [self._way(job).not_before - now for job in self._spool.jobs()]
        return max(0.0, min(waits, default=60.0))

    def hurry(self) -> None:
        """Make all waiting samples due now, because the collector is about to end."""
        for way in self.counts.ways.values():
            way.not_before = 0.0

    def errors(self) -> dict[str, str]:
        """Return the last delivery error of each job that still has samples waiting."""
        ways = self.counts.ways
        waiting = set(self._spool.jobs())
        return {job: way.error for job, way in ways.items() if way.error and job in waiting}

    async def close(self) -> None:
        for way in self.counts.ways.values():
            await _close(way)

    def _way(self, job: str) -> _Way:
        return self.counts.ways.setdefault(job, _Way())

    async def _attempt(self, way: _Way, batch: SpooledBatch) -> None:
        try:
            receipt, samples = await self._send(way, batch)
        except BadInput as refused:
            if isinstance(refused, UnknownVersion):
                await self._failed(way, refused)
            elif len(batch.lines) > 1:
                # Too large, or one sample spoils the rest: find it by halving.
                way.batch = max(1, len(batch.lines) // 2)
            else:
                self._reject(batch.lines[0], str(refused))
                self._delivered(way, batch)
        except BrainError as failure:
            await self._failed(way, failure)
        else:
            self.counts.stored += receipt.stored
            self.counts.duplicates += receipt.duplicates
            for bad in receipt.rejected:
                self._reject(wire.encode_sample(samples[bad.index]), bad.reason)
            self._delivered(way, batch)

    async def _send(self, way: _Way, batch: SpooledBatch) -> tuple[Receipt, list[Sample]]:
        samples = []
        for line in batch.lines:
            try:
                samples.append(wire.decode_sample(line))
            except BadInput as torn:
                self.counts.unreadable += 1
                log.warning(
                    "a spooled line of %s cannot be read and is skipped: %s", batch.segment, torn
                )
        if not samples:
            return Receipt(stored=0, duplicates=0), samples
        client = await self._client(way, batch.job)
        return await client.send(calls.telemetry(samples, sent_at=datetime.now(UTC))), samples

    async def _client(self, way: _Way, job: str) -> AsyncBrainClient:
        url, token = self._url(job), self._token(job)
        if url is None:
            raise Unavailable("the service is not running (found no service.json and no --url)")
        if way.client is None or (url, token) != (way.url, way.token):
            await _close(way)
            way.client, way.url, way.token = AsyncBrainClient(url, token), url, token
        return way.client

    def _delivered(self, way: _Way, batch: SpooledBatch) -> None:
        self._spool.acknowledge(batch)
        if way.error is not None and way.error == self.counts.last_error:
            self.counts.last_error = None  # over: what was kept has arrived
        way.failures, way.error = 0, None
        way.batch = min(BATCH, way.batch * 2)

    async def _failed(self, way: _Way, failure: BrainError) -> None:
        way.failures += 1
        way.not_before = time.monotonic() + delay_seconds(failure, way.failures, random.random())
        text = f"{type(failure).__name__}: {failure}"
        if text != way.error:
            log.warning("samples were not delivered and stay in the spool: %s", text)
        way.error = self.counts.last_error = text
        if isinstance(failure, Unavailable):
            # The service may come back on another port with connections of its own.
            await _close(way)

    def _reject(self, line: bytes, reason: str) -> None:
        self.counts.rejected += 1
        self.counts.last_error = f"rejected by the service: {reason}"
        log.warning(
            "the service rejected a sample, which is not sent again: %s: %s",
            reason,
            line.decode(errors="replace"),
        )


async def _close(way: _Way) -> None:
    if way.client is not None:
        client, way.client = way.client, None
        # A connection that broke may break again while it is closed; it is gone either way.
        with suppress(OSError):
            await client.close()
