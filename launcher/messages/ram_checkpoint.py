"""Messages with which agents exchange parts of checkpoints in memory, without the coordinator."""

from launcher.messages.message import Message
from launcher.values.config import VERSION


class Fetch(Message, tag="Fetch", frozen=True, kw_only=True):
    """The first message of a connection, with which an agent requests a file of a step in another
    agent's memory.
    """

    v: int = VERSION
    job: str
    token_sha256: str
    #: ``<step>-<epoch>``.
    key: str
    name: str


class Offer(Message, tag="Offer", frozen=True, kw_only=True):
    """The first message of a connection, with which an agent offers its part of a step to another
    agent; the part's files follow in pieces.
    """

    v: int = VERSION
    job: str
    token_sha256: str
    #: JSON, as in ``part-<rank>``.
    part: bytes


class Piece(Message, tag="Piece", frozen=True, kw_only=True):
    data: bytes = b""
    last: bool = False
    #: There is no such file.
    missing: bool = False


class Taken(Message, tag="Taken", frozen=True, kw_only=True):
    """The answer to ``Offer``, after the files of the part."""

    ok: bool


ANY = Fetch | Offer | Piece | Taken
