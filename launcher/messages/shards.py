"""Messages about shards of data: workers send requests through their agent; the coordinator
answers.
"""

from launcher.messages.message import Message


class Asked(Message, tag="Asked", frozen=True, kw_only=True):
    """A worker's request about shards of data, which ``launcher.data.serving`` answers."""

    #: The worker, by a name that it gave itself.
    holder: str
    #: Number of the question, from 1; 0: the agent reports the worker gone; -1: the worker's state.
    number: int
    #: JSON.
    body: bytes


class Answered(Message, tag="Answered", frozen=True, kw_only=True):
    holder: str
    number: int
    #: Version of the coordinator's ledgers that includes the question's effect.
    version: int
    #: JSON.
    body: bytes


class Shared(Message, tag="Shared", frozen=True, kw_only=True):
    """The coordinator's ledgers of shards, which agents keep for a successor.

    An agent sends them to a new coordinator after all its other messages about shards.
    """

    version: int
    #: JSON.
    books: bytes


ANY = Asked | Answered | Shared
