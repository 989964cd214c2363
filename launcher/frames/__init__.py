"""What agents and their coordinator say to each other: frames, msgpack and never pickle.

The first one of a connection is ``Hello``; the answer to it is ``Welcome``, ``Elsewhere`` or
``Refused``. One module a conversation, and what carries them:

    joining      an agent comes, finds who leads, and goes
    running      the workers of a world, from the order to start them until none is left
    in_process   workers go over into another world without being ended
    looking      nodes are tried; workers that nobody hears of are looked at
    memory       agents hand each other steps that are in memory
    witness      the file that decides between two halves of a world
    data         workers ask for shards of data
    frame        what every frame is
    connection   the stream that they go over
    tokens       the job's token, as they carry it
"""

from launcher.frames.connection import (
    ANY,
    INTRODUCTION_SECONDS,
    LIMIT_BYTES,
    Connection,
    F,
    encoded,
)
from launcher.frames.data import Answered, Asked, Shared
from launcher.frames.frame import Frame
from launcher.frames.in_process import (
    Agree,
    Agreed,
    Appoint,
    Appointed,
    Elastic,
    Failing,
    Post,
    Torn,
)
from launcher.frames.joining import (
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
from launcher.frames.looking import Check, Checked, Look, Looked
from launcher.frames.memory import Fetch, Offer, Piece, Taken
from launcher.frames.running import (
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
from launcher.frames.tokens import digest, same
from launcher.frames.witness import Witness, Witnessed

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
    "Frame",
    "Halt",
    "Heartbeat",
    "Hello",
    "Known",
    "Lead",
    "Lease",
    "Leave",
    "Look",
    "Looked",
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
