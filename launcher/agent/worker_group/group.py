"""The workers of one agent: the running ones, and the prepared ones that wait for the next world.

The coordinator's orders are carried out one after the other. Reports are sent through ``tell``,
which drops messages while there is no coordinator.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from brain.errors import BadInput
from brain.types.batch import BatchWish
from launcher import messages
from launcher.agent.worker_group import capacity
from launcher.agent.worker_group.in_process import FAILING_SECONDS, InProcessChanges, rank_in
from launcher.agent.worker_group.prepared import PreparedWorkers
from launcher.agent.worker_group.reports import WorkerReports, grace_told
from launcher.agent.worker_group.standstill import Standstill
from launcher.data.shard_socket import ShardSocket
from launcher.ram_checkpoint.agent import RamCheckpoint
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.ram_checkpoint.parts import StepPart
from launcher.values.workers import ParkRequest, ProbeEvent, Progress, WorkerExit
from launcher.workers import events, stack_dumps
from launcher.workers.batch_file import BatchFile
from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.processes.sessions import SessionMessage
from launcher.workers.stopping import KILL_SECONDS
from launcher.workers.workers import Workers

#: Seconds that workers' imports may take before this agent is used without them.
_WARM_SECONDS = 120.0

Order = messages.Run | messages.Halt | messages.Prepare | messages.Discard


class WorkerGroup:
    """The workers of one agent: ``obey`` carries out orders until cancelled, ``end`` stops all
    workers.
    """

    def __init__(
        self,
        config: LaunchConfig,
        host: str,
        *,
        memory: RamCheckpoint,
        tell: Callable[[messages.Message], None],
        phase: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self.config = config
        #: The last world that workers were started for; a higher epoch may have been prepared.
        self.last: WorldDocument | None = None
        self.exits: tuple[WorkerExit, ...] = ()
        #: Signal that asks workers to end: the one that this agent got, if it got one.
        self.signum = signal.SIGTERM
        #: Workers can be started quickly, or never will be.
        self.ready = False
        self._memory = memory
        self._tell, self._phase, self._say = tell, phase, say
        self._reports = WorkerReports(tell, memory=memory, host=host)
        self._fork_server: ForkServer | None = None
        self._workers: Workers | None = None
        self._prepared = PreparedWorkers(tell, self._reports)
        #: The workers that run are being ended: their control files go any moment.
        self._stopping = False
        self._standstill = Standstill()
        #: Epoch of the newest world that was heard of, formed or not.
        self.heard_epoch = 0
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        #: Socket on which workers ask for shards of data.
        self.shard_socket = ShardSocket(tell)
        #: Changes of the world that end no process.
        self.in_process_changes = InProcessChanges(host, lambda: self.config.replica, tell)
        #: The batch that the script is to take.
        self._batch_file = BatchFile(config.batch_file, say)

    async def open(self) -> None:
        """Start the fork server, which imports libraries in advance."""
        self._fork_server = await ForkServer.open(self.config, self._say)

    async def warm(self) -> None:
        """Report to the coordinator when the imports are done; then wait until cancelled."""
        assert self._fork_server is not None
        try:
            async with asyncio.timeout(_WARM_SECONDS):
                await self._fork_server.ready()
        except TimeoutError:
            self._say(
                f"importing modules in advance took longer than {_WARM_SECONDS:.0f} s; new "
                "worlds no longer wait for these imports"
            )
        self.ready = True
        self._tell(messages.Ready())
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Close the fork server."""
        if self._fork_server is not None:
            await self._fork_server.close()

    @property
    def epoch(self) -> int:
        """Return the epoch of the running workers; 0 if none run."""
        return 0 if self._workers is None else self._workers.world.epoch

    @property
    def elastic(self) -> bool:
        """True if the running workers can change worlds in process."""
        return self._workers is not None and self._workers.elastic

    @property
    def running_exits(self) -> tuple[WorkerExit, ...]:
        """Return the exits so far of the running world's workers."""
        return () if self._workers is None else self._workers.exits

    @property
    def progress(self) -> tuple[Progress, ...]:
        return () if self._workers is None else self._workers.progress()

    def order(self, order: Order) -> None:
        """Queue an order; if it ends or replaces workers, first kill the workers that paused
        because their lease expired.
        """
        if self._workers is not None and isinstance(order, messages.Run | messages.Halt):
            self._workers.end_held()
        self._orders.put_nowait(order)

    def park(self, epoch: int, mode: ParkRequest) -> None:
        """Ask the workers to park (to pause after a save or before a step) or to continue. If they
        are to park after a save and the job has a checkpoint signal, also send this signal.
        """
        workers = self._workers
        if workers is None or self._stopping or epoch != self.epoch:
            return
        workers.park(mode)
        if mode is ParkRequest.AT_SAVE and (name := self.config.checkpoint.signal):
            workers.ask_to_save(signal.Signals[name])

    def handles(self, signum: signal.Signals) -> bool:
        """True if a worker handles the signal, or has ended (the signal may be the cause)."""
        workers = self._workers
        return workers is not None and bool(workers.exits or workers.catching(signum))

    def take_batch(self, desired: BatchWish | None) -> None:
        """Send the desired batch size to the script if it requests one; nothing restarts."""
        self._batch_file.desired = desired
        workers = self._workers or self._prepared.workers
        if workers is not None:
            self._batch_file.tell(workers.world.processes)

    def extend_lease(self, epoch: int, until_ns: int) -> None:
        """Extend the workers' lease, even while they stop, because a signal handler may save during
        its whole grace period.
        """
        if self._workers is not None and epoch == self.epoch:
            self._workers.extend_lease(until_ns)

    def hold_on(self, asking: bool) -> None:
        """While ``asking`` is True, keep the workers that paused because their lease expired: the
        coordinator is asking whether other workers have replaced them.
        """
        self._standstill.asking = asking

    def beat(self) -> None:
        """Extend the lease of prepared workers, and end running workers that have been stopped for
        too long.
        """
        self._prepared.extend_lease()
        if self._workers is not None and not self._stopping:
            self._standstill.end_stopped(self._workers)

    async def look(self, asked: messages.Look) -> messages.Looked:
        """Return the stacks of silent workers, which are collected while training continues."""
        workers = self._workers
        if workers is None or self._stopping or asked.epoch != self.epoch:
            return messages.Looked(epoch=asked.epoch, looks=())
        looks = await asyncio.to_thread(stack_dumps.look, workers.targets, asked.seconds)
        return messages.Looked(epoch=asked.epoch, looks=looks)

    async def obey(self) -> None:
        """Carry out one order after the other, until cancelled."""
        while True:
            match await self._orders.get():
                case messages.Run(world=world, in_process=True) as run:
                    await self._go_over(world, run.memory)
                case messages.Run(world=world, memory=memory):
                    await self._run(world, memory)
                case messages.Prepare(world=world, in_process=True, staying=staying):
                    self.in_process_changes.stay = frozenset(staying)
                    await self._build(world)
                case messages.Prepare(world=world):
                    await self._prepare(world)
                case messages.Discard(epoch=epoch):
                    await self._prepared.discard(epoch)
                    self.in_process_changes.unbuild(self._workers, epoch)
                case messages.Halt(epoch=epoch, grace_seconds=grace, lost=lost):
                    if epoch == self.epoch:
                        await self._stop(grace, lost=lost)
                    else:
                        self._reports.stopped(epoch, self.progress)

    def let_go(self) -> None:
        """Extend the lease for the last time, so that workers outside the world have time to
        end.
        """
        if self._workers is not None and self._workers.world.lease_seconds:
            seconds = self.config.grace_seconds + FAILING_SECONDS + KILL_SECONDS
            self._workers.extend_lease(time.monotonic_ns() + int(seconds * 1e9))

    async def kill(self) -> None:
        """End all workers immediately, before they can save, because other workers may run in their
        place.
        """
        await self._prepared.discard()
        if self._workers is not None:
            self._workers.end_held()
            await self._stop(0)

    async def end(self) -> None:
        await self._prepared.discard()
        if self._workers is not None:
            await self._stop(self.config.grace_seconds)

    # --- the world that runs ---------------------------------------------------------------

    async def _run(self, world: WorldDocument, memory: StepPart | None) -> None:
        if self.last is not None and world.epoch <= self.last.epoch:
            return
        self.in_process_changes.unbuild(self._workers, 0)
        if self._workers is not None:
            await self._stop(0)
        self.last = world
        self.in_process_changes.over(world.epoch)
        self.heard_epoch = max(self.heard_epoch, world.epoch)
        self._memory.began(world, memory)
        self._batch_file.tell(world.processes)
        try:
            self._workers = await self._prepared.release(world) or await self._started(world)
        except BadInput as unusable:
            self._tell(messages.Unusable(epoch=world.epoch, reason=str(unusable)))
            return
        self._tell(messages.Started(epoch=world.epoch))
        self._phase("running")
        if self.config.events:
            events.tell_started(self.config, world, self._own_rank(world), self._workers.pids)

    async def _started(self, world: WorldDocument, *, joining: bool = False) -> Workers:
        return await Workers.start(
            self.config,
            world,
            self._own_rank(world),
            fork_server=self._fork_server,
            on_event=self._announced,
            on_exit=lambda exit: self._exited(self._epoch_now(world), exit),
            shard_socket=self.shard_socket,
            on_session=self._session,
            joining=joining,
        )

    async def _stop(self, grace_seconds: float, *, lost: bool = False) -> None:
        workers = self._workers
        assert workers is not None
        self._stopping = True
        if grace_seconds and workers.catching(self.signum):
            by_hand = self.config.replica_directory is None
            self._say(grace_told(self.signum, grace_seconds, by_hand=by_hand))
        left_seconds = await self.in_process_changes.let_end(workers, grace_seconds)
        self.exits = await workers.stop(left_seconds, signum=self.signum)
        self._stopping = False
        if lost:
            await self._memory.breakpoint()
        self._reports.stopped(workers.world.epoch, self.progress)
        self._workers = None
        self._phase("waiting")

    # --- the world that may come -----------------------------------------------------------

    async def _prepare(self, world: WorldDocument) -> None:
        await self._prepared.discard()
        self.heard_epoch = max(self.heard_epoch, world.epoch)
        pids = () if self._workers is None else self._workers.pids
        if short := capacity.shortage(pids):
            return self._reports.refused(world.epoch, short)
        preparing = Workers.prepare(
            self.config,
            world,
            self._own_rank(world),
            fork_server=self._fork_server,
            on_event=self._announced,
            on_exit=lambda exit: self._exited(self._epoch_now(world), exit),
            shard_socket=self.shard_socket,
            on_session=self._session,
        )
        await self._prepared.start(world.epoch, preparing)
        self._prepared.report_gated()

    # --- worlds that end no process --------------------------------------------------------

    async def _build(self, world: WorldDocument) -> None:
        """Build the next world beside the training; without workers here, start them into it."""
        await self._prepared.discard()
        self.heard_epoch = max(self.heard_epoch, world.epoch)
        self.in_process_changes.coming = world
        if self._workers is not None:
            self.in_process_changes.begin(self._workers, world, now=False)
            return
        self._batch_file.tell(world.processes)  # the script may read it before it joins
        await self._prepared.start(world.epoch, self._started(world, joining=True))

    async def _go_over(self, world: WorldDocument, memory: StepPart | None) -> None:
        """Change to the next world: to the one built beside training, else to a new one."""
        coming, self.in_process_changes.coming = self.in_process_changes.coming, None
        built = coming == world
        if built and (newcomers := self._prepared.take()) is not None:
            self._workers = newcomers
            self._memory.began(world, memory)
        await self._prepared.discard()
        workers = self._workers
        if workers is None or workers.sessions is None:
            self._tell(
                messages.Torn(epoch=world.epoch, reason="all workers have ended", unbuilt=True)
            )
            return
        group_rank = rank_in(world, self.config.replica)
        if built:
            workers.sessions.tell("commit", epoch=world.epoch)
        else:
            self.in_process_changes.begin(workers, world, now=True)
        self.in_process_changes.parting = group_rank is None
        if group_rank is None:
            return
        self.last = world
        self.heard_epoch = max(self.heard_epoch, world.epoch)
        workers.joining = False
        workers.go_over(world, group_rank)
        self._memory.goes_on(world)
        self._batch_file.tell(world.processes)
        self.in_process_changes.over(world.epoch)
        self._phase("running")
        for exit in workers.exits:  # it was said of the world before
            self._exited(world.epoch, exit)

    def asked(self, asked: messages.Appoint | messages.Agree | messages.Post) -> None:
        """Forward to the workers the coordinator's message about a world that is being built."""
        self.in_process_changes.asked(asked, self._workers, self._prepared.workers)

    def _session(self, workers: Workers, what: str, message: SessionMessage) -> None:
        if what == "moved" and message["epoch"] == self.epoch:
            self.tell_progress()
            self._tell(messages.Started(epoch=self.epoch))
        else:
            self.in_process_changes.heard(workers, what, message)
        if self.elastic and self.last is not None and self.last.epoch == self.epoch:
            self.last = replace(self.last, elastic=True)  # should this agent come to coordinate

    def _epoch_now(self, world: WorldDocument) -> int:
        """Return the epoch of workers started for ``world``, which may have changed since."""
        waits = self._prepared.workers is not None
        return world.epoch if waits else max(world.epoch, self.epoch)

    # --- what workers say ------------------------------------------------------------------

    def _announced(self, event: ProbeEvent) -> None:
        if event.event == "memory":
            self._memory.asked(event.path)
            return
        if not self._prepared.heard(event):
            self._reports.announced(event, self.epoch, self.progress)

    def _exited(self, epoch: int, exit: WorkerExit) -> None:
        if self.last is not None and epoch == self.last.epoch:
            if self.config.events:
                events.tell_ended(self.config, self.last, self._own_rank(self.last), exit)
            self._reports.exited(self.last, exit, self.progress)
        elif not exit.stopped:
            self._reports.refused(
                epoch, f"a worker exited with code {exit.exit_code} before its world began"
            )

    def tell_again(self) -> None:
        """Repeat to a new coordinator the messages that the previous one may not have received."""
        self._reports.again()
        self.in_process_changes.tell_again()
        self.shard_socket.tell_again()

    def tell_progress(self, heard: float = 0.0) -> None:
        """Send a heartbeat with the workers' progress, and with ``heard``, the time of the
        coordinator's last answer.
        """
        self._reports.beat(self.epoch, self.progress, heard)

    def _own_rank(self, world: WorldDocument) -> int:
        """Return this agent's GROUP_RANK in a world that it is a member of."""
        replica = self.config.replica
        return next(m.group_rank for m in world.members if m.replica == replica)
