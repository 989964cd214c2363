"""Shards of data: workers ask through their agent; the coordinator answers, and keeps ledgers."""

from launcher.messages.message import Message


class Asked(Message, tag="Asked", frozen=True, kw_only=True):
    """A worker of this agent asks something about shards of data: ``launcher.data.serving``."""

    #: The worker, by a name that it gave itself.
    holder: str
    #: Counts its questions, from 1; 0: the agent says that it is gone; -1: what it has, and did.
    number: int
    #: JSON.
    body: bytes


class Answered(Message, tag="Answered", frozen=True, kw_only=True):
    """The answer to ``Asked``."""

    holder: str
    number: int
    #: Version of the coordinator's ledgers that has what was said.
    version: int
    #: JSON.
    body: bytes


class Shared(Message, tag="Shared", frozen=True, kw_only=True):
    """The coordinator's ledgers of shards, which agents keep for a successor.

    Each agent hands them on last of all that it says about shards.
    """

    version: int
    #: JSON.
    books: bytes


ANY = Asked | Answered | Shared
