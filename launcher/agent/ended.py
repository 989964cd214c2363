"""The end of an agent."""

from dataclasses import dataclass

from brain.types.world import ReplicaExit


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnd:
    """An agent's end: its exit, its exit code and the reason.

    The agent is told of it, or finds it out for itself.
    """

    exit: ReplicaExit
    exit_code: int
    detail: str
    #: Why its node is not to be chosen again for a while; empty: it may be.
    unfit: str = ""
