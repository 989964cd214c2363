"""Messages with which workers change from one world to another without a restart."""

from launcher.messages.message import Message


class Elastic(Message, tag="Elastic", frozen=True, kw_only=True):
    """All workers of ``epoch`` on this agent can change to another world without a restart."""

    epoch: int


class Post(Message, tag="Post", frozen=True, kw_only=True):
    """A value from one member of a world being built, for all other members; sent in both
    directions.
    """

    epoch: int
    key: str
    value: bytes


class Appoint(Message, tag="Appoint", frozen=True, kw_only=True):
    """Request to name a step after which all members change to the world of ``epoch``, which all
    have built.
    """

    epoch: int


class Appointed(Message, tag="Appointed", frozen=True, kw_only=True):
    epoch: int
    step: int


class Agree(Message, tag="Agree", frozen=True, kw_only=True):
    """Request to change after ``step`` steps, if no worker here is past that step, and to wait
    there for ``Run``.
    """

    epoch: int
    step: int


class Agreed(Message, tag="Agreed", frozen=True, kw_only=True):
    epoch: int
    step: int
    ok: bool


class Failing(Message, tag="Failing", frozen=True, kw_only=True):
    """The script of a worker of ``epoch`` has failed; its process is about to end."""

    epoch: int


class Torn(Message, tag="Torn", frozen=True, kw_only=True):
    """Workers of ``epoch`` cannot reach their peers."""

    epoch: int
    reason: str
    #: They have never met there.
    unbuilt: bool = False


ANY = Elastic | Post | Appoint | Appointed | Agree | Agreed | Failing | Torn
