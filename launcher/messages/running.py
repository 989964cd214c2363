"""Messages with which a coordinator starts, watches and stops the workers of a world."""

from brain.types.batch import BatchWish
from brain.types.world import MemoryCheckpoint
from launcher.messages.message import Message
from launcher.values.config import WorldDocument
from launcher.values.ram_checkpoint.parts import StepPart
from launcher.values.workers import ProbeEvent, Progress, WorkerExit

#: Seconds between two heartbeats of an agent.
HEARTBEAT_SECONDS = 0.5


class Prepare(Message, tag="Prepare", frozen=True, kw_only=True):
    """Request to start the workers of the next world, and to hold them before they run the script.

    ``Run`` with exactly the same document releases these workers; ``Run`` with another document
    ends them. If the change is in process, running workers build the new world's process group
    while they train, newcomers are started, and workers outside the new world prepare to leave.
    """

    world: WorldDocument
    in_process: bool = False
    #: Replicas that have the training state, if the change is in process; the others receive it.
    staying: tuple[int, ...] = ()


class Prepared(Message, tag="Prepared", frozen=True, kw_only=True):
    """The answer to ``Prepare``: ``ok`` if the agent's workers of the next world are ready."""

    epoch: int
    ok: bool
    #: Reason why the workers are not ready; the world then changes without preparation.
    reason: str = ""


class Discard(Message, tag="Discard", frozen=True, kw_only=True):
    """Request to end the workers of the prepared world ``epoch``; 0 means any prepared world."""

    epoch: int


class Run(Message, tag="Run", frozen=True, kw_only=True):
    """Request to start the workers of a world or, if in process, to let running workers change to
    it.
    """

    world: WorldDocument
    #: True if running workers change to the world: after the agreed step if the world was prepared,
    #: else immediately.
    in_process: bool = False
    #: A part of the newest step in memory that is complete over all agents; None if there is none.
    memory: StepPart | None = None


class Started(Message, tag="Started", frozen=True, kw_only=True):
    """All workers of ``epoch`` on the agent have started."""

    epoch: int


class Unusable(Message, tag="Unusable", frozen=True, kw_only=True):
    """The agent cannot start workers at all, in this or any other world."""

    epoch: int
    reason: str


class Heartbeat(Message, tag="Heartbeat", frozen=True, kw_only=True):
    """A message that the agent sends twice a second.

    ``progress`` is the progress of the agent's workers of ``epoch``.
    """

    epoch: int
    #: CLOCK_MONOTONIC of the sender, nanoseconds.
    now_ns: int
    #: ``at`` of the newest ``Lease`` that the agent has received from this coordinator.
    heard: float = 0.0
    progress: tuple[Progress, ...] = ()
    #: How far the agent's RAM checkpoint is ahead of storage; None if the agent keeps none.
    memory: MemoryCheckpoint | None = None


class Lease(Message, tag="Lease", frozen=True, kw_only=True):
    """The answer to a heartbeat: workers may run for ``seconds`` after the heartbeat was sent."""

    epoch: int
    #: ``now_ns`` of the heartbeat.
    sent_ns: int
    #: 0 if the agent has no workers of the present world.
    seconds: float
    #: Time of the answer by the coordinator's clock; the next heartbeat returns it as ``heard``.
    at: float = 0.0
    #: True if the coordinator was paused and checks if others replaced it; held workers then wait.
    asking: bool = False
    #: The batch size for scripts that request one; None if scripts keep their own.
    batch: BatchWish | None = None


class Said(Message, tag="Said", frozen=True, kw_only=True):
    """An event that a probe reported to its agent."""

    event: ProbeEvent


class Exited(Message, tag="Exited", frozen=True, kw_only=True):
    """A worker has ended."""

    epoch: int
    exit: WorkerExit
    #: True if the worker is rank 0, and another program listens on its MASTER_PORT.
    port_taken: bool = False


class Parked(Message, tag="Parked", frozen=True, kw_only=True):
    """Request to the workers of ``epoch`` to park (stop training and wait), or to continue.

    ``mode`` is the value to write into the field ``park`` of the workers' control files.
    """

    epoch: int
    mode: int


class Halt(Message, tag="Halt", frozen=True, kw_only=True):
    """Request to stop the workers of ``epoch``."""

    epoch: int
    grace_seconds: float
    #: True if the world was lost: with ``--save_at_breakpoint`` memory is written to storage first.
    lost: bool = False


class Stopped(Message, tag="Stopped", frozen=True, kw_only=True):
    """No worker of ``epoch`` runs on the agent any more."""

    epoch: int
    now_ns: int
    progress: tuple[Progress, ...]
    port: int
    #: Parts of steps in the agent's memory.
    held: tuple[StepPart, ...] = ()


def lasts(message: Message) -> bool:
    """True if a message lets workers run: ``Run``, or a ``Lease`` of more than 0 seconds."""
    return isinstance(message, Run) or (isinstance(message, Lease) and message.seconds > 0)


ANY = (
    Prepare | Prepared | Discard | Run | Started | Unusable | Heartbeat | Lease | Said
    | Exited | Parked | Halt | Stopped
)  # fmt: skip
