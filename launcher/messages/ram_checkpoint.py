"""Messages with which agents exchange parts of checkpoints in memory, without the coordinator."""

from launcher.messages.message import Message
from launcher.values.config import VERSION


class Fetch(Message, tag="Fetch", frozen=True, kw_only=True):
    """The first message on a connection: a request for one file of a step in another agent's
    memory.
    """

    v: int = VERSION
    job: str
    token_sha256: str
    #: ``<step>-<epoch>``.
    key: str
    name: str


class Offer(Message, tag="Offer", frozen=True, kw_only=True):
    """The first message on a connection: an agent's offer of its part of a step to another agent.
    The part's files follow as pieces.
    """

    v: int = VERSION
    job: str
    token_sha256: str
    #: JSON, as in ``part-<rank>``.
    part: bytes


class Piece(Message, tag="Piece", frozen=True, kw_only=True):
    data: bytes = b""
    last: bool = False
    #: True if the requested file does not exist.
    missing: bool = False


class Taken(Message, tag="Taken", frozen=True, kw_only=True):
    """The answer to ``Offer``, sent after the last file; ``ok`` if the part was stored."""

    ok: bool


ANY = Fetch | Offer | Piece | Taken
