"""Messages with which agents exchange parts of steps in memory, without their coordinator."""

from launcher.messages.message import Message
from launcher.values.config import VERSION


class Fetch(Message, tag="Fetch", frozen=True, kw_only=True):
    """First message of a connection: another agent wants a file of a step in this agent's
    memory.
    """

    v: int = VERSION
    job: str
    token_sha256: str
    #: ``<step>-<epoch>``.
    key: str
    name: str


class Offer(Message, tag="Offer", frozen=True, kw_only=True):
    """First message of a connection: another agent's part of a step, which this agent shall keep;
    its files follow in pieces.
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
    """The answer to ``Offer``, after its files."""

    ok: bool


ANY = Fetch | Offer | Piece | Taken
