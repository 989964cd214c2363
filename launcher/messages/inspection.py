"""Messages with which the coordinator checks nodes and silent workers."""

from launcher.messages.message import Message
from launcher.values.hang.inspection import StackLook
from launcher.values.network_check.measurements import NodeMeasured
from launcher.values.network_check.terms import CheckWork


class Check(Message, tag="Check", frozen=True, kw_only=True):
    """Request to measure the node's computing speed, and its exchanges with a few other nodes."""

    round: int
    #: Rank in the group of nodes; the nodes connect to rank 0 at ``host:port``.
    rank: int
    size: int
    host: str
    port: int
    #: Seconds that the measurement may take.
    seconds: float
    work: CheckWork = CheckWork()


class Checked(Message, tag="Checked", frozen=True, kw_only=True):
    round: int
    measured: NodeMeasured


class Look(Message, tag="Look", frozen=True, kw_only=True):
    """Request to examine the stacks of the workers of ``epoch`` twice, because these workers have
    been silent for a long time.
    """

    epoch: int
    #: Seconds between the two examinations.
    seconds: float


class Looked(Message, tag="Looked", frozen=True, kw_only=True):
    epoch: int
    looks: tuple[StackLook, ...]


ANY = Check | Checked | Look | Looked
