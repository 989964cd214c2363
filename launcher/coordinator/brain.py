"""Exchange with Brain: receive the desired world, report observed worlds.

Both directions work while Brain is unreachable: the last desired world is on disk, and reports wait
on disk in order.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from brain.errors import (
    BadInput,
    BrainError,
    NotAllowed,
    NotSignedIn,
    Overloaded,
    Unavailable,
    UnknownVersion,
)
from brain.types.job import Intent
from brain.types.world import DesiredWorld, WorldReport
from launcher.values import replica
from launcher.values.console import say
from launcher.values.replica import JobPlace

if TYPE_CHECKING:
    from brain.client import AsyncBrainClient, Call

T = TypeVar("T")

#: Seconds that Brain may hold a question for the desired world.
_POLL_SECONDS = 20.0
#: Seconds between attempts, doubled from the first to the second while they fail.
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.2, 5.0
#: With these the same report may succeed later; with any other it never will.
_LATER = (Unavailable, Overloaded, NotSignedIn, NotAllowed, UnknownVersion)


class DesiredWorlds(Protocol):
    """A source of desired worlds for the coordinator."""

    async def follow(self, tell: Callable[[DesiredWorld], None]) -> None:
        """Call ``tell`` with the desired world, and again whenever it changes, until cancelled."""
        ...


class FixedDesiredWorld:
    """A desired world that never changes: ``--nnodes``."""

    def __init__(self, desired: DesiredWorld) -> None:
        self._desired = desired

    async def follow(self, tell: Callable[[DesiredWorld], None]) -> None:
        """Call ``tell`` once."""
        tell(self._desired)
        await asyncio.Event().wait()


class SuspendWhenWarned:
    """The desired world ``--nnodes``, until a warning says that this machine will be taken away
    soon. Then the job is to be suspended at its next safe point.
    """

    def __init__(self, desired: DesiredWorld, warned: asyncio.Event) -> None:
        self._desired, self._warned = desired, warned

    async def follow(self, tell: Callable[[DesiredWorld], None]) -> None:
        """Call ``tell`` now, and again with the intent to suspend once the warning comes."""
        tell(self._desired)
        await self._warned.wait()
        tell(replace(self._desired, version=self._desired.version + 1, intent=Intent.SUSPEND))
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """The field of ``service.json`` that this module needs."""

    url: str


def service_url(home: str, given: str) -> str:
    """Return the URL of this machine's service; return ``given`` if ``service.json`` is missing."""
    try:
        found = replica.read(Path(home) / "service.json", _Service)
    except (BadInput, OSError):
        found = None
    return given if found is None else found.url


class Brain:
    """A client that sends one request after the other.

    It reads URL and token again after each failure, because the service may have restarted on
    another port.
    """

    def __init__(self, url: Callable[[], str], token_file: str | None) -> None:
        self._url, self._token_file = url, token_file
        self._client: AsyncBrainClient | None = None

    async def send(self, call: "Call[T]") -> T:
        """Send one operation and return Brain's answer; raise the errors that
        ``AsyncBrainClient.send`` raises.
        """
        from brain.client import AsyncBrainClient  # late: without a Brain there is no HTTP

        if self._client is None:
            self._client = AsyncBrainClient(self._url(), read_token(self._token_file))
        try:
            return await self._client.send(call)
        except BrainError:
            await self.close()
            raise

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class DesiredByBrain:
    """Desired worlds from Brain, by long poll; while Brain is unreachable, the last copy on disk is
    used.
    """

    def __init__(
        self, brain: Brain, job: str, place: JobPlace, last: DesiredWorld | None = None
    ) -> None:
        """``last``: the desired world of the last world, for a successor on another disk."""
        self._brain, self._job, self._place, self._last = brain, job, place, last

    async def follow(self, tell: Callable[[DesiredWorld], None]) -> None:
        """Pass each desired world to ``tell``, until cancelled; while Brain is unreachable, pass
        the last desired world that Brain sent.
        """
        try:
            await self._follow(tell)
        finally:  # cancelled: another agent coordinates, or the job is over
            await self._brain.close()

    async def _follow(self, tell: Callable[[DesiredWorld], None]) -> None:
        desired: DesiredWorld | None = None
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                said = await self._ask(desired)
            except BrainError as silent:
                if pause == _FIRST_RETRY_SECONDS:
                    say(f"{silent}; the last desired world stays in force until Brain answers")
                    desired = desired or self._remembered(tell)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_RETRY_SECONDS)
                continue
            pause = _FIRST_RETRY_SECONDS
            if said is not None and said != desired:
                desired = said
                tell(desired)  # first: nobody waits for the disk
                await asyncio.to_thread(self._keep, desired)
            elif said is not None:  # the service does not know our ETag: never ask in a hurry
                await asyncio.sleep(1.0)

    def _keep(self, desired: DesiredWorld) -> None:
        """Write the copy; a full disk harms only a successor that starts while Brain is away."""
        try:
            self._place.keep("wish", desired)
        except OSError as full:
            say(
                f"wish.json cannot be written ({full}): if this agent ends while Brain is "
                "unreachable, the next coordinator will not know the desired world; free space "
                "on the disk"
            )

    def _remembered(self, tell: Callable[[DesiredWorld], None]) -> DesiredWorld | None:
        """Return the copy on disk; None if it says stop: an agent was started after that was
        written.
        """
        desired = self._place.find("wish", DesiredWorld) or self._last
        if desired is None or desired.intent is not Intent.RUN:
            return None
        tell(desired)
        return desired

    async def _ask(self, desired: DesiredWorld | None) -> DesiredWorld | None:
        from brain import calls  # late, as the client

        etag = None if desired is None else f'"{desired.etag}"'
        call = calls.world(self._job, etag=etag, wait_seconds=_POLL_SECONDS)
        return await self._brain.send(call)


class Reports:
    """Reports of observed worlds to Brain, which are sent in order and exactly once, even if either
    side restarts.
    """

    def __init__(self, directory: Path, brain: Brain | None) -> None:
        directory.mkdir(exist_ok=True)
        self._directory, self._brain = directory, brain
        self._waiting = sorted(directory.glob("*.json"))
        #: Those of this process; a full disk keeps them from being files.
        self._fresh: dict[Path, WorldReport] = {}
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._note_empty()

    def put(self, report: WorldReport) -> Path | None:
        """Store a report until Brain has it; return its file, or None if the job has no Brain.

        Raises:
            OSError: the report cannot be written to disk; the report then waits only in memory.
        """
        if self._brain is None:
            return None
        last = int(self._waiting[-1].stem) if self._waiting else 0
        path = self._directory / f"{last + 1:08d}.json"
        self._waiting.append(path)
        self._fresh[path] = report
        self._note_empty()
        self._wake.set()
        replica.write(path, report, durable=False)
        return path

    async def deliver(self) -> None:
        """Send waiting reports, until cancelled."""
        try:
            await self._deliver()
        finally:
            if self._brain is not None:
                await self._brain.close()

    async def _deliver(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._send(self._waiting[0])
            except _LATER:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_RETRY_SECONDS)
                continue
            pause = _FIRST_RETRY_SECONDS
            done = self._waiting.pop(0)
            self._fresh.pop(done, None)
            done.unlink(missing_ok=True)
            self._note_empty()

    @property
    def unsent(self) -> str:
        """Describe the reports that Brain does not have; empty if it has all."""
        count = len(self._waiting) if self._brain is not None else 0
        return f"{self._directory} keeps {count} of this job's reports" if count else ""

    async def drained(self) -> None:
        """Wait until all reports are sent."""
        await self._empty.wait()

    async def _send(self, path: Path) -> None:
        from brain import calls  # late, as the client

        assert self._brain is not None
        try:
            report = self._fresh.get(path) or replica.read(path, WorldReport)
            if report is not None:
                await self._brain.send(calls.report_world(report))
        except _LATER:
            raise
        except BrainError as refused:
            say(f"Brain refused the report {path.name}, which is not sent again: {refused}")

    def _note_empty(self) -> None:
        if self._waiting and self._brain is not None:
            self._empty.clear()
        else:
            self._empty.set()


def read_token(path: str | None) -> str:
    """Return the job's token; an empty string if it has none.

    Raises:
        NotSignedIn: the file with the token cannot be read.
    """
    if path is None:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as cannot:
        raise NotSignedIn(f"the token {path} cannot be read: {cannot.strerror}") from cannot
