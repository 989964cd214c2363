"""The coordinator's journal, for its successor and for Brain.

Each file is replaced before the event that it describes, so that a successor on this machine finds
the file whichever process dies. A background task syncs the files to disk, because a sync may take
longer than a change of the world. A power cut may lose the newest file, but it also ends the
workers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brain.types.job import JobId
from brain.types.world import Cause, Member, ReplicaExit, WorldEvent, WorldReport
from launcher.coordinator.brain import Reports
from launcher.coordinator.world.ledger import WorldLedger
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.values.config import WorldDocument
from launcher.values.replica import JobPlace, settle


class Journal:
    """The ledger, the world document and the reports."""

    def __init__(
        self, job: str, place: JobPlace, reports: Reports, say: Callable[[str], None]
    ) -> None:
        self._job, self._place, self._reports, self._say = job, place, reports, say
        self.ledger = WorldLedger()
        #: Files that a power cut might take back.
        self._unsettled: dict[Path, None] = {}
        self._wrote = asyncio.Event()

    async def settle(self) -> None:
        """Sync files to the disk, until cancelled."""
        while True:
            await self._wrote.wait()
            self._wrote.clear()
            paths = list(self._unsettled)
            self._unsettled.clear()
            for path in paths:
                try:
                    await asyncio.to_thread(settle, path)
                except OSError as full:
                    self._say(f"{path.name} may be lost if the machine loses power: {full}")

    def open(self, last: WorldDocument | None) -> WorldDocument | None:
        """Read the files of the last coordinator, and return its world document. If this machine
        has no such document, return ``last``.
        """
        self.ledger = self._place.find("ledger", WorldLedger) or WorldLedger()
        document = self._place.find("world", WorldDocument) or last
        if self.ledger.over is ReplicaExit.LEFT:  # suspended; whoever is here now was resumed
            self.note(over=None, ended=True)
        if document is not None and self.ledger.epoch < document.epoch:
            self.learn(document)
        return document

    def learn(self, document: WorldDocument) -> None:
        """Continue from a world that another coordinator formed."""
        failures = max(self.ledger.failures, document.restart_count)
        goal = self.ledger.goal or len(document.members)
        self.note(
            epoch=document.epoch,
            goal=goal,
            failures=failures,
            unchecked=self.ledger.unchecked or document.unchecked,
            ended=False,
            formed=False,
        )
        self.world(document)

    def note(self, *, durable: bool = True, **changes: Any) -> None:
        """Change the ledger; a ``durable`` change is synced soon, so that it survives a power
        cut.
        """
        self.ledger = replace(self.ledger, **changes)
        self._keep("ledger", self.ledger, durable=durable)

    def world(self, document: WorldDocument) -> None:
        """Write the world document for a successor."""
        self._keep("world", document)

    def tell(
        self,
        event: WorldEvent,
        monitor: WorldMonitor | None,
        *,
        generation: int | None = None,
        cause: Cause | None = None,
        epoch: int | None = None,
        members: tuple[Member, ...] | None = None,
        **more: Any,
    ) -> None:
        """Report an event of a world. ``generation``, ``cause`` and ``epoch`` are needed only if
        they differ from those of the latest world.
        """
        report = WorldReport(
            job=JobId(self._job),
            event=event,
            epoch=self.ledger.epoch if epoch is None else epoch,
            generation=_known(generation, monitor),
            cause=cause or (monitor.document.cause if monitor is not None else Cause.START),
            members=members or (monitor.document.members if monitor is not None else ()),
            at=datetime.now(UTC),
            **more,
        )
        try:
            path = self._reports.put(report)
        except OSError as full:
            path = None
            self._say(
                f"a report to Brain cannot be written to disk and is kept only in memory: {full}"
            )
        if path is not None:
            self._settle_later(path)
        if report.detail:
            self._say(f"{event}: {report.detail}")

    def tell_stepping(self, monitor: WorldMonitor) -> None:
        """Report the first step, with the downtime before it and the number of repeated steps."""
        past, first = self.ledger.past, monitor.first_step_at
        last = None if past is None else past.last_step_at
        self.tell(
            WorldEvent.STEPPING,
            monitor,
            downtime_seconds=max(0.0, first - last) if last and first else None,
            steps_redone=None
            if past is None
            else 0
            if monitor.in_process
            else past.redone(monitor.loaded),
            elastic=monitor.elastic >= monitor.replicas,
            loaded=monitor.loaded[-1] if monitor.loaded else None,
        )
        begun = 0 if past is None else past.at(monitor.loaded, self.ledger.begun)
        if monitor.in_process:  # its workers went on counting
            begun = self.ledger.begun
        self.note(stepped=True, begun=begun, past=monitor.past if monitor.past.steps else past)

    def _keep(self, name: str, value: object, *, durable: bool = True) -> None:
        """Write a file; a full disk may harm a successor, but never the running training."""
        try:
            path = self._place.keep(name, value, durable=False)
        except OSError as full:
            self._say(
                f"{name}.json cannot be written ({full}); if this agent ends, the next "
                "coordinator lacks this file; free space on the disk"
            )
            return
        if durable:
            self._settle_later(path)

    def _settle_later(self, path: Path) -> None:
        self._unsettled[path] = None
        self._wrote.set()


def _known(generation: int | None, monitor: WorldMonitor | None) -> int:
    if generation is not None:
        return generation
    return 0 if monitor is None else monitor.generation
