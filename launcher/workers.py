"""The worker processes of this agent in one world.

``Workers`` starts them, watches them (nothing polls: exits come by pidfd, the probe's events by a
datagram socket) and stops them with everything they started. It decides nothing: whether an exit
ends the world is for ``launcher.membership``.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from launcher.config import LaunchConfig, WorldDocument


class Park(IntEnum):
    """What workers are asked at step boundaries."""

    RUN = 0
    #: Park after the next completed save.
    AT_SAVE = 1
    #: Park before the next step.
    AT_STEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEvent:
    """What a probe announces; fields that an event does not have are None."""

    v: int = 1
    rank: int
    local_rank: int
    epoch: int
    #: ``started``, ``stepping``, ``loaded``, ``saved`` or ``parked``.
    event: str
    pid: int | None = None
    path: str | None = None
    inode: int | None = None
    step: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    replaced: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one worker is, from its control file; instants are CLOCK_MONOTONIC nanoseconds."""

    rank: int
    local_rank: int
    pid: int
    steps: int
    #: 0 = none yet.
    last_step_ns: int
    #: Steps at the newest completed save; 0 = none.
    saved_step: int
    parked: bool
    #: 0 = none yet.
    first_step_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """How one worker ended."""

    rank: int
    local_rank: int
    pid: int
    #: As ``subprocess`` says it: negative = by that signal.
    code: int
    #: CLOCK_MONOTONIC nanoseconds.
    at_ns: int
    #: True where ``stop`` ended it, so that its code says nothing about the script.
    stopped: bool
    #: From the worker's error file (``@record``), else made from the code; empty for 0.
    message: str

    @property
    def exit_code(self) -> int:
        """As a shell says it: 128 + n for signal n."""
        return self.code if self.code >= 0 else 128 - self.code


class Workers:
    """The running workers of one agent in one world. Make one with ``start``, end it with ``stop``.

    All methods belong to the loop's thread, which must live as long as the agent (workers die
    with the *thread* that started them).
    """

    @classmethod
    async def start(
        cls,
        config: LaunchConfig,
        world: WorldDocument,
        group_rank: int,
        *,
        on_event: Callable[[ProbeEvent], None],
        on_exit: Callable[[WorkerExit], None],
    ) -> "Workers":
        """Start ``world.member(group_rank).processes`` workers; returns once all were started.

        ``on_event`` and ``on_exit`` are called on the loop, one at a time. A lease of
        ``world.lease_seconds`` begins now; ``extend_lease`` renews it.

        Raises:
            BadInput: the program cannot be executed; nothing is left behind.
        """
        raise NotImplementedError

    @property
    def world(self) -> WorldDocument:
        """The world they are in."""
        raise NotImplementedError

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by local rank."""
        raise NotImplementedError

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """Who has ended so far, in the order it was seen."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether any worker still runs."""
        raise NotImplementedError

    async def wait(self) -> tuple[WorkerExit, ...]:
        """Wait until all have ended; returns ``exits``."""
        raise NotImplementedError

    def park(self, mode: Park) -> None:
        """Ask all workers to park, or to run on."""
        raise NotImplementedError

    def extend_lease(self, until_ns: int) -> None:
        """Let workers live until CLOCK_MONOTONIC ``until_ns``; 0 = without end."""
        raise NotImplementedError

    def progress(self) -> tuple[Progress, ...]:
        """How far each worker is, by local rank; usable until ``stop`` has returned."""
        raise NotImplementedError

    async def stop(
        self, grace_seconds: float, *, signum: signal.Signals = signal.SIGTERM
    ) -> tuple[WorkerExit, ...]:
        """End all workers and everything they started; returns ``exits``, complete.

        A worker that catches ``signum`` gets it and ``grace_seconds``; the others are ended at
        once. Their output is complete, control files are gone. Calling it again changes nothing.
        """
        raise NotImplementedError


def free_port(host: str) -> int:
    """A TCP port free at this moment on ``host``, for MASTER_PORT."""
    raise NotImplementedError


def failure_report(name: str, exits: tuple[WorkerExit, ...]) -> str:
    """What failed, root cause first, as torchrun lays it out; for the console."""
    raise NotImplementedError
