"""Workers' requests about shards, and the coordinator's answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: A request, or the answer to one, as JSON has it.
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardQuestion:
    """A worker's request, sent through the agent of ``replica``."""

    replica: int
    #: The worker, by a name that it gave itself.
    holder: str
    #: Counts its questions.
    number: int
    body: Body


@dataclass(frozen=True, slots=True)
class ShardAnswer:
    question: ShardQuestion
    body: Body
