"""The clock of the API server, as the ``Date`` headers of its answers show it."""

import logging
import threading
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from scaler.kubernetes.runtime.pace import Clock

log = logging.getLogger(__name__)

#: A header names the whole second in which it was written.
_PRECISION = timedelta(seconds=1)
#: A larger correction of this clock is logged.
_WORTH_SAYING = timedelta(seconds=5)


class ServerClock:
    """A clock that follows the API server, which stamps the objects. Many threads may use it.

    Between answers this machine's monotonic clock counts, so that a wall clock that is wrong, or is
    set, has no effect. Before the first answer the wall clock at the start counts.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._lock = threading.Lock()
        #: The server's time at the zero of the monotonic clock.
        self._zero = own.now() - timedelta(seconds=own.elapsed())

    def elapsed(self) -> float:
        return self._own.elapsed()

    def now(self) -> datetime:
        return self._zero + timedelta(seconds=self._own.elapsed())

    def heard(self, date: str | None, asked_at: float) -> None:
        """Learn from the header ``Date`` of an answer to a request of ``asked_at``, in monotonic
        seconds.
        """
        try:
            written = parsedate_to_datetime(date) if date else None
        except ValueError:
            written = None
        if written is None or written.tzinfo is None:
            return
        # The server wrote the header after the request was sent, and before the answer came.
        earliest = written - timedelta(seconds=self._own.elapsed())
        latest = written + _PRECISION - timedelta(seconds=asked_at)
        with self._lock:
            before = self._zero
            self._zero = min(max(before, earliest), latest)
            change = self._zero - before
        if abs(change) >= _WORTH_SAYING:
            log.warning(
                "this machine's clock is %.0f s %s that of the API server, whose time counts (the "
                "clock is wrong, or the machine was paused); synchronise the clocks with NTP",
                abs(change.total_seconds()),
                "behind" if change > timedelta(0) else "ahead of",
            )
