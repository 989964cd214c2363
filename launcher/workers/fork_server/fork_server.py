"""The fork server of an agent: a process that has imported the workers' modules, and forks workers.

If forking is impossible (no such interpreter, a library that starts threads, a dead server), the
caller starts workers as new interpreters, which is slower. The reason is printed once.
"""

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from brain.errors import Unavailable
from launcher.values import console
from launcher.values.config import LaunchConfig
from launcher.values.workers import ProbeEvent
from launcher.workers.fork_server import command as commands
from launcher.workers.fork_server import learned, start
from launcher.workers.fork_server.channel import Channel, Child, Lacks, Readiness
from launcher.workers.fork_server.parked import ParkedWorkers
from launcher.workers.fork_server.script_imports import ScriptImports
from launcher.workers.processes import process

#: Share of a processor that a second server may take while a world trains.
_PACE = 0.5
#: A second server is not worth it for fewer modules than this.
_WORTHWHILE = 20
#: Servers that are started anew without an unsafe library, before nothing is imported ahead.
_TRIES = 10
#: Seconds between two times that what a server proved is remembered.
_KEEP_SECONDS = 1.0
#: Seconds after which a server that makes no worker hangs: one that imports is waited for before.
_PATIENCE_SECONDS = 60.0
#: Newest checkpoints that a prepared worker is told, all in one environment variable. It recognizes
#: older ones by their age.
_CHECKPOINTS = 100


class ForkServer:
    def __init__(
        self, config: LaunchConfig, say: Callable[[str], None], patience_seconds: float
    ) -> None:
        """Use ``open``."""
        self._config, self._say, self._patience_seconds = config, say, patience_seconds
        # Who measures imports measures those of a new interpreter.
        forks = config.entrypoint.python and "PYTHONPROFILEIMPORTTIME" not in config.environment
        self._command = commands.read(config.entrypoint.argv) if forks else None
        self._imports = ScriptImports(config, self._command, self._once)
        self._channel: Channel | None = None
        self._parking: ParkedWorkers | None = None
        #: Servers whose workers have not all ended yet.
        self._retired: list[Channel] = []
        self._tending: asyncio.Task[Readiness] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._said: set[str] = set()
        #: When this agent began: Unix and monotonic seconds.
        self._began = time.time(), time.monotonic()
        #: The newest files and directories that its workers saved since.
        self.checkpoints = deque[str](maxlen=_CHECKPOINTS)
        #: Ends what is left if this agent is killed; one for all worlds.
        self.guard = process.Guard()

    @classmethod
    async def open(
        cls,
        config: LaunchConfig,
        say: Callable[[str], None],
        *,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> "ForkServer":
        """Start the server and return while the server imports. ``say`` gets messages for the user.
        A worker that the server has not forked within ``patience_seconds`` starts in a new
        interpreter.
        """
        fork_server = cls(config, say, patience_seconds)
        if os.path.isdir(config.directory):  # else there is nothing to run there either
            fork_server._imports.recall()
            if fork_server._imports.known.plain:
                fork_server._stay_plain()
                return fork_server
            fork_server._channel = fork_server._start()
            fork_server._tending = asyncio.create_task(fork_server._tend())
        return fork_server

    async def ready(self) -> Readiness:
        """Wait until all imports are done; return the imported modules."""
        if self._tending is None:
            return Readiness()
        return await asyncio.shield(self._tending)

    @property
    def pid(self) -> int | None:
        """Return the process id of the present server; None if there is none."""
        return None if self._channel is None else self._channel.process.pid

    @property
    def since(self) -> float:
        """Unix time at which this agent began; files newer than this may belong to this job."""
        return began_at(*self._began, time.time(), time.monotonic())

    @property
    def holds(self) -> bool:
        """True if forked workers can be held before they run the script."""
        return self._channel is not None and self._channel.alive and self._command is not None

    @property
    def learns(self) -> bool:
        """True if a worker's report of its imports is needed."""
        return self._imports.learns

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> Child:
        """Make one worker that runs ``argv`` in the job's directory with ``fds`` as its streams.

        Raises:
            Unavailable: the worker cannot be made here; start it in another way.
        """
        if self._channel is None:
            raise Unavailable("there is no fork server")
        known = self._imports.known.sets_nothing(self._imports.text())
        spec = start.spec_of(
            self._config, self._command, list(argv), environment, fds=fds, sets_nothing=known
        )
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the fork.
            async with asyncio.timeout(self._patience_seconds):
                if self._parking is not None:
                    return await self._parking.take(spec, fds)
                return await self._channel.fork(spec, fds)
        except TimeoutError as hangs:
            self._once("the fork server hangs; workers start in fresh interpreters")
            self._replace(None)
            raise Unavailable("the fork server does not answer") from hangs
        except Unavailable as cannot:
            if not self._imports.known.plain:
                self._once(f"a worker starts in a fresh interpreter: {cannot}")
            raise

    def heard(self, event: ProbeEvent) -> bool:
        """Handle a worker's event about imports or saves; return True if no other object needs the
        event.
        """
        if event.event == "saved" and event.path and event.path not in self.checkpoints:
            self.checkpoints.append(event.path)
        if event.event == "learned" and event.path:
            self._learn(event.path)
        if event.event == "settings" and event.path:
            self._compare(event.path)
        return event.event in ("learned", "settings")

    def _learn(self, report: str) -> None:
        """Learn, once in a run, from a worker's report of its imports up to the first step."""
        if self._learning is None:
            told = learned.read_report(report)
            if told.modules:
                self._learning = asyncio.create_task(self._improve(told))

    def _compare(self, report: str) -> None:
        """Compare a script's settings at its first import with those of the server."""
        told = learned.read_settings(report)
        if told is None:
            return
        if told.again:
            self._once(
                "a worker starts again in a fresh interpreter, because the script sets "
                f"{', '.join(told.names)} before its imports"
            )
        self._imports.learn(self._imports.known.differing(told, self._imports.text()))
        if self._imports.known.plain:
            self._stay_plain()

    def _stay_plain(self) -> None:
        why = f"nothing is imported ahead of this script: {self._imports.known.plain}"
        self._once(why, console.say if self._imports.known.lacks else None)
        self._replace(None)

    def _told_to_stay_plain(self, lacks: Lacks) -> bool:
        """Report the names that torch lacks; return True if no worker can be forked for it."""
        if not lacks.plain:
            self._once(lacks.why, console.say)
            return False
        self._imports.learn(
            replace(self._imports.known, plain=lacks.why, text=self._imports.text(), lacks=True)
        )
        self._stay_plain()
        return True

    def tidy(self) -> None:
        """End retired servers that have no workers left."""
        self._retired = [channel for channel in self._retired if not channel.retire()]

    async def close(self) -> None:
        """End the server and all processes that it started."""
        for task in (self._tending, self._learning):
            if task is not None:
                task.cancel()
        if self._parking is not None:
            self._parking.close()
        for channel in [*self._retired, *([self._channel] if self._channel else [])]:
            channel.close()
        self.guard.close()

    # --- what is imported ahead ------------------------------------------------------------

    def _spec(self) -> Mapping[str, Any]:
        """Return the specification of a worker as imports see it."""
        argv = [*self._config.entrypoint.argv]
        return start.spec_of(self._config, self._command, argv, {})

    def _start(self, *, empty: bool = False, proves: bool = False) -> Channel | None:
        """Start a server; a server that ``proves`` imports all modules, at its own slow pace."""
        try:
            settings = self._imports.known.environment
            channel = start.start(self._config, self._command, settings, self._gone)
        except OSError as cannot:
            self._once(f"workers start in fresh interpreters, without a fork server: {cannot}")
            return None
        probe = process.probe_path() if self._config.probe and self._command else None
        if empty or self._config.preload == "parked":
            channel.open((), probe, sure=False)
        else:
            modules, pace = (
                (self._imports.wanted(), _PACE) if proves else (self._imports.safe(), None)
            )
            sure = bool(self._imports.known.modules)
            channel.open(modules, probe, sure=sure, pace=pace, spec=self._spec())
        return channel

    async def _tend(self) -> Readiness:
        """Start the first server without unsafe modules; return what it imported.

        A world may wait for this server, so that it imports only proven modules. The other modules
        must prove themselves while the world trains, as must modules after a library that has
        become unsafe.
        """
        if self._config.preload == "parked" and self._command is not None:
            return await self._park()
        for _ in range(_TRIES):
            found = await _readiness(self._channel)
            if found.lacks is not None and self._told_to_stay_plain(found.lacks):
                return Readiness()
            if found.spoiled is None:
                return found
            if found.hidden:
                self._hide(found)
                self._replace(self._start(empty=True))
                return Readiness()
            before = itertools.takewhile(found.spoiled[0].__ne__, self._imports.safe())
            self._imports.known = replace(self._imports.known, proven=frozenset(before))
            self._exclude(*found.spoiled, found.origin)
            if found.spoiled[0] == "torch":
                return await self._park()
            self._replace(self._start())
        self._imports.known = replace(self._imports.known, modules=(), environment={}, exact=False)
        return await self._park()

    async def _park(self) -> Readiness:
        """Have each worker import ahead, by itself, modules that no fork server may import."""
        channel, modules = self._channel, self._imports.wanted()
        if channel is None:
            return Readiness()
        if self._config.preload != "parked":
            channel = self._start(empty=True)
            self._replace(channel)
            if channel is None:
                return Readiness()
        devices = self._config.processes if self._config.park_cuda else None
        parking = ParkedWorkers(channel, modules, 2 * self._config.processes, devices, self._spec())
        self._parking = parking
        lacks = await parking.open()
        if lacks is not None and self._told_to_stay_plain(lacks):
            return Readiness()
        return Readiness(modules=modules)

    async def _improve(self, report: learned.ImportReport) -> None:
        """Remember a script's imports; start a server that imports them and proves them safe."""
        before = await self.ready()
        self._imports.learn(self._imports.known.taught(report, self._imports.text()))
        if self._imports.known.plain:
            return
        news = set(self._imports.known.preload(())) - before.known
        idle = all(map(self._imports.known.is_proven, news)) and len(news) < _WORTHWHILE
        if self._parking is not None or idle:
            return
        for _ in range(_TRIES):
            channel = self._start(proves=True)
            if channel is None:
                return
            try:
                found = await self._proving(channel)
            except asyncio.CancelledError:  # the agent ends meanwhile
                channel.close()
                raise
            if self._imports.known.plain or (found.lacks and self._told_to_stay_plain(found.lacks)):
                channel.close()
                return
            if found.spoiled is None and channel.alive:
                self._replace(channel)
                self._tending = asyncio.create_task(_known(found))
                return
            channel.close()
            if found.hidden:
                self._hide(found)
            if found.spoiled is None or found.hidden:
                return
            self._exclude(*found.spoiled, found.origin)

    async def _proving(self, channel: Channel) -> Readiness:
        """Wait for a server, and remember its progress: the next run begins there."""
        while not channel.ready.done():
            await asyncio.wait({channel.ready}, timeout=_KEEP_SECONDS)
            if channel.proven - self._imports.known.proven:
                self._imports.learn(self._imports.known.proving(channel.proven))
        return await _readiness(channel)

    def _replace(self, channel: Channel | None) -> None:
        if self._channel is not None:
            self._retired.append(self._channel)
        self._channel = channel
        self.tidy()

    def _exclude(self, module: str, why: str, origin: str) -> None:
        self._once(f"{module} is not imported ahead: {why}")
        self._imports.learn(self._imports.known.but(module, why, learned.stamp(origin)))

    def _hide(self, found: Readiness) -> None:
        """Import nothing ahead, because a module of the script hides one of a library."""
        self._once(
            f"nothing is imported ahead: {', '.join(found.hidden)} in {self._imports.first} would "
            "hide the module of the same name that libraries have imported"
        )
        self._imports.learn(replace(self._imports.known, hidden=found.hidden))

    # --- when it fails ---------------------------------------------------------------------

    def _gone(self) -> None:
        self._once("the fork server ended by itself; workers start in fresh interpreters")

    def _once(self, text: str, say: Callable[[str], None] | None = None) -> None:
        if text not in self._said:
            self._said.add(text)
            (say or self._say)(text)


def began_at(then: float, ticks_then: float, now: float, ticks_now: float) -> float:
    """Return the time at which the agent began: ``then``, or ``now`` minus the elapsed ticks if
    that is earlier.

    If the clock was set back meanwhile, files that are newer than the agent may have times before
    ``then``. All arguments are seconds: Unix time, and ticks of a clock that is never set.

    >>> began_at(1000.0, 5.0, 940.0, 45.0)
    900.0
    """
    return min(then, now - (ticks_now - ticks_then))


async def _readiness(channel: Channel | None) -> Readiness:
    try:
        return Readiness() if channel is None else await asyncio.shield(channel.ready)
    except Unavailable:
        return Readiness()


async def _known(readiness: Readiness) -> Readiness:
    return readiness
