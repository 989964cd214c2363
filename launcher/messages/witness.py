"""Messages about a world's witness: the coordinator names it, and members report if it exists."""

from launcher.messages.message import Message


class Witness(Message, tag="Witness", frozen=True, kw_only=True):
    """The witness of the world ``epoch`` is the file ``path``."""

    epoch: int
    path: str
    #: True if all members have seen the file, so that it decides which half of the world continues.
    in_force: bool = False


class Witnessed(Message, tag="Witnessed", frozen=True, kw_only=True):
    epoch: int
    path: str
    #: True if the file exists for this agent.
    seen: bool


ANY = Witness | Witnessed
