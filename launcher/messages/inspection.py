"""Messages with which the coordinator checks nodes and silent workers."""

from launcher.messages.message import Message
from launcher.values.hang.inspection import StackLook
from launcher.values.network_check import CheckWork, NodeMeasured


class Check(Message, tag="Check", frozen=True, kw_only=True):
    """Request to measure this node's arithmetic, and its exchanges with a few other nodes."""

    round: int
    #: Place within the group; the first one is met at ``host:port``.
    rank: int
    size: int
    host: str
    port: int
    #: By when it must be over.
    seconds: float
    work: CheckWork = CheckWork()


class Checked(Message, tag="Checked", frozen=True, kw_only=True):
    round: int
    measured: NodeMeasured


class Look(Message, tag="Look", frozen=True, kw_only=True):
    """The workers of ``epoch`` have been silent for long: request to examine them twice."""

    epoch: int
    #: Between the two looks.
    seconds: float


class Looked(Message, tag="Looked", frozen=True, kw_only=True):
    epoch: int
    looks: tuple[StackLook, ...]


ANY = Check | Checked | Look | Looked
