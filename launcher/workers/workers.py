"""The worker processes of this agent in one world.

``Workers`` starts them, watches them without polling (exits by pidfd, the probe's events by a
datagram socket), and stops them with all their processes. ``launcher.coordinator.membership``
decides if an exit ends the world.
"""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from brain.errors import BadInput
from launcher.data.shard_socket import ShardListener, ShardSocket
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.workers import ParkRequest, ProbeEvent, Progress, WorkerExit
from launcher.workers import stopping
from launcher.workers.factory import WorkerFactory
from launcher.workers.fork_server.channel import Child
from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.processes import output, process
from launcher.workers.processes.sessions import SessionMessage, Sessions
from launcher.workers.stack_dumps import DumpTarget

#: Seconds that output may still flow after the last worker has ended.
_OUTPUT_SECONDS = 5.0


class Workers:
    """The workers of one agent in one world, from ``start`` to ``stop``.

    Call all methods on the event loop's thread, which must live as long as the agent (workers die
    with the *thread* that started them).
    """

    def __init__(
        self,
        config: LaunchConfig,
        world: WorldDocument,
        group_rank: int,
        fork_server: ForkServer | None,
        on_event: Callable[[ProbeEvent], None],
        on_exit: Callable[[WorkerExit], None],
        shard_socket: ShardSocket | None = None,
        on_session: Callable[["Workers", str, SessionMessage], None] | None = None,
        *,
        held: bool = False,
        joining: bool = False,
    ) -> None:
        """Use ``start``."""
        self._config = config
        self._world = world
        self._group_rank = group_rank
        self._fork_server = fork_server
        #: Prepared, and not let go yet.
        self._held = held
        self._on_event = on_event
        self._on_exit = on_exit
        self._guard = fork_server.guard if fork_server is not None else process.Guard()
        self._directory = process.private_directory()
        self._guard.watch(self._directory)  # at once: this agent may be killed at any moment
        #: Where they ask for shards of data.
        self._shard_socket: ShardListener | None = (
            None if shard_socket is None else shard_socket.way(self._directory / "data")
        )
        #: Epoch that they went over from last, and that they may still speak of; 0: none.
        self._left = 0
        #: They are started into a world that trains already, and that they join.
        self.joining = joining
        #: The lines to those of them that can go over into another world; None: none can.
        self.sessions: Sessions | None = None
        if on_session is not None:
            said = partial(on_session, self)
            count = world.member(group_rank).processes
            self.sessions = Sessions(self._directory / "line", count, said)
        self._exits: list[WorkerExit] = []
        self._started: list[process.WorkerProcess] = []
        self._ended = asyncio.Event()
        #: All have ended, and their control files are gone.
        self._closed = False
        #: One may end while others beside it have still to be started.
        self._starting = True
        self._mode, self._asked = ParkRequest.RUN, False
        self._stopping: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._making = WorkerFactory(
            config,
            world,
            group_rank,
            directory=self._directory,
            fork_server=fork_server,
            guard=self._guard,
            held=held,
            elastic=self._elastic(),
        )
        self._socket = process.listen(self._directory / "agent")
        self._loop.add_reader(self._socket.fileno(), self._hear)

    @classmethod
    async def start(
        cls,
        config: LaunchConfig,
        world: WorldDocument,
        group_rank: int,
        *,
        fork_server: ForkServer | None = None,
        on_event: Callable[[ProbeEvent], None],
        on_exit: Callable[[WorkerExit], None],
        shard_socket: ShardSocket | None = None,
        on_session: Callable[["Workers", str, SessionMessage], None] | None = None,
        joining: bool = False,
    ) -> "Workers":
        """Start ``world.member(group_rank).processes`` workers; return once all have started.

        ``fork_server`` forks them if it can; otherwise they are fresh interpreters. ``on_event``
        and ``on_exit`` are called on the loop, one at a time. A lease of ``world.lease_seconds``
        begins now; ``extend_lease`` renews it. ``joining`` means that the world is already
        training, and that the new workers receive its state.

        Raises:
            BadInput: the program or its directory cannot be used; nothing is left behind.
        """
        told = on_event, on_exit, shard_socket, on_session
        return await cls(config, world, group_rank, fork_server, *told, joining=joining)._begin()

    @classmethod
    async def prepare(
        cls,
        config: LaunchConfig,
        world: WorldDocument,
        group_rank: int,
        *,
        fork_server: ForkServer | None = None,
        on_event: Callable[[ProbeEvent], None],
        on_exit: Callable[[WorkerExit], None],
        shard_socket: ShardSocket | None = None,
        on_session: Callable[["Workers", str, SessionMessage], None] | None = None,
    ) -> "Workers":
        """Start and return workers of a coming world, which wait until ``release`` before they run
        the script.

        Their output is not read yet, and a ``gated`` event reports each worker that waits.

        Raises:
            BadInput: the program or its directory cannot be used, or the workers of this command
                cannot be held.
        """
        if fork_server is None or not fork_server.holds:
            raise BadInput("only forked workers wait at a gate", field="entrypoint")
        told = on_event, on_exit, shard_socket, on_session
        return await cls(config, world, group_rank, fork_server, *told, held=True)._begin()

    @property
    def gated(self) -> bool:
        """True if all prepared workers live and wait for ``release``."""
        started = len(self._started) == self._world.member(self._group_rank).processes
        return started and not self._exits and all(each.control.gated for each in self._started)

    def release(self) -> None:
        """Let prepared workers run the script, and read their output from now on."""
        self._held = False
        for worker in self._started:
            worker.control.gate(False)
            for stream in worker.streams:
                stream.read()

    @property
    def world(self) -> WorldDocument:
        return self._world

    @property
    def elastic(self) -> bool:
        """True if all workers can change worlds in process."""
        return self.sessions is not None and self.sessions.complete

    def go_over(self, world: WorldDocument, group_rank: int) -> None:
        """Record that these workers changed to another world."""
        self._left = self._world.epoch
        self._world, self._group_rank = world, group_rank
        for worker in self._started:
            worker.rank = world.first_rank(group_rank) + worker.local_rank

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by local rank."""
        return tuple(worker.process.pid for worker in self._started)

    @property
    def targets(self) -> tuple[DumpTarget, ...]:
        """Return the running workers whose stacks can be dumped."""
        interpreter = self._config.entrypoint.interpreter
        return tuple(
            DumpTarget(
                rank=each.rank, pid=each.process.pid, control=each.control, beside=interpreter
            )
            for each in self._alive()
        )

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """Exits of workers so far, in the order in which they were observed."""
        return tuple(self._exits)

    @property
    def running(self) -> bool:
        """True if any worker still runs."""
        return len(self._exits) < len(self._started)

    async def wait(self) -> tuple[WorkerExit, ...]:
        """Wait until all workers have ended; return ``exits``."""
        await self._ended.wait()
        return self.exits

    def park(self, mode: ParkRequest) -> None:
        """Ask all workers to park (stop training and wait), or to continue."""
        self._mode = mode
        for worker in self._started:
            worker.control.park(mode)

    def ask_to_save(self, signum: signal.Signals) -> None:
        """Send ``signum``, on which the script saves and exits, to the workers that catch it.

        A worker that ends while the request to park stands counts as parked. After the request was
        withdrawn, only a worker that ends with 0 counts as parked.
        """
        self._asked = True
        for pid in self.catching(signum):
            os.kill(pid, signum)

    def catching(self, signum: signal.Signals) -> tuple[int, ...]:
        """Return pids of running workers that have a handler for the signal."""
        ended = {exit.pid for exit in self._exits}
        running = (pid for pid in self.pids if pid not in ended)
        return tuple(pid for pid in running if process.catches(pid, signum))

    def extend_lease(self, until_ns: int) -> None:
        """Let workers live until CLOCK_MONOTONIC ``until_ns``; 0 means without end.

        After the workers have stopped, this changes nothing.
        """
        for worker in () if self._closed else self._started:
            worker.control.lease(until_ns)
        self.resume_held()

    @property
    def held(self) -> tuple[int, ...]:
        """Return the pids of workers that have stopped themselves because their lease expired."""
        return () if self._closed else tuple(w.process.pid for w in self._alive() if w.control.held)

    def resume_held(self) -> None:
        """Resume held workers whose lease was renewed.

        A worker reports that it is held a moment before it stops, and may then miss the signal. So
        call this repeatedly.
        """
        for worker in () if self._closed else self._alive():
            if worker.control.held and not worker.control.over:
                os.kill(worker.process.pid, signal.SIGCONT)

    def end_held(self) -> None:
        """Kill held workers, which are not in the next world and must not save."""
        for pid in self.held:
            os.kill(pid, signal.SIGKILL)

    def progress(self) -> tuple[Progress, ...]:
        """Return the progress of each worker, by local rank; after ``stop``, the last progress."""
        return tuple(worker.progress() for worker in self._started)

    async def stop(
        self, grace_seconds: float, *, signum: signal.Signals = signal.SIGTERM
    ) -> tuple[WorkerExit, ...]:
        """End all workers and all their processes; return the complete ``exits``.

        A worker that handles ``signum`` gets the signal and has ``grace_seconds``; all other
        workers are ended immediately. On return their output is complete and their control files
        are removed. A second call changes nothing.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_seconds, signum))
        await asyncio.shield(self._stopping)
        return self.exits

    async def _begin(self) -> "Workers":
        try:
            await self._start_all()
        except BaseException:
            await self.stop(0)
            raise
        return self

    async def _start_all(self) -> None:
        if self._shard_socket is not None:
            await self._shard_socket.open()
        member = self._world.member(self._group_rank)
        if not os.path.isdir(self._config.directory):
            raise BadInput(
                f"directory {self._config.directory} does not exist; create it, or name another",
                field="directory",
            )
        lease_ns = int(self._world.lease_seconds * 1e9)
        try:
            for local_rank in range(member.processes):
                worker = await self._making.make(local_rank)
                worker.control.lease(time.monotonic_ns() + lease_ns if lease_ns else 0)
                self._started.append(worker)
                self._loop.add_reader(worker.pidfd, self._ended_one, worker)
        finally:
            self._starting = False
            if not self.running:
                self._ended.set()

    def _elastic(self) -> dict[str, object] | None:
        if self.sessions is None:
            return None
        return {"socket": str(self._directory / "line"), "joining": self.joining}

    def _hear(self) -> None:
        """Pass on events of probes."""
        while True:
            try:
                datagram = self._socket.recv(65536)
            except BlockingIOError:
                return
            try:
                event = msgspec.json.decode(datagram, type=ProbeEvent)
            except msgspec.DecodeError:  # a guest in a foreign process: never worth a job
                continue
            if event.epoch == self._left and event.event in ("saved", "loaded"):
                event = replace(event, epoch=self._world.epoch)
            ours = self._fork_server is not None and self._fork_server.heard(event)
            if event.epoch == self._world.epoch and not ours:
                self._on_event(event)

    def _ended_one(self, worker: process.WorkerProcess) -> None:
        """Note the exit of a worker, whose pidfd became readable."""
        code = worker.process.poll()
        if code is None:
            return
        self._loop.remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        self._hear()  # what it said before it ended comes first
        asked = self._asked and (code == 0 or self._mode is not ParkRequest.RUN)
        ended = worker.ended(code, stopped=asked or self._stopping is not None)
        self._exits.append(ended)
        if not (self._starting or self.running):
            self._ended.set()
        self._on_exit(ended)

    async def _stop(self, grace_seconds: float, signum: signal.Signals) -> None:
        made = [worker.process for worker in self._started]
        channels = {each.channel for each in made if isinstance(each, Child)}
        forked = channels if all(isinstance(each, Child) for each in made) else None
        strays = stopping.Strays(self._started, self._making.marks, forked)
        others, asked_at = stopping.ask(self._alive(), signum), self._loop.time()
        if self.running:
            await stopping.wait_at_most(self._ended, grace_seconds)
        await stopping.wait_for(others, asked_at + grace_seconds - self._loop.time())
        await strays.end(self._alive, self._ended, self._well)
        streams = [stream for worker in self._started for stream in worker.streams]
        if any(stream.flows for stream in streams):
            await asyncio.to_thread(output.finish, streams, _OUTPUT_SECONDS)
        self._close()

    def _alive(self) -> list[process.WorkerProcess]:
        ended = {exit.pid for exit in self._exits}
        return [worker for worker in self._started if worker.process.pid not in ended]

    def _well(self) -> list[process.WorkerProcess]:
        well = {exit.pid for exit in self._exits if exit.code == 0}
        return [worker for worker in self._started if worker.process.pid in well]

    def _close(self) -> None:
        self._closed = True
        for worker in self._started:
            for stream in worker.streams:
                stream.close()
            worker.close()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self._shard_socket is not None:
            self._shard_socket.close()
        if self.sessions is not None:
            self.sessions.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._held and self._started:
            shutil.rmtree(self._making.files, ignore_errors=True)
        self._guard.done(self._directory)
        if self._fork_server is None:
            self._guard.close()
        else:
            self._fork_server.tidy()
        self._ended.set()
