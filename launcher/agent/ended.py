"""How an agent ends."""

from dataclasses import dataclass

from brain.types.world import ReplicaExit


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnd:
    """What an agent is told as it ends, or finds out for itself."""

    exit: ReplicaExit
    exit_code: int
    detail: str
    #: Why its node is not to be chosen again for a while; empty: it may be.
    unfit: str = ""
