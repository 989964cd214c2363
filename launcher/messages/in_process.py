"""Messages with which workers change from one world to another without a restart."""

from launcher.messages.message import Message


class Elastic(Message, tag="Elastic", frozen=True, kw_only=True):
    """All workers of ``epoch`` on this agent can change to another world without a restart."""

    epoch: int


class Post(Message, tag="Post", frozen=True, kw_only=True):
    """A value from one member of a new world. An agent sends it to the coordinator, which forwards
    it to the other members.
    """

    epoch: int
    key: str
    value: bytes


class Appoint(Message, tag="Appoint", frozen=True, kw_only=True):
    """Request to choose a step, after which all members change to the world of ``epoch``; all
    members are ready for that world.
    """

    epoch: int


class Appointed(Message, tag="Appointed", frozen=True, kw_only=True):
    """The answer to ``Appoint``, with the chosen step."""

    epoch: int
    step: int


class Agree(Message, tag="Agree", frozen=True, kw_only=True):
    """Request to stop after ``step`` steps and wait there for ``Run``, if no worker of the agent is
    past that step.
    """

    epoch: int
    step: int


class Agreed(Message, tag="Agreed", frozen=True, kw_only=True):
    """The answer to ``Agree``; ``ok`` if the agent's workers wait after this step."""

    epoch: int
    step: int
    ok: bool


class Failing(Message, tag="Failing", frozen=True, kw_only=True):
    """The script of a worker of ``epoch`` has failed, and the worker is about to end."""

    epoch: int


class Torn(Message, tag="Torn", frozen=True, kw_only=True):
    """Workers of ``epoch`` cannot reach their peers."""

    epoch: int
    reason: str
    #: True if the workers have never connected with each other in this world.
    unbuilt: bool = False


ANY = Elastic | Post | Appoint | Appointed | Agree | Agreed | Failing | Torn
