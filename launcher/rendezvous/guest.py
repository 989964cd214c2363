"""An agent's membership in the worlds of its job while torchrun runs the workers.

torchrun's agent is one blocking thread; Brain's agent is an event loop in another thread. The loop
takes part in worlds as every agent does, with two differences. To *start* workers, the loop passes
the world to torchrun. To *stop* workers, the loop waits until torchrun has ended its workers and
requests the next world.
"""

import asyncio
import atexit
import contextlib
import functools
import math
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from brain.types.world import ReplicaEnd, ReplicaExit
from launcher.agent.by_hand import by_hand
from launcher.agent.membership import AgentMembership
from launcher.agent.worker_group.group import WorkerGroup
from launcher.rendezvous.settings import RendezvousSettings
from launcher.values.config import WorldDocument
from launcher.values.observation import WorldRules
from launcher.values.workers import LEASE_EXIT, ParkRequest, Progress, WorkerExit
from launcher.workers.stack_dumps import DumpTarget

#: torchrun restarts its workers for each joining agent, and has no knowledge of steps and saves.
_RULES = WorldRules(free_seconds=math.inf, leave_seconds=0.0, prepare_seconds=0.0, spares=True)
#: Seconds between two checks if a leaving agent still has workers.
_CHILD_SECONDS = 0.02
#: Most seconds for which an ending program waits until the agent has left the job.
_DEPART_SECONDS = 2.0
#: Signals that end torchrun, if torchrun names none.
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


class RendezvousTurn:
    """One world that torchrun runs; ``WorkerGroup`` uses it as this world's workers.

    The agent's event loop writes ``halted`` and ``lease_until_ns``, and torchrun's thread reads
    them.
    """

    def __init__(
        self, world: WorldDocument, group_rank: int, on_exit: Callable[[WorkerExit], None]
    ) -> None:
        self.world, self.group_rank = world, group_rank
        self.exits: tuple[WorkerExit, ...] = ()
        #: True if torchrun must end its workers and request the next world.
        self.halted = False
        self.taken = False
        self.lease_until_ns = time.monotonic_ns() + int(world.lease_seconds * 1e9)
        self._on_exit = on_exit
        self._back = asyncio.Event()

    @property
    def over(self) -> bool:
        """True if the world's workers must end: the world was halted, or its lease ran out."""
        lease = self.world.lease_seconds > 0 and time.monotonic_ns() > self.lease_until_ns
        return self.halted or lease

    def came_back(self, code: int, message: str) -> None:
        """Record that torchrun runs no worker of this world any more. ``code`` is the workers' exit
        code unless the world was halted.
        """
        if self._back.is_set():
            return
        if not self.halted:
            lapsed = code != 0 and self.over
            self._ended(LEASE_EXIT if lapsed else code, message)
        self._back.set()

    # --- what WorkerGroup asks of workers ----------------------------------------------------

    #: torchrun ends the workers at every change of the world.
    elastic = False
    joining = False
    sessions: None = None
    targets: tuple[DumpTarget, ...] = ()
    #: No worker is ever held: torchrun ends the workers when the lease runs out.
    held: tuple[int, ...] = ()

    async def stop(
        self, grace_seconds: float, *, signum: signal.Signals = signal.SIGTERM
    ) -> tuple[WorkerExit, ...]:
        """Let torchrun end the workers, wait until they have ended, and return their exits."""
        self.halted = True
        if self.taken:
            await self._back.wait()
        return self.exits

    @property
    def pids(self) -> tuple[int, ...]:
        """Return no process ids, because torchrun watches its workers."""
        return ()

    def catching(self, signum: signal.Signals) -> tuple[int, ...]:
        """Return nothing, because the workers' signal handlers are not known."""
        return ()

    def progress(self) -> tuple[Progress, ...]:
        """Return nothing, because the workers' steps are not known."""
        return ()

    def park(self, mode: ParkRequest) -> None:
        """Do nothing, because torchrun's workers cannot park."""

    def ask_to_save(self, signum: signal.Signals) -> None:
        """Do nothing, because only torchrun knows the workers' processes."""

    def extend_lease(self, until_ns: int) -> None:
        """Let the workers run until ``until_ns``."""
        self.lease_until_ns = until_ns

    def resume_held(self) -> None:
        """Do nothing, because no worker is held."""

    def end_held(self) -> None:
        """Do nothing, because no worker is held."""

    def _ended(self, code: int, message: str) -> None:
        exit = WorkerExit(
            rank=self.group_rank,
            local_rank=0,
            pid=0,
            code=code,
            at_ns=time.monotonic_ns(),
            stopped=False,
            lapsed=code == LEASE_EXIT,
            failed_at=datetime.now().astimezone(),
            message=message,
        )
        self.exits = (exit,)
        self._on_exit(exit)


class GuestWorkerGroup(WorkerGroup):
    """Workers that torchrun runs, one ``RendezvousTurn`` after another; no worker starts in
    advance.
    """

    offer: Callable[[RendezvousTurn], None]

    async def open(self) -> None:
        """Do nothing, because no fork server imports libraries in advance."""
        self.ready = True

    async def warm(self) -> None:
        """Wait until cancelled, because no fork server imports libraries in advance."""
        await asyncio.Event().wait()

    async def _started(self, world: WorldDocument, *, joining: bool = False) -> Any:
        turn = RendezvousTurn(
            world, self._own_rank(world), lambda exit: self._exited(world.epoch, exit)
        )
        self.offer(turn)
        return turn


class Guest:
    """Runs the agent's loop in a separate thread; torchrun's thread calls the public methods."""

    def __init__(self, asked: RendezvousSettings, say: Callable[[str], None]) -> None:
        self._asked, self._say = asked, say
        self._news = threading.Condition()
        self._offered: RendezvousTurn | None = None
        self._taken: RendezvousTurn | None = None
        self._ended: ReplicaEnd | None = None
        self._crash: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._membership: AgentMembership | None = None
        self._signals: socket.socket | None = None
        self._leaving: asyncio.Task[None] | None = None

    def heed(self, signals: Sequence[str] = SIGNALS) -> None:
        """Receive signals that torchrun handles; this works only in a program's main thread.

        Python writes signal numbers to a socket before any handler runs, even if torchrun replaces
        its handlers.
        """
        if self._signals is not None or threading.current_thread() is not threading.main_thread():
            return
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        if before != -1:  # somebody else listens there: a leave is then told by the end of us
            signal.set_wakeup_fd(before)
            ours.close()
            theirs.close()
            return
        self._signals, self._wake = ours, theirs
        self._heeded = frozenset(signal.Signals[name].value for name in signals)

    def next(self, seconds: float) -> RendezvousTurn:
        """Return the next world once it has formed; the previous world is then over.

        Raises:
            TimeoutError: no world formed in ``seconds``, and no world of the job runs without this
                agent.
            Closed: the job is over.
        """
        self._begin()
        self._give_back(1, "torchrun ended its workers")
        until = time.monotonic() + seconds
        with self._news:
            while True:
                self._check()
                turn, self._offered = self._offered, None
                if turn is not None and not turn.halted:
                    turn.taken, self._taken = True, turn
                    return turn
                left = until - time.monotonic()
                if left <= 0 and not self._may_wait:
                    raise TimeoutError
                self._news.wait(max(left, 1.0))

    def failed(self, why: str) -> None:
        """Give up a world that torchrun cannot use; ``why`` is the reason."""
        self._give_back(1, why)

    @property
    def waiting(self) -> bool:
        """True if torchrun must end its workers and request the next world; the call is cheap."""
        if self._ended is not None and self._ended.exit is ReplicaExit.SUCCEEDED:
            return False
        turn = self._taken
        return turn is not None and (turn.over or self._ended is not None)

    @property
    def met(self) -> bool:
        """True if a coordinator has accepted this agent."""
        return self._membership is not None and self._membership.welcomed_epoch is not None

    @property
    def closed(self) -> bool:
        """True if the job is over."""
        return self._ended is not None or self._crash is not None

    def close(self, reason: str) -> None:
        """End the job for all agents."""
        if self._membership is not None:
            self._call(self._membership.give_up, reason)

    def finish(self, seconds: float) -> bool:
        """Report that this agent's workers have ended, with success unless a failure was reported.

        Wait at most ``seconds`` for all other agents to report the same, which ends the job. Return
        False if some agents have not reported by then; they continue without this agent.
        """
        if self._thread is None:
            return True
        self._give_back(0, "")
        self._thread.join(seconds)
        over = not self._thread.is_alive()
        if not over:
            self._go()
            self._thread.join(seconds)
        return over

    # --- between the threads ---------------------------------------------------------------

    @property
    def _may_wait(self) -> bool:
        """True if this agent is a spare, which waits as long as the job runs without the agent."""
        membership = self._membership
        return (
            membership is not None and membership.last is None and bool(membership.welcomed_epoch)
        )

    def _begin(self) -> None:
        if self._thread is None:
            # A program that ends keeps its sockets for seconds while torch is torn down, so leave
            # before that.
            atexit.register(self._depart)
            self._thread = threading.Thread(target=self._work, name="brain-rdzv", daemon=True)
            self._thread.start()

    def _depart(self) -> None:
        self._give_back(LEASE_EXIT, "its agent ended")
        self._go()
        if self._thread is not None:
            self._thread.join(_DEPART_SECONDS)

    def _go(self) -> None:
        """Leave the job immediately, without waiting for a world without this agent."""
        if self._membership is not None:
            for _ in range(2):
                self._call(self._membership.leave, signal.SIGTERM)

    def _check(self) -> None:
        if self._crash is not None:
            raise RuntimeError(f"the rendezvous thread ended: {self._crash}") from self._crash
        if self._ended is not None:
            raise Closed(self._ended)

    def _give_back(self, code: int, message: str) -> None:
        turn, self._taken = self._taken, None
        if turn is not None:
            self._call(turn.came_back, code, message)

    def _call(self, what: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: so has what it was for
                self._loop.call_soon_threadsafe(what, *arguments)

    def _offer(self, turn: RendezvousTurn) -> None:
        with self._news:
            self._offered = turn
            self._news.notify_all()

    # --- the thread ------------------------------------------------------------------------

    def _work(self) -> None:
        scratch = Path(tempfile.mkdtemp(prefix="brain-rdzv-"))
        sweep = functools.partial(shutil.rmtree, scratch, ignore_errors=True)
        atexit.register(sweep)
        try:
            ended = asyncio.run(self._take_part(scratch))
            with self._news:
                self._ended = ended
        except BaseException as crash:  # noqa: BLE001  torchrun's thread raises it
            with self._news:
                self._crash = crash
        finally:
            sweep()
            atexit.unregister(sweep)
            with self._news:
                self._news.notify_all()

    async def _take_part(self, scratch: Path) -> ReplicaEnd:
        self._loop = asyncio.get_running_loop()
        self._membership = membership = by_hand(
            self._asked.config,
            scratch,
            rank=self._asked.rank,
            rules=_RULES,
            say=self._say,
            worker_group=self._worker_group,
        )
        if self._signals is not None:
            self._loop.add_reader(self._signals.fileno(), self._signalled, membership)
        ended = await membership.run()
        # What is cancelled with the loop has nothing more to say to torchrun's console.
        self._loop.set_exception_handler(lambda loop, context: None)
        return ended

    def _worker_group(self, *arguments: Any, **named: Any) -> WorkerGroup:
        worker_group = GuestWorkerGroup(*arguments, **named)
        worker_group.offer = self._offer
        return worker_group

    def _signalled(self, membership: AgentMembership) -> None:
        assert self._signals is not None
        heeded = [number for number in self._signals.recv(64) if number in self._heeded]
        if heeded and self._leaving is None:
            membership.leave(signal.Signals(heeded[0]))
            self._leaving = asyncio.ensure_future(self._left())

    async def _left(self) -> None:
        """Wait until the workers have ended, then report it. torchrun itself may end later; the
        other agents wait only for the workers.
        """
        while _has_children():
            await asyncio.sleep(_CHILD_SECONDS)
        if self._taken is not None:
            self._taken.came_back(LEASE_EXIT, "its agent left")


def _has_children() -> bool:
    """True if this process has child processes; none is reaped, because torchrun does that."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class Closed(Exception):
    """Raised if the job is over for this agent; ``ended`` says how it ended."""

    def __init__(self, ended: ReplicaEnd) -> None:
        super().__init__(ended.detail or str(ended.exit))
        self.ended = ended
