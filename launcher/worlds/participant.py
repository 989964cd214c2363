"""The agent's side of a job's worlds: it finds or becomes the coordinator and runs workers.

Everything is an event: frames, exits and datagrams on one loop; only the heartbeat has a clock.
"""

import asyncio
import math
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from brain.errors import BadInput, Unavailable
from brain.types.resources import NodeName
from brain.types.world import ReplicaExit
from launcher import frames
from launcher.config import LaunchConfig, WorldDocument
from launcher.coordinator import Coordinator
from launcher.frames import Connection
from launcher.memory.part import MemoryPart
from launcher.network_check.measuring import measure
from launcher.processes.values import Park, WorkerExit
from launcher.workers import free_port
from launcher.worlds.crew import Crew
from launcher.worlds.peers import HEARTBEAT_SECONDS
from launcher.worlds.seats import Seat

#: Seconds between two looks for a coordinator, and for one that does not answer.
_SEEK_SECONDS, _ANSWER_SECONDS = 0.05, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the agent ends."""

    exit: ReplicaExit
    exit_code: int
    detail: str


class Participant:
    """The agent's part in the worlds of its job. Make one and ``run`` it once."""

    def __init__(
        self,
        config: LaunchConfig,
        *,
        token_sha256: str,
        host: str,
        generation: int,
        rank: int | None,
        seat: Callable[[str], Awaitable[Seat]],
        coordinate: Callable[["Participant", Seat], Coordinator],
        status: Callable[[str, str], None],
        say: Callable[[str], None],
        join_seconds: float = math.inf,
        crew: Callable[..., Crew] = Crew,
    ) -> None:
        self.config, self.host, self.address = config, host, ""
        self._token_sha256, self._generation, self._rank = token_sha256, generation, rank
        self._seat_of, self._coordinate = seat, coordinate
        self._status, self.say = status, say
        #: How long to look for a first coordinator.
        self._join_seconds = join_seconds
        self._memory = MemoryPart(token_sha256)
        self._crew = crew(
            config, host, memory=self._memory, tell=self._tell, phase=self._enter, say=say
        )
        self._coordinator: Coordinator | None = None
        self._coordinating: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        #: Epoch of the latest world when a coordinator let it in; None: none has.
        self.welcomed_epoch: int | None = None
        #: The signal that asked to end; asked twice, it hurries.
        self.leaving: signal.Signals | None = None
        self._hurry = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        #: Checks of the network that run.
        self._checks: set[asyncio.Task[None]] = set()

    @property
    def last(self) -> WorldDocument | None:
        """The last world that it had a part in."""
        return self._crew.last

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """How the workers of the last world ended."""
        return self._crew.exits

    async def run(self) -> Ended:
        """Take part in worlds until told to end."""
        await self._crew.open()
        port = (await self.listen(self.host, 0)).sockets[0].getsockname()[1]
        self.address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        self._seat = await self._seat_of(self.address)
        self._status(self.address, "starting")
        self._handle_signals()
        tasks = [
            asyncio.create_task(work()) for work in (self._crew.obey, self._crew.warm, self._beat)
        ]
        try:
            ended = await self._until_ended(tasks)
            await self._crew.end()
            await self._memory.drain(hurry=self._hurry.is_set())
            await self._let_go()
            return ended
        finally:
            for task in tasks:
                task.cancel()
            for server in self._servers:
                server.close()
            if self._connection is not None:
                await self._connection.close()
            await self._crew.close()

    async def listen(self, host: str | None, port: int) -> asyncio.Server:
        """Answer there, too, until the end.

        Raises:
            OSError: the address is not this machine's, or is taken.
        """
        server = await asyncio.start_server(self.answer, host, port)
        self._servers.append(server)
        return server

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to this agent: as coordinator, or by saying who is."""
        connection = Connection(reader, writer)
        try:
            hello = await connection.receive(frames.Frame)
            if hello is None:
                return
            if isinstance(hello, frames.Fetch | frames.Offer):
                await self._memory.answer(hello, connection)
                return
            if not isinstance(hello, frames.Hello):
                raise BadInput(f"{type(hello).__name__} is not expected here")
            if self._coordinator is not None:
                await self._coordinator.accept(hello, connection)
            else:
                known = "" if self.last is None else self.last.coordinator
                epoch = 0 if self.last is None else self.last.epoch
                connection.send(frames.Elsewhere(coordinator=known, epoch=epoch))
        except BadInput as stranger:
            self.say(f"a connection is dropped: {stranger}")
        finally:
            await connection.close()

    # --- the coordinator -------------------------------------------------------------------

    async def _until_ended(self, background: "list[asyncio.Task[None]]") -> Ended:
        """Serve one coordinator after the other; a crash of ours is never swallowed."""
        serving = asyncio.ensure_future(self._serve())
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait([serving, hurry, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    task.result()
            return serving.result() if serving.done() else self._gone("asked twice to end")
        finally:
            serving.cancel()
            hurry.cancel()

    async def _serve(self) -> Ended:
        while True:
            connection = await self._seek()
            if isinstance(connection, Ended):
                return connection
            self._connection = connection
            if self._crew.ready:  # it may have become so between hello and welcome
                connection.send(frames.Ready())
            if self.leaving is not None:
                connection.send(frames.Leave())
            try:
                while (frame := await connection.receive(frames.Frame)) is not None:
                    if isinstance(frame, frames.Bye):
                        return Ended(
                            exit=frame.exit, exit_code=frame.exit_code, detail=frame.detail
                        )
                    self._hear(frame)
            finally:
                self._connection = None
                await connection.close()
            self.say("the coordinator is gone")

    async def _seek(self) -> Connection | Ended:
        """Connect to the coordinator, or become it."""
        began = time.monotonic()
        while True:
            if self.last is None and time.monotonic() - began > self._join_seconds:
                late = f"no agent of job {self.config.job} answered in {self._join_seconds:g} s"
                return Ended(exit=ReplicaExit.FAILED, exit_code=1, detail=late)
            if self._coordinating is not None and self._coordinating.done():
                self._coordinating.result()
            if self.leaving is not None and self._coordinator is None:
                return self._gone("asked to end while there was no coordinator")
            answered = False
            mine = [self.address] if self._coordinator is not None else []
            for address in mine or self._seat.candidates(self.last):
                found = await self._introduce(address)
                if isinstance(found, Connection | Ended):
                    return found
                answered |= found
            epoch = 0 if self.last is None else self.last.epoch
            free = not answered and self._coordinator is None
            if free and self._seat.claim(self.address, epoch):
                self._coordinator = self._coordinate(self, self._seat)
                self._coordinating = asyncio.create_task(self._coordinator.run())
                continue
            await asyncio.sleep(_SEEK_SECONDS)

    async def _introduce(self, address: str) -> Connection | Ended | bool:
        """Say hello; returns the connection, or whether anybody of the job answered."""
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with its answer.
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await Connection.to(address)
        except (Unavailable, TimeoutError):
            return False
        connection.send(self._hello())
        try:
            async with asyncio.timeout(2 * _ANSWER_SECONDS):
                said = await connection.receive(frames.Frame)
        except (BadInput, TimeoutError):
            said = None
        match said:
            case frames.Welcome(replica=replica, epoch=epoch):
                self.welcomed_epoch = epoch
                if replica != self.config.replica:
                    self.config = replace(self.config, replica=replica)
                self.config = self._crew.config = self._memory.configured(self.config)
                return connection
            case frames.Refused(reason=reason, final=True):
                await connection.close()
                return Ended(exit=ReplicaExit.FAILED, exit_code=1, detail=reason)
        await connection.close()
        return said is not None

    def _hello(self) -> frames.Hello:
        crew = self._crew
        return frames.Hello(
            job=self.config.job,
            token_sha256=self._token_sha256,
            replica=self.config.replica,
            rank=self._rank,
            node=NodeName(self.config.node),
            address=self.address,
            processes=self.config.processes,
            generation=self._generation,
            last_epoch=crew.heard_epoch,
            epoch=crew.epoch,
            exits=crew.running_exits,
            held=self._memory.held,
            ready=crew.ready,
            port=free_port(self.host),
            topology=self.config.topology,
        )

    async def _let_go(self) -> None:
        """End as coordinator: with the job, or leaving it to a successor."""
        if self._connection is not None:
            await self._connection.close()
        if self._coordinator is not None and self._coordinating is not None:
            if self._coordinator.over:
                await self._coordinating
            else:
                self._coordinating.cancel()
                await asyncio.wait([self._coordinating])
        if self._coordinator is not None:
            self._seat.leave()

    # --- orders ----------------------------------------------------------------------------

    def _hear(self, frame: frames.Frame) -> None:
        match frame:
            case frames.Run() | frames.Halt() | frames.Prepare() | frames.Discard():
                self._crew.order(frame)
            case frames.Parked(epoch=epoch, mode=mode):
                self._crew.park(epoch, Park(mode))
            case frames.Check():
                task = asyncio.create_task(self._check(frame))
                self._checks.add(task)
                task.add_done_callback(self._checks.discard)
            case frames.Lease(epoch=epoch):
                self._crew.extend_lease(epoch, frame.sent_ns + int(frame.seconds * 1e9))

    async def _check(self, asked: frames.Check) -> None:
        self._tell(await measure(self.config, asked))

    def _enter(self, phase: str) -> None:
        self._status(self.address, phase)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self._crew.beat()
            self._crew.tell_progress()

    def _tell(self, frame: frames.Frame) -> None:
        if self._connection is not None:
            self._connection.send(frame)

    # --- signals ---------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in self.config.signals:
            signum = signal.Signals[name]
            loop.add_signal_handler(signum, self.leave, signum)

    def leave(self, signum: signal.Signals) -> None:
        """Leave with notice; asked again, end at once."""
        if self.leaving is not None:
            self._hurry.set()
        self.leaving = signum
        self._tell(frames.Leave())

    def give_up(self, reason: str) -> None:
        """End the job for all: no workers can be run here, now or later."""
        epoch = 0 if self.last is None else self.last.epoch
        self._tell(frames.Unusable(epoch=epoch, reason=reason))

    def _gone(self, why: str) -> Ended:
        return Ended(exit=ReplicaExit.LEFT, exit_code=0, detail=why)
