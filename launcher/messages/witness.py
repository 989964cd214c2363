"""Messages about a world's witness: the coordinator names it, and members report if they see it."""

from launcher.messages.message import Message


class Witness(Message, tag="Witness", frozen=True, kw_only=True):
    """The witness of the world ``epoch`` is the file ``path``."""

    epoch: int
    path: str
    #: All members have seen it: it decides between two halves. Until then it only may.
    in_force: bool = False


class Witnessed(Message, tag="Witnessed", frozen=True, kw_only=True):
    epoch: int
    path: str
    #: The file is there for this agent, too.
    seen: bool


ANY = Witness | Witnessed
