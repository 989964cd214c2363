"""What agents and their coordinator say to each other.

A frame is a 4-byte big-endian length and msgpack by msgspec, never pickle. The first one of a
connection is ``Hello``; the answer to it is ``Welcome``, ``Elsewhere`` or ``Refused``.
"""

import asyncio
import hashlib
import hmac
from typing import TypeVar

import msgspec

from brain.errors import BadInput, Unavailable
from brain.types.batch import BatchWish
from brain.types.resources import NodeName
from brain.types.world import MemoryCheckpoint, ReplicaExit
from launcher.config import VERSION, WorldDocument
from launcher.hang.moving import Look as Seen
from launcher.memory.parts import Part
from launcher.network_check.rules import Measured, Work
from launcher.processes.values import ProbeEvent, Progress, WorkerExit

#: A longer frame is not ours.
LIMIT_BYTES = 4 * 1024 * 1024
#: Seconds that whoever connects may take to say who it is.
INTRODUCTION_SECONDS = 10.0
#: Seconds that the other end may take to read what was sent before we let go.
_CLOSE_SECONDS = 2.0


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
    #: Highest epoch that it has heard of, formed or only prepared.
    last_epoch: int
    #: Epoch of the last world that it was told to run; it can show its document.
    world_epoch: int = 0
    #: Epoch of the workers it has, 0 = none.
    epoch: int = 0
    exits: tuple[WorkerExit, ...] = ()
    #: They can go over into another world without being ended.
    elastic: bool = False
    #: A port free on its machine, for MASTER_PORT.
    port: int
    #: Where its machine is, outermost first: zone, spine, rack, switch; empty: not known.
    topology: tuple[str, ...] = ()
    #: False: it will say ``Ready`` once it can start workers quickly.
    ready: bool = True
    #: Parts of steps that are in its memory.
    held: tuple[Part, ...] = ()
    #: Seconds since it last heard the coordinator that it followed.
    unheard_seconds: float = 0.0
    #: Name of what it runs; two jobs that meet by mistake differ in it.
    program: str = ""


class Ready(Frame, frozen=True):
    """The agent can start workers quickly now; what was counted may be used."""


class Leave(Frame, frozen=True):
    """The agent was asked to end and wants to be let go."""


class Turned(Frame, frozen=True):
    """The agent follows another coordinator from here on: this one was silent for too long.

    It says so before it lets go of the connection, whose end would prove that it is gone.
    """


class Known(Frame, frozen=True, kw_only=True):
    """A later world than the coordinator's; a successor may have missed it."""

    world: WorldDocument


class Heartbeat(Frame, frozen=True, kw_only=True):
    """The agent lives; how far its workers of ``epoch`` are."""

    epoch: int
    #: CLOCK_MONOTONIC of the sender, nanoseconds.
    now_ns: int
    #: ``at`` of the newest lease that the sender has had from this coordinator.
    heard: float = 0.0
    progress: tuple[Progress, ...] = ()
    #: How far its memory is ahead of storage; None: it keeps nothing there.
    memory: MemoryCheckpoint | None = None


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
    #: It is rank 0, and another program listens at its MASTER_PORT.
    port_taken: bool = False


class Said(Frame, frozen=True, kw_only=True):
    """A probe announced something."""

    event: ProbeEvent


class Stopped(Frame, frozen=True, kw_only=True):
    """No worker of ``epoch`` runs here any more."""

    epoch: int
    now_ns: int
    progress: tuple[Progress, ...]
    port: int
    #: Parts of steps that are in its memory.
    held: tuple[Part, ...] = ()


class Welcome(Frame, frozen=True, kw_only=True):
    """The agent is known as ``replica``; ``epoch`` is the latest world."""

    replica: int
    epoch: int


class Lead(Frame, frozen=True, kw_only=True):
    """The first word of whoever coordinates a job to whoever listens at its endpoint: "follow"."""

    job: str
    token_sha256: str
    #: host:port where it coordinates.
    coordinator: str
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
    """Start the workers of a world; or, in process, have those that run go over into it."""

    world: WorldDocument
    #: Workers stay: at the step that all agreed to, where the world was prepared, else at once.
    in_process: bool = False
    #: A part of the newest step in memory that is complete over all agents; None: there is none.
    memory: Part | None = None


class Prepare(Frame, frozen=True, kw_only=True):
    """Start the workers of a world that is to come, and hold them at the gate.

    ``Run`` with the very same document lets them go; any other one ends them. In process, those
    that run build its group beside their training, newcomers are started into it, and those that
    have no place in it get ready to leave.
    """

    world: WorldDocument
    in_process: bool = False
    #: In process: replicas that have the state by then; the others receive it.
    staying: tuple[int, ...] = ()


class Discard(Frame, frozen=True, kw_only=True):
    """End what was prepared as ``epoch``; 0: whatever was."""

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
    work: Work = Work()


class Checked(Frame, frozen=True, kw_only=True):
    """The answer to ``Check``."""

    round: int
    measured: Measured


class Look(Frame, frozen=True, kw_only=True):
    """Nobody has heard of the workers of ``epoch`` for long: look at them twice."""

    epoch: int
    #: Between the two looks.
    seconds: float


class Looked(Frame, frozen=True, kw_only=True):
    """The answer to ``Look``."""

    epoch: int
    looks: tuple[Seen, ...]


class Fetch(Frame, frozen=True, kw_only=True):
    """First frame of a connection: another agent wants a file of a step that is in memory here."""

    v: int = VERSION
    job: str
    token_sha256: str
    #: ``<step>-<epoch>``.
    key: str
    name: str


class Offer(Frame, frozen=True, kw_only=True):
    """First frame of a connection: another agent's part of a step, to be kept for it; the files
    follow as pieces, one after the other."""

    v: int = VERSION
    job: str
    token_sha256: str
    #: JSON, as in ``part-<rank>``.
    part: bytes


class Piece(Frame, frozen=True, kw_only=True):
    """A piece of a file."""

    data: bytes = b""
    last: bool = False
    #: There is no such file.
    missing: bool = False


class Taken(Frame, frozen=True, kw_only=True):
    """The answer to ``Offer``, after its files."""

    ok: bool


class Elastic(Frame, frozen=True, kw_only=True):
    """All workers of ``epoch`` here can go over into another world without being ended."""

    epoch: int


class Appoint(Frame, frozen=True, kw_only=True):
    """Name a step after which all go over into the world of ``epoch``, which all have built."""

    epoch: int


class Appointed(Frame, frozen=True, kw_only=True):
    """The answer to ``Appoint``."""

    epoch: int
    step: int


class Agree(Frame, frozen=True, kw_only=True):
    """Go over after so many steps, if nobody here has made them; wait there for ``Run``."""

    epoch: int
    step: int


class Agreed(Frame, frozen=True, kw_only=True):
    """The answer to ``Agree``."""

    epoch: int
    step: int
    ok: bool


class Failing(Frame, frozen=True, kw_only=True):
    """The script of a worker of ``epoch`` has failed; the process is about to end of it."""

    epoch: int


class Post(Frame, frozen=True, kw_only=True):
    """Something that a member of a world which is being built tells all others, either way."""

    epoch: int
    key: str
    value: bytes


class Torn(Frame, frozen=True, kw_only=True):
    """Workers of ``epoch`` cannot reach their peers."""

    epoch: int
    reason: str
    #: They have never met there.
    unbuilt: bool = False


class Asked(Frame, frozen=True, kw_only=True):
    """A worker of this agent asks something about shards of data: ``launcher.data.serving``."""

    #: The worker, by a name that it gave itself.
    holder: str
    #: Counts its questions, from 1; 0: the agent says that it is gone; -1: what it has, and did.
    number: int
    #: JSON.
    body: bytes


class Answered(Frame, frozen=True, kw_only=True):
    """The answer to ``Asked``."""

    holder: str
    number: int
    #: Of the coordinator's books, once they have what was said.
    version: int
    #: JSON.
    body: bytes


class Shared(Frame, frozen=True, kw_only=True):
    """The coordinator's books of shards, kept by agents for a successor: to whom each hands them on
    as the last of what it has to say about them."""

    version: int
    #: JSON.
    books: bytes


class Parked(Frame, frozen=True, kw_only=True):
    """Ask the workers of ``epoch`` to park, or to run on; ``mode`` as in the control file."""

    epoch: int
    mode: int


class Halt(Frame, frozen=True, kw_only=True):
    """Stop the workers of ``epoch``."""

    epoch: int
    grace_seconds: float
    #: The world was lost: with ``--save_at_breakpoint`` what is in memory comes to storage first.
    lost: bool = False


class Lease(Frame, frozen=True, kw_only=True):
    """The answer to a heartbeat: its workers may live on for so long after it was sent."""

    epoch: int
    #: ``now_ns`` of the heartbeat.
    sent_ns: int
    #: 0 where it has no workers of the present world.
    seconds: float
    #: When it was answered, by the coordinator's clock; the next heartbeat brings it back.
    at: float = 0.0
    #: The batch that scripts that ask are to take; None: nobody knows better than they.
    batch: BatchWish | None = None


class Bye(Frame, frozen=True, kw_only=True):
    """The agent is to end."""

    exit: ReplicaExit
    exit_code: int
    detail: str
    #: Why its node is not to be chosen again for a while; empty: it may be.
    unfit: str = ""


ANY = (
    Hello | Ready | Leave | Turned | Known | Heartbeat | Started | Prepared | Unusable | Exited
    | Said | Stopped
    | Welcome | Lead | Elsewhere | Refused | Run | Prepare | Discard | Check | Checked | Parked
    | Look | Looked | Halt | Lease | Bye
    | Fetch | Offer | Piece | Taken
    | Asked | Answered | Shared
    | Elastic | Appoint | Appointed | Agree | Agreed | Failing | Post | Torn
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
        """Queue a frame; what goes to many is encoded once. A connection that is gone swallows it,
        its reader learns of the end."""
        if not self._writer.is_closing():
            self._writer.write(frame if isinstance(frame, bytes) else encoded(frame))

    async def receive(self, kind: type[F], *, seconds: float | None = None) -> F | None:
        """Return the next frame, a ``kind``; None at the end, or where none comes in ``seconds``.

        Raises:
            BadInput: what came is no frame of ``kind``.
        """
        try:
            async with asyncio.timeout(seconds):
                frame = msgspec.msgpack.decode(await self._body(), type=ANY)
        except (asyncio.IncompleteReadError, OSError):  # a time-out is one, too
            return None
        except msgspec.DecodeError as bad:
            raise BadInput(f"not a frame: {bad}") from bad
        if not isinstance(frame, kind):
            raise BadInput(f"{type(frame).__name__} is not expected here")
        return frame

    async def _body(self) -> bytes:
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        if length > LIMIT_BYTES:
            raise BadInput(f"a frame of {length} bytes is no frame; at most {LIMIT_BYTES}")
        return await self._reader.readexactly(length)

    def shut(self) -> None:
        """Send what is queued, then let go; whoever reads here finds the end at once."""
        self._writer.close()
        self._reader.feed_eof()

    def abandon(self) -> None:
        """Let go of a stream whose other end does not listen."""
        self._writer.transport.abort()

    async def flush(self) -> None:
        """Wait until the other side has taken most of what was sent."""
        try:
            await self._writer.drain()
        except OSError:
            return

    async def close(self) -> None:
        """Send what is queued, then let go of the stream; an end that hangs is not waited for."""
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()
        except OSError:
            self.abandon()


def digest(token: str) -> str:
    """The form of a token that goes over the wire."""
    return hashlib.sha256(token.encode()).hexdigest()


def same(said: str, token_sha256: str) -> bool:
    """Whether a token that came over the wire is the right one, whatever it consists of."""
    return hmac.compare_digest(said.encode(), token_sha256.encode())
