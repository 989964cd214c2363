"""Messages about shards of data: workers send requests through their agent; the coordinator
answers.
"""

from launcher.messages.message import Message


class Asked(Message, tag="Asked", frozen=True, kw_only=True):
    """A worker's request about shards of data, which ``launcher.data.serving`` answers."""

    #: Name that the worker gave itself.
    holder: str
    #: Number of the worker's request, from 1. With 0 the agent reports that the worker is gone,
    #: with -1 it reports the worker's state.
    number: int
    #: The request as JSON.
    body: bytes


class Answered(Message, tag="Answered", frozen=True, kw_only=True):
    holder: str
    number: int
    #: Version of the coordinator's ledgers that includes the request's effect.
    version: int
    #: The answer as JSON.
    body: bytes


class Shared(Message, tag="Shared", frozen=True, kw_only=True):
    """The coordinator's ledgers of shards, which agents keep for the next coordinator.

    An agent sends the ledgers to a new coordinator after all its other messages about shards.
    """

    version: int
    #: The ledgers as JSON.
    books: bytes


ANY = Asked | Answered | Shared
