"""Messages of an agent that joins a coordinator or its successor, or leaves."""

from brain.types.resources import NodeName
from brain.types.roles import WORKER
from brain.types.world import ReplicaExit
from launcher.messages.message import Message
from launcher.values.config import VERSION, WorldDocument
from launcher.values.ram_checkpoint.parts import StepPart
from launcher.values.witness import NO_WITNESS, WitnessObserved
from launcher.values.workers import WorkerExit


class Hello(Message, tag="Hello", frozen=True, kw_only=True):
    """The first message of an agent to a coordinator, also after every loss of a coordinator."""

    v: int = VERSION
    job: str
    #: SHA-256 of the job's token, hexadecimal.
    token_sha256: str
    #: -1 asks for an id.
    replica: int
    #: GROUP_RANK asked for in a first world; None for any.
    rank: int | None = None
    node: NodeName
    #: host:port where it answers who coordinates.
    address: str
    processes: int
    #: Group of its replica, or ``worker``.
    group: str = WORKER
    #: Generation that its replica was started for.
    generation: int
    #: Highest epoch that it has heard of, formed or only prepared.
    last_epoch: int
    #: Epoch of the last world that it was told to run, whose document it can send.
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
    held: tuple[StepPart, ...] = ()
    #: Seconds since it last heard the coordinator that it followed.
    unheard_seconds: float = 0.0
    #: Name of its program; two jobs that meet by mistake differ in it.
    program: str = ""
    #: Its knowledge of the witness of its last world.
    witness: WitnessObserved = NO_WITNESS


class Ready(Message, tag="Ready", frozen=True):
    """The agent can start workers quickly from now on, so a world may use it."""


class Known(Message, tag="Known", frozen=True, kw_only=True):
    """A world with a higher epoch than the coordinator's, in case a successor missed it."""

    world: WorldDocument


class Welcome(Message, tag="Welcome", frozen=True, kw_only=True):
    """The agent is accepted as ``replica``; ``epoch`` is that of the latest world."""

    replica: int
    epoch: int


class Lead(Message, tag="Lead", frozen=True, kw_only=True):
    """The coordinator's first message to the agent at the job's endpoint, which is to follow it."""

    job: str
    token_sha256: str
    #: host:port at which it coordinates.
    coordinator: str
    epoch: int


class Elsewhere(Message, tag="Elsewhere", frozen=True, kw_only=True):
    """The answer of an agent that does not coordinate; ``coordinator`` does, as far as this agent
    knows.

    ``""`` means that no agent does.
    """

    coordinator: str
    epoch: int


class Refused(Message, tag="Refused", frozen=True, kw_only=True):
    """The agent may not join; the reason includes the remedy. If not ``final``, the agent tries
    again.
    """

    reason: str
    final: bool = True


class Turned(Message, tag="Turned", frozen=True):
    """The agent follows another coordinator from now on, because this one was silent for too long.

    The agent sends this before it closes the connection, because a closed connection would prove
    that the agent has ended.
    """


class Leave(Message, tag="Leave", frozen=True):
    """The agent was told to end, and requests its release."""


class Bye(Message, tag="Bye", frozen=True, kw_only=True):
    """The agent must end."""

    exit: ReplicaExit
    exit_code: int
    detail: str
    #: Why its node must not be chosen again for a while; empty if it may be.
    unfit: str = ""


ANY = Hello | Ready | Known | Welcome | Lead | Elsewhere | Refused | Turned | Leave | Bye
