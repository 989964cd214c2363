"""Workers go over from one world into another without being ended."""

from launcher.messages.message import Message


class Elastic(Message, tag="Elastic", frozen=True, kw_only=True):
    """All workers of ``epoch`` here can go over into another world without being ended."""

    epoch: int


class Post(Message, tag="Post", frozen=True, kw_only=True):
    """Something that a member of a world which is being built tells all others, either way."""

    epoch: int
    key: str
    value: bytes


class Appoint(Message, tag="Appoint", frozen=True, kw_only=True):
    """Name a step after which all go over into the world of ``epoch``, which all have built."""

    epoch: int


class Appointed(Message, tag="Appointed", frozen=True, kw_only=True):
    """The answer to ``Appoint``."""

    epoch: int
    step: int


class Agree(Message, tag="Agree", frozen=True, kw_only=True):
    """Go over after so many steps, if nobody here has made them; wait there for ``Run``."""

    epoch: int
    step: int


class Agreed(Message, tag="Agreed", frozen=True, kw_only=True):
    """The answer to ``Agree``."""

    epoch: int
    step: int
    ok: bool


class Failing(Message, tag="Failing", frozen=True, kw_only=True):
    """The script of a worker of ``epoch`` has failed; the process is about to end of it."""

    epoch: int


class Torn(Message, tag="Torn", frozen=True, kw_only=True):
    """Workers of ``epoch`` cannot reach their peers."""

    epoch: int
    reason: str
    #: They have never met there.
    unbuilt: bool = False


ANY = Elastic | Post | Appoint | Appointed | Agree | Agreed | Failing | Torn
