"""Shards of data: workers ask through their agent, the coordinator answers and keeps books."""

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
    #: Of the coordinator's books, once they have what was said.
    version: int
    #: JSON.
    body: bytes


class Shared(Message, tag="Shared", frozen=True, kw_only=True):
    """The coordinator's books of shards, kept by agents for a successor: to whom each hands them on
    as the last of what it has to say about them."""

    version: int
    #: JSON.
    books: bytes


ANY = Asked | Answered | Shared
