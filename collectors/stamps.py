"""Identities of the collector's own samples: source, time and sequence number."""

import secrets
from datetime import datetime, timedelta

from brain.types.telemetry import SourceId

#: If a clock goes back by more than this, it was set; less is jitter between two readings.
_SET_BACK = timedelta(seconds=1)


class Stamps:
    """Provides (source, measured_at, sequence) with strictly increasing ``measured_at``.

    If the clock is set back, a new source begins, so that samples with the new time are distinct
    from all earlier ones.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._source = SourceId(secrets.token_hex(8))
        self._last: datetime | None = None
        self._sequence = -1

    def next(self, now: datetime) -> tuple[SourceId, datetime, int]:
        if self._last is not None and now < self._last - _SET_BACK:
            self._begin()
        if self._last is not None and now <= self._last:
            now = self._last + timedelta(microseconds=1)
        self._last = now
        self._sequence += 1
        return self._source, now, self._sequence

    def take_back(self) -> None:
        """Free the newest number for another sample; an unused number would count as a loss."""
        self._sequence -= 1
