"""Advice on the amounts that a replica of a job should reserve."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from brain.types.estimate import Band


class NoticeKind(StrEnum):
    """The problem that a notice reports, for example a leak, or loaders without enough CPU."""

    MEMORY_LEAK = "MemoryLeak"
    MEMORY_UNRESOLVED = "MemoryUnresolved"
    SHARED_MEMORY = "SharedMemoryFull"
    SCRATCH = "ScratchFull"
    STARVED = "Starved"


@dataclass(frozen=True, slots=True)
class Notice:
    """A problem with a job's resources that a person should know about."""

    kind: NoticeKind
    #: The notice, in one sentence.
    sentence: str


class Starvation(StrEnum):
    """The resource that data loaders lack."""

    CPU = "cpu"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountAdvice:
    """The advised amount of one resource for each replica: a range and a target, in mCPU or
    bytes.
    """

    #: Three amounts: enough in quiet times, the advised one, and an ample one.
    low: float
    target: float
    high: float
    #: The target if nodes had no limit.
    uncapped: float
    #: Amount reserved now; 0: none.
    reserved: float
    #: Use on which the target rests: a percentile, or the highest.
    used: float
    #: Shares of recent time in which use exceeded the target and the reservation, and the mean
    #: unused shares of both.
    above: float
    reserved_above: float
    unused: float
    reserved_unused: float
    #: The reason, in one sentence.
    reason: str

    @property
    def changes(self) -> bool:
        """Return True if the advised amount differs from the reservation."""
        return self.target != self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceAdvice:
    """The size in bytes that a replica's shared memory or scratch storage should have."""

    #: Highest use, and the present size.
    used: float
    capacity: float
    #: Advised size.
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAdvice:
    """Advice on the amounts that each replica of a role should reserve."""

    role: str
    cpu: AmountAdvice | None
    memory: AmountAdvice | None
    #: Advice on shared memory; None: it was not read.
    shared_memory: SpaceAdvice | None = None
    scratch: SpaceAdvice | None = None
    #: Sentence on the measurements that the numbers rest on.
    basis: str
    #: The most important sentence of the advice.
    reason: str
    #: True if little of this run was measured; the numbers then rest on earlier runs, or on
    #: defaults.
    exploring: bool = False
    #: Seconds until leaking memory runs out; None: it does not leak.
    memory_lasts_seconds: Band | None = None
    #: The reason why a person must check the memory; empty: no check is needed.
    memory_unresolved: str = ""
    #: Resource that data loaders lack, and the evidence; None and empty if they lack none.
    starved: Starvation | None = None
    starved_because: str = ""
    #: Number of readings that were left out or mended, also by the word for why, and the reason for
    #: the last one.
    rejected: int = 0
    rejected_for: Mapping[str, int] = field(default_factory=dict)
    rejected_because: str = ""
