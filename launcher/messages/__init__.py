"""Messages between agents and their coordinator: msgpack, never pickle.

An agent first sends ``Hello`` on a connection; the answer is ``Welcome``, ``Elsewhere`` or
``Refused``. Each module has the messages for one purpose:

    joining          an agent joins, finds the coordinator, and leaves
    running          a coordinator starts, watches and stops the workers of a world
    in_process       workers change to another world without a restart
    inspection       checks of nodes and of silent workers
    ram_checkpoint   agents exchange steps in memory
    witness          the file that decides between two halves of a world
    shards           workers ask for shards of data
    message          the base of every message
    connection       the stream that carries messages
    tokens           the job's token, as messages carry it
"""

from launcher.messages.connection import (
    ANY,
    INTRODUCTION_SECONDS,
    LIMIT_BYTES,
    Connection,
    F,
    encoded,
)
from launcher.messages.in_process import (
    Agree,
    Agreed,
    Appoint,
    Appointed,
    Elastic,
    Failing,
    Post,
    Torn,
)
from launcher.messages.inspection import Check, Checked, Look, Looked
from launcher.messages.joining import (
    Bye,
    Elsewhere,
    Hello,
    Known,
    Lead,
    Leave,
    Ready,
    Refused,
    Turned,
    Welcome,
)
from launcher.messages.message import Message
from launcher.messages.ram_checkpoint import Fetch, Offer, Piece, Taken
from launcher.messages.running import (
    HEARTBEAT_SECONDS,
    Discard,
    Exited,
    Halt,
    Heartbeat,
    Lease,
    Parked,
    Prepare,
    Prepared,
    Run,
    Said,
    Started,
    Stopped,
    Unusable,
)
from launcher.messages.shards import Answered, Asked, Shared
from launcher.messages.tokens import digest, same
from launcher.messages.witness import Witness, Witnessed

__all__ = [
    "ANY",
    "HEARTBEAT_SECONDS",
    "INTRODUCTION_SECONDS",
    "LIMIT_BYTES",
    "Agree",
    "Agreed",
    "Answered",
    "Appoint",
    "Appointed",
    "Asked",
    "Bye",
    "Check",
    "Checked",
    "Connection",
    "Discard",
    "Elastic",
    "Elsewhere",
    "Exited",
    "F",
    "Failing",
    "Fetch",
    "Halt",
    "Heartbeat",
    "Hello",
    "Known",
    "Lead",
    "Lease",
    "Leave",
    "Look",
    "Looked",
    "Message",
    "Offer",
    "Parked",
    "Piece",
    "Post",
    "Prepare",
    "Prepared",
    "Ready",
    "Refused",
    "Run",
    "Said",
    "Shared",
    "Started",
    "Stopped",
    "Taken",
    "Torn",
    "Turned",
    "Unusable",
    "Welcome",
    "Witness",
    "Witnessed",
    "digest",
    "encoded",
    "same",
]
