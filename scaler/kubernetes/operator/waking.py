"""Wakes the scaler's loop from the threads that watch the API server."""

import asyncio
from contextlib import suppress

from brain.types.job import JobId
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime import StoreChange
from scaler.kubernetes.runtime.store import meant
from scaler.loop import Scaler


class Waking:
    """Makes the scaler's loop check jobs that changed; it does nothing before ``begin``."""

    def __init__(self) -> None:
        self._loop: tuple[asyncio.AbstractEventLoop, Scaler] | None = None

    def begin(self, scaler: Scaler) -> None:
        """From now on, wake ``scaler``, which runs on the current event loop."""
        self._loop = asyncio.get_running_loop(), scaler

    def job(self, job: JobId) -> None:
        if self._loop is not None:
            loop, scaler = self._loop
            # The loop may end at any moment, because this process ends.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(scaler.wake, job)

    def pod_changed(self, change: StoreChange) -> None:
        """Make the scaler's loop check the job of a changed pod."""
        found = identity.scaled_of(change.latest) or identity.theirs_of(change.latest)
        if found is not None:
            self.job(found[0])

    def object_changed(self, change: StoreChange) -> None:
        """Make the scaler's loop check a job if its object was edited."""
        if meant(change):
            self.job(JobId(change.latest["metadata"]["uid"]))
