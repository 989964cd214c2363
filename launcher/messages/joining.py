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
    """The first message of an agent to a coordinator; also sent after a lost connection."""

    v: int = VERSION
    job: str
    #: SHA-256 of the job's token, hexadecimal.
    token_sha256: str
    #: Id of the agent's replica; -1 requests an id.
    replica: int
    #: GROUP_RANK that the agent requests in its first world; None for any.
    rank: int | None = None
    node: NodeName
    #: host:port at which the agent tells others the coordinator's address.
    address: str
    processes: int
    #: Group of the agent's replica; ``worker`` if the job has no groups.
    group: str = WORKER
    #: Generation for which the agent's replica was started.
    generation: int
    #: Highest epoch that the agent knows, of a formed or a prepared world.
    last_epoch: int
    #: Epoch of the last world that the agent was told to run; the agent can send its document.
    world_epoch: int = 0
    #: Epoch of the agent's running workers; 0 if there are none.
    epoch: int = 0
    exits: tuple[WorkerExit, ...] = ()
    #: True if these workers can change to another world without a restart.
    elastic: bool = False
    #: A free port of the agent's machine, for MASTER_PORT.
    port: int
    #: Location of the agent's machine: zone, spine, rack, switch; empty if unknown.
    topology: tuple[str, ...] = ()
    #: False if the agent will send ``Ready`` once it can start workers quickly.
    ready: bool = True
    #: Parts of steps in the agent's memory.
    held: tuple[StepPart, ...] = ()
    #: Seconds since the agent last received a message from its previous coordinator.
    unheard_seconds: float = 0.0
    #: Name of the agent's program, which reveals two jobs that use one endpoint by mistake.
    program: str = ""
    #: The agent's last observation of the witness of its last world.
    witness: WitnessObserved = NO_WITNESS


class Ready(Message, tag="Ready", frozen=True):
    """The agent can start workers quickly from now on, so a world may include this agent."""


class Known(Message, tag="Known", frozen=True, kw_only=True):
    """An agent's last world, for a new coordinator that knows only a lower epoch."""

    world: WorldDocument


class Welcome(Message, tag="Welcome", frozen=True, kw_only=True):
    """The coordinator accepts the agent as ``replica``; ``epoch`` is the epoch of the latest
    world.
    """

    replica: int
    epoch: int


class Lead(Message, tag="Lead", frozen=True, kw_only=True):
    """A coordinator's first message to the agent at the job's endpoint.

    The agent must follow the sender.
    """

    job: str
    token_sha256: str
    #: host:port of the coordinator.
    coordinator: str
    epoch: int


class Elsewhere(Message, tag="Elsewhere", frozen=True, kw_only=True):
    """The answer of an agent that is not the coordinator.

    ``coordinator`` is the coordinator's address as this agent knows it; ``""`` if it knows none.
    """

    coordinator: str
    epoch: int


class Refused(Message, tag="Refused", frozen=True, kw_only=True):
    """The agent may not join; ``reason`` includes the remedy. The agent tries again unless the
    refusal is ``final``.
    """

    reason: str
    final: bool = True


class Turned(Message, tag="Turned", frozen=True):
    """The agent now follows another coordinator, because the receiver was silent for a long time.

    The receiver is the agent's former coordinator. The agent sends this message before it closes
    the connection. Otherwise the receiver would take the closed connection as proof that the agent
    has ended.
    """


class Leave(Message, tag="Leave", frozen=True):
    """The agent must end, and asks the coordinator to form a world without it."""


class Bye(Message, tag="Bye", frozen=True, kw_only=True):
    """Order to the agent to end."""

    exit: ReplicaExit
    exit_code: int
    detail: str
    #: Reason why the agent's node must not be chosen again for a while; empty if it may.
    unfit: str = ""


ANY = Hello | Ready | Known | Welcome | Lead | Elsewhere | Refused | Turned | Leave | Bye
