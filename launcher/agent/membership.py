"""The agent's side of a job's worlds: it finds or becomes the coordinator and runs workers.

Messages, exits and datagrams are events on one loop; only the heartbeat has a timer.
"""

import asyncio
import math
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from brain.errors import BadInput
from brain.types.resources import NodeName
from brain.types.world import ReplicaEnd, ReplicaExit
from launcher import messages
from launcher.agent.coordinator_connection import CoordinatorConnection
from launcher.agent.departure import Departure, gone
from launcher.agent.leading import CoordinatorRole
from launcher.agent.listener import AgentListener
from launcher.agent.network_check.measurement import measure
from launcher.agent.search import Found, Search
from launcher.agent.worker_group.group import WorkerGroup
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.coordinator import Coordinator
from launcher.coordinator.leadership import Leadership
from launcher.coordinator.witness_file import WitnessFile
from launcher.messages import Connection
from launcher.ram_checkpoint.agent import RamCheckpoint
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.workers import ParkRequest, WorkerExit
from launcher.workers.processes.process import free_port

#: Seconds between two looks for a coordinator, doubled from the first to the second.
_SEEK_SECONDS, _SEEK_LAST_SECONDS = 0.005, 0.05


class AgentMembership:
    """The agent's membership in the worlds of its job; ``run`` it once."""

    def __init__(
        self,
        config: LaunchConfig,
        *,
        token_sha256: str,
        host: str,
        generation: int,
        rank: int | None,
        leadership: Callable[[str], Awaitable[Leadership]],
        coordinate: Callable[["AgentMembership", Leadership], Coordinator],
        status: Callable[[str, str], None],
        say: Callable[[str], None],
        join_seconds: float = math.inf,
        lease_seconds: float = 3.0,
        port: int = 0,
        worker_group: Callable[..., WorkerGroup] = WorkerGroup,
        continuity: Continuity | None = None,
    ) -> None:
        self.config, self.host, self.address = config, host, ""
        #: Port at which it answers; 0 lets the kernel choose.
        self._port = port
        #: The replica that it is from the beginning; -1 = whichever a coordinator gives.
        self._asked = config.replica
        self._token_sha256, self._generation, self._rank = token_sha256, generation, rank
        self._leadership_of, self._coordinate = leadership, coordinate
        self._status, self.say = status, say
        #: How long to look for a first coordinator, and how long one may say nothing before it is
        #: taken to hang.
        self._join_seconds, self._lease_seconds = join_seconds, lease_seconds
        self._following = CoordinatorConnection(lease_seconds)
        self._ram_checkpoint = RamCheckpoint(token_sha256)
        self._worker_group = worker_group(
            config,
            host,
            memory=self._ram_checkpoint,
            tell=self._following.send,
            phase=self._enter,
            say=say,
        )
        self.continuity = continuity or Continuity(None, pause_seconds=math.inf, say=say)
        self.departure = Departure(self.continuity, say)
        self.witness = WitnessFile()
        #: Epoch of the latest world when a coordinator let it in; None if none has.
        self.welcomed_epoch: int | None = None
        #: Set once it can name the coordinator.
        self._begun = asyncio.Event()
        #: Answers at its address, and at others where agents look for the coordinator.
        self.listener = AgentListener(self.answer)
        #: Checks of the network, and looks at workers, that run.
        self._checks: set[asyncio.Task[None]] = set()

    @property
    def last(self) -> WorldDocument | None:
        """Return the last world of which this agent was a member; None if there was none."""
        return self._worker_group.last

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """Return the exits of the last world's workers."""
        return self._worker_group.exits

    async def run(self) -> ReplicaEnd:
        """Take part in worlds until the coordinator ends the job or releases this agent; return how
        the replica ended.
        """
        await self._worker_group.open()
        port = (await self.listener.listen(self.host, self._port)).sockets[0].getsockname()[1]
        self.address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        self._search = Search(
            await self._leadership_of(self.address),
            self.address,
            lease_seconds=self._lease_seconds,
            hello=self._hello,
            last=lambda: self.last,
            say=self.say,
        )
        self._leading = CoordinatorRole(
            self._search,
            coordinate=lambda: self._coordinate(self, self._search.leadership),
            listen=self.listener.listen,
        )
        self._begun.set()
        self._status(self.address, "starting")
        self._handle_signals()
        home = self._leading.keep_home(self._lead)
        lasting = self.continuity.keep(lambda: self.coordinates)
        works = (self._worker_group.obey(), self._worker_group.warm(), self._beat(), home, lasting)
        tasks = [asyncio.create_task(work) for work in works]
        serving = asyncio.create_task(self._serve())
        try:
            ended = await self.departure.until_ended(serving, tasks, self._worker_group.kill)
            # Asked twice, too: what renews the leases goes on until then.
            await self._worker_group.end()
            connection = self._following.connection
            serving.cancel()
            self._ram_checkpoint.withdraw()
            await self.departure.until_hurried(self._ram_checkpoint.drain)
            if connection is not None:
                await connection.close()
            await self._leading.let_go(self.departure.asked)
            return ended
        finally:
            for task in (serving, *tasks):
                task.cancel()
            self.listener.close()
            await self._following.close()
            await self._worker_group.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to this agent: as the coordinator, or by sending the coordinator's
        address.
        """
        connection = Connection(reader, writer)
        try:
            hello = await connection.receive(
                messages.Message, seconds=messages.INTRODUCTION_SECONDS
            )
            if hello is None:
                return
            if isinstance(hello, messages.Fetch | messages.Offer):
                await self._ram_checkpoint.answer(hello, connection)
                return
            await self._begun.wait()
            if isinstance(hello, messages.Lead):
                self._led(hello)
                return
            if not isinstance(hello, messages.Hello):
                raise BadInput(
                    f"a first message {type(hello).__name__} is not expected here; the peer may "
                    "run another version of Brain: install the same version on both machines"
                )
            if self._leading.coordinator is not None:
                await self._leading.coordinator.accept(hello, connection)
            else:
                epoch = 0 if self.last is None else self.last.epoch
                connection.send(messages.Elsewhere(coordinator=self._search.following, epoch=epoch))
        except BadInput as stranger:
            self.say(f"this agent refused a connection: {stranger}")
        finally:
            await connection.close()

    # --- the coordinator -------------------------------------------------------------------

    async def _serve(self) -> ReplicaEnd:
        while True:
            connection = await self._seek()
            if isinstance(connection, ReplicaEnd):
                return connection
            self._connected(connection)
            try:
                while (message := await self._following.receive(connection)) is not None:
                    if isinstance(message, messages.Bye):
                        self._worker_group.let_go()
                        return ReplicaEnd(
                            exit=message.exit,
                            exit_code=message.exit_code,
                            detail=message.detail,
                            unfit=message.unfit,
                        )
                    self._hear(message)
            finally:
                self._following.connection, self._search.following = None, ""
                self._worker_group.hold_on(False)
                self._worker_group.order(messages.Discard(epoch=0))
                connection.shut()  # else it stays open until it is collected
            self.say("the coordinator is gone")

    def _connected(self, connection: Connection) -> None:
        self._following.begin(connection)
        if self._leading.coordinator is None:
            self.say(
                f"waiting: no place yet in the world whose coordinator is {self._search.following}"
            )
        self._search.arrived()
        if self._worker_group.ready:  # it may have become so between hello and welcome
            connection.send(messages.Ready())
        self._worker_group.tell_again()
        if self.departure.leaving is not None:
            connection.send(messages.Leave())

    async def _seek(self) -> Connection | ReplicaEnd:
        """Connect to the coordinator, or become it."""
        began = time.monotonic()
        pause = _SEEK_SECONDS
        if self._search.leadership.home:
            self.say(
                f"waiting: no agent of job {self.config.job} answers yet at "
                f"{self._search.leadership.home}"
            )
        while True:
            if self.last is None and time.monotonic() - began > self._join_seconds:
                late = (
                    f"no agent of job {self.config.job} answered within {self._join_seconds:g} "
                    "s; start the other agents, or check --rdzv-endpoint"
                )
                return ReplicaEnd(exit=ReplicaExit.FAILED, exit_code=1, detail=late)
            self._leading.stand_down()
            if self.departure.leaving is not None and self._leading.coordinator is None:
                return gone("the agent was told to end before any agent coordinated the job")
            found = await self._search.look(own=self._leading.coordinator is not None)
            if found is False and self._leading.begin():
                continue
            if isinstance(found, bool) and self._leading.coordinator is None:
                # Even where another one answered: it may follow whom we found silent.
                found = await self._search.look_again()
            if isinstance(found, Found):
                return self._welcomed(found)
            if isinstance(found, messages.Refused):
                return ReplicaEnd(exit=ReplicaExit.FAILED, exit_code=1, detail=found.reason)
            if found is False and self.last is None and self._search.leadership.home:
                # Whoever coordinated died before our first world.
                await self._leading.listen_at_home()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SEEK_LAST_SECONDS)

    def _led(self, lead: messages.Lead) -> None:
        if lead.job == self.config.job and messages.same(lead.token_sha256, self._token_sha256):
            self._leading.led(lead)

    def _lead(self) -> messages.Lead | None:
        """Build the answer for agents that look for a coordinator; None before the first world."""
        if self.last is None:
            return None
        return messages.Lead(
            job=self.config.job,
            token_sha256=self._token_sha256,
            coordinator=self.address,
            epoch=self.last.epoch,
        )

    def _welcomed(self, found: Found) -> Connection:
        self.welcomed_epoch = found.welcome.epoch
        if self.last is not None and self.last.epoch > found.welcome.epoch:
            found.connection.send(messages.Known(world=self.last))
        if found.welcome.replica != self.config.replica:
            self.config = replace(self.config, replica=found.welcome.replica)
        self.config = self._worker_group.config = self._ram_checkpoint.configured(self.config)
        return found.connection

    def _hello(self) -> messages.Hello:
        worker_group = self._worker_group
        return messages.Hello(
            job=self.config.job,
            token_sha256=self._token_sha256,
            # A number counts with whoever gave it for a world, unless another agent has it by now.
            replica=self._asked
            if not worker_group.last or self._search.taken
            else self.config.replica,
            rank=self._rank,
            node=NodeName(self.config.node),
            address=self.address,
            processes=self.config.processes,
            group=self.config.group,
            generation=self._generation,
            last_epoch=worker_group.heard_epoch,
            world_epoch=0 if worker_group.last is None else worker_group.last.epoch,
            unheard_seconds=self._following.unheard_seconds,
            program=self.config.entrypoint.name,
            epoch=worker_group.epoch,
            exits=worker_group.running_exits,
            elastic=worker_group.elastic,
            witness=self.witness.seen,
            held=self._ram_checkpoint.held,
            ready=worker_group.ready,
            port=free_port(self.host),
            topology=self.config.topology,
        )

    def _hear(self, message: messages.Message) -> None:
        match message:
            case messages.Run() | messages.Halt() | messages.Prepare() | messages.Discard():
                if isinstance(message, messages.Run):
                    self.say(f"world {message.world.epoch} begins")
                    self.witness.begin(message.world.epoch)
                self._worker_group.order(message)
            case messages.Parked(epoch=epoch, mode=mode):
                self._worker_group.park(epoch, ParkRequest(mode))
            case messages.Answered() | messages.Shared():
                self._worker_group.shard_socket.heard(message)
            case messages.Appoint() | messages.Agree() | messages.Post():
                self._worker_group.asked(message)
            case messages.Check() | messages.Look() | messages.Witness():
                task = asyncio.create_task(self._find_out(message))
                self._checks.add(task)
                task.add_done_callback(self._checks.discard)
            case messages.Lease(epoch=epoch, at=at):
                self._following.answered_at = at
                self._worker_group.take_batch(message.batch)
                self._worker_group.hold_on(message.asking)
                if message.seconds:
                    self.continuity.followed(message.sent_ns / 1e9)
                    self._worker_group.extend_lease(
                        epoch, message.sent_ns + int(message.seconds * 1e9)
                    )

    async def _find_out(self, message: messages.Check | messages.Look | messages.Witness) -> None:
        if isinstance(message, messages.Check):
            self._following.send(await measure(self.config, message))
        elif isinstance(message, messages.Look):
            self._following.send(await self._worker_group.look(message))
        else:
            self._following.send(await self.witness.look(message))

    def _enter(self, phase: str) -> None:
        self._status(self.address, phase)

    async def _beat(self) -> None:
        while True:
            self._worker_group.beat()
            self._worker_group.tell_progress(heard=self._following.answered_at)
            if (silent := await self._following.until_next_beat()) is not None:
                self._turn_away(silent)

    def _turn_away(self, connection: Connection) -> None:
        """Tell a silent coordinator that this agent leaves it; a bare close would prove it dead."""
        self.say(
            f"the coordinator at {self._search.following} is silent; this agent looks for another "
            "coordinator"
        )
        self._search.turned_away(self._following.heard_at)
        connection.send(messages.Turned())
        connection.shut()

    # --- signals ---------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in self.config.signals:
            signum = signal.Signals[name]
            loop.add_signal_handler(signum, self.leave, signum)

    def leave(self, signum: signal.Signals) -> None:
        """Announce that this agent leaves, and leave at a safe point; a second call ends the agent
        immediately.
        """
        self.departure.ask(signum)
        self._worker_group.signum = signum
        self._following.send(messages.Leave())

    def handles(self, signum: signal.Signals) -> bool:
        """True if a worker handles the signal, or has ended (the signal may be the cause)."""
        return self._worker_group.handles(signum)

    @property
    def coordinates(self) -> bool:
        """True if this agent coordinates the job, or coordinated it until the job ended."""
        return self._leading.coordinator is not None

    def give_up(self, reason: str) -> None:
        """End the job for all agents, because workers cannot run on this machine."""
        epoch = 0 if self.last is None else self.last.epoch
        self._following.send(messages.Unusable(epoch=epoch, reason=reason))
