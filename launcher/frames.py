"""What agents and their coordinator say to each other.

A frame is a 4-byte big-endian length and msgpack by msgspec, never pickle. The first one of a
connection is ``Hello``; the answer to it is ``Welcome``, ``Elsewhere`` or ``Refused``.
"""

import asyncio
import hashlib
from typing import TypeVar

import msgspec

from brain.errors import BadInput, Unavailable
from brain.types.resources import NodeName
from brain.types.world import ReplicaExit
from launcher.config import VERSION, WorldDocument
from launcher.network_check.rules import Measured
from launcher.processes.values import ProbeEvent, Progress, WorkerExit

#: A longer frame is not ours.
LIMIT_BYTES = 4 * 1024 * 1024


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all frames; unknown fields are tolerated."""


class Hello(Frame, frozen=True, kw_only=True):
    """An agent introduces itself, again after every loss of its coordinator."""

    v: int = VERSION
    job: str
    #: SHA-256 of the job's token, hexadecimal.
    token_sha256: str
    #: -1 asks for an id.
    replica: int
    #: GROUP_RANK asked for in a first world; None: any.
    rank: int | None = None
    node: NodeName
    #: host:port where it answers who coordinates.
    address: str
    processes: int
    #: Generation that its replica was started for.
    generation: int
    #: Highest epoch that it has heard of.
    last_epoch: int
    #: Epoch of the workers it has, 0 = none.
    epoch: int = 0
    exits: tuple[WorkerExit, ...] = ()
    #: A port free on its machine, for MASTER_PORT.
    port: int
    #: Where its machine is, outermost first: zone, spine, rack, switch; empty: not known.
    topology: tuple[str, ...] = ()
    #: False: it will say ``Ready`` once it can start workers quickly.
    ready: bool = True


class Ready(Frame, frozen=True):
    """The agent can start workers quickly now; what was counted may be used."""


class Leave(Frame, frozen=True):
    """The agent was asked to end and wants to be let go."""


class Heartbeat(Frame, frozen=True, kw_only=True):
    """The agent lives; how far its workers of ``epoch`` are."""

    epoch: int
    #: CLOCK_MONOTONIC of the sender, nanoseconds.
    now_ns: int
    progress: tuple[Progress, ...] = ()


class Started(Frame, frozen=True, kw_only=True):
    """All workers of the agent in ``epoch`` were started."""

    epoch: int


class Prepared(Frame, frozen=True, kw_only=True):
    """Whether the workers of a world that is to come wait at the gate here."""

    epoch: int
    ok: bool
    #: Why they cannot; the change then takes the ordinary way.
    reason: str = ""


class Unusable(Frame, frozen=True, kw_only=True):
    """The agent cannot start workers at all, here or in any other world."""

    epoch: int
    reason: str


class Exited(Frame, frozen=True, kw_only=True):
    """A worker has ended."""

    epoch: int
    exit: WorkerExit


class Said(Frame, frozen=True, kw_only=True):
    """A probe announced something."""

    event: ProbeEvent


class Stopped(Frame, frozen=True, kw_only=True):
    """No worker of ``epoch`` runs here any more."""

    epoch: int
    now_ns: int
    progress: tuple[Progress, ...]
    port: int


class Welcome(Frame, frozen=True, kw_only=True):
    """The agent is known as ``replica``; ``epoch`` is the latest world."""

    replica: int
    epoch: int


class Elsewhere(Frame, frozen=True, kw_only=True):
    """Who was asked does not coordinate; ``coordinator`` does, as far as it knows ("" = nobody)."""

    coordinator: str
    epoch: int


class Refused(Frame, frozen=True, kw_only=True):
    """The agent may not join; the reason names the remedy. Not ``final``: try again."""

    reason: str
    final: bool = True


class Run(Frame, frozen=True, kw_only=True):
    """Start the workers of a world."""

    world: WorldDocument


class Prepare(Frame, frozen=True, kw_only=True):
    """Start the workers of a world that is to come, and hold them at the gate.

    ``Run`` with the very same document lets them go; any other one ends them.
    """

    world: WorldDocument


class Discard(Frame, frozen=True, kw_only=True):
    """End what was prepared as ``epoch``."""

    epoch: int


class Check(Frame, frozen=True, kw_only=True):
    """Measure this node's arithmetic, and exchanges with a few others."""

    round: int
    #: Place within the group; the first one is met at ``host:port``.
    rank: int
    size: int
    host: str
    port: int
    #: By when it must be over.
    seconds: float


class Checked(Frame, frozen=True, kw_only=True):
    """The answer to ``Check``."""

    round: int
    measured: Measured


class Parked(Frame, frozen=True, kw_only=True):
    """Ask the workers of ``epoch`` to park, or to run on; ``mode`` as in the control file."""

    epoch: int
    mode: int


class Halt(Frame, frozen=True, kw_only=True):
    """Stop the workers of ``epoch``."""

    epoch: int
    grace_seconds: float


class Lease(Frame, frozen=True, kw_only=True):
    """The answer to a heartbeat: its workers may live on."""

    epoch: int
    #: ``now_ns`` of the heartbeat.
    sent_ns: int
    seconds: float


class Bye(Frame, frozen=True, kw_only=True):
    """The agent is to end."""

    exit: ReplicaExit
    exit_code: int
    detail: str


ANY = (
    Hello | Ready | Leave | Heartbeat | Started | Prepared | Unusable | Exited | Said | Stopped
    | Welcome | Elsewhere | Refused | Run | Prepare | Discard | Check | Checked | Parked | Halt
    | Lease | Bye
)  # fmt: skip
F = TypeVar("F", bound=Frame)

_encoder = msgspec.msgpack.Encoder()


def encoded(frame: Frame) -> bytes:
    """A frame as it goes over the wire."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(4, "big") + body


class Connection:
    """One stream of frames, either side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, address: str) -> "Connection":
        """Connect to ``host:port``.

        Raises:
            Unavailable: nobody listens there.
        """
        host, _, port = address.rpartition(":")
        try:
            return cls(*await asyncio.open_connection(host.strip("[]"), int(port)))
        except (OSError, ValueError) as silent:
            raise Unavailable(f"no agent answers at {address}: {silent}") from silent

    def send(self, frame: "Frame | bytes") -> None:
        """Queue a frame; a connection that is gone swallows it, its reader learns of the end.

        What goes to many is encoded once, by ``encoded``.
        """
        if not self._writer.is_closing():
            self._writer.write(frame if isinstance(frame, bytes) else encoded(frame))

    async def receive(self, kind: type[F]) -> F | None:
        """Return the next frame, a ``kind``; None at the end of the stream.

        Raises:
            BadInput: what came is no frame of ``kind``.
        """
        try:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            if length > LIMIT_BYTES:
                raise BadInput(f"a frame of {length} bytes is no frame; at most {LIMIT_BYTES}")
            frame = msgspec.msgpack.decode(await self._reader.readexactly(length), type=ANY)
        except (asyncio.IncompleteReadError, OSError):
            return None
        except msgspec.DecodeError as bad:
            raise BadInput(f"not a frame: {bad}") from bad
        if not isinstance(frame, kind):
            raise BadInput(f"{type(frame).__name__} is not expected here")
        return frame

    async def close(self) -> None:
        """Send what is queued, then let go of the stream."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


def digest(token: str) -> str:
    """The form of a token that goes over the wire."""
    return hashlib.sha256(token.encode()).hexdigest()
