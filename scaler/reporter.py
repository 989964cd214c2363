"""Reports the replicas of each job to Brain: changes immediately, other facts at intervals."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from brain import calls
from brain.errors import BrainError, Unavailable, VersionMismatch
from brain.types.job import Intent, JobId
from brain.types.world import ReplicaReport
from scaler.credentials import AsyncAsked
from scaler.pace import Pace
from scaler.reports import begins

log = logging.getLogger(__name__)


class Reporter:
    """Keeps the last observation of each job, and the last report that Brain has of it."""

    def __init__(
        self,
        client: AsyncAsked,
        *,
        pace: Pace,
        clock: Callable[[], datetime],
        intent: Callable[[JobId], Intent | None],
        closed: Collection[JobId],
    ) -> None:
        """``intent`` returns what Brain wants of a job, None if Brain does not list the job.
        ``closed`` are finished jobs of which nothing is left to look at.
        """
        self._client, self._pace, self._clock = client, pace, clock
        self._intent, self._closed = intent, closed
        self._reports: dict[JobId, ReplicaReport] = {}
        self._told: dict[JobId, ReplicaReport] = {}
        #: The intent for each job when its last report was sent.
        self._told_for: dict[JobId, Intent | None] = {}
        self._noted = False
        self._changed = asyncio.Event()

    def knows(self, job: JobId) -> bool:
        """Return True if there is an observation of a job."""
        return job in self._reports

    def note(self, report: ReplicaReport) -> None:
        """Keep an observation; any thread may call this."""
        known = self._reports.get(report.job)
        if known is None or replace(known, at=report.at) != report:
            self._reports[report.job] = report
            self._noted = True

    def announce(self) -> None:
        """Start to report the noted observations; call this on the event loop."""
        if self._noted:
            self._noted = False
            self._changed.set()

    def repeat_all(self) -> None:
        """Report every job again, because Brain may have lost some reports."""
        self._told.clear()

    async def run(self) -> None:
        """Send each report when it is due, until cancelled.

        Raises:
            Unavailable: Brain cannot be reached.
            VersionMismatch: Brain already has a newer write; send the report again.
        """
        while True:
            self._changed.clear()
            for job, report in list(self._reports.items()):
                if self._due(job, report):
                    await self._send(job, report)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pace.look):
                    await self._changed.wait()

    def _due(self, job: JobId, report: ReplicaReport) -> bool:
        told, now = self._told.get(job), self._clock()
        if told is None or (told.replicas, told.waiting) != (report.replicas, report.waiting):
            waited = abs((now - report.at).total_seconds())
            return waited >= self._pace.gather or not begins(told, report)
        intent = self._intent(job)
        if intent in (Intent.SUSPEND, Intent.CANCEL) and intent is not self._told_for.get(job):
            # Only a report that follows the intent tells Brain that no replica is left.
            return True
        age = (now - told.at).total_seconds()
        return job not in self._closed and abs(age) >= self._pace.repeat_job

    async def _send(self, job: JobId, report: ReplicaReport) -> None:
        known, report, intent = report, replace(report, at=self._clock()), self._intent(job)
        try:
            await self._client.send(calls.report_replicas(report))
        except (Unavailable, VersionMismatch):
            raise
        except BrainError as why:
            # Brain refused the report for good: it is logged once, and sent again when it changes.
            log.warning("Brain rejects the report about %s: %s", job, why)
        self._told[job], self._told_for[job] = report, intent
        if job in self._closed and self._reports.get(job) is known:
            # Changes during the request are reported, too.
            del self._reports[job], self._told[job], self._told_for[job]
