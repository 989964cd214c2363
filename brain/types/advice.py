"""Advice on what a replica of a job should reserve."""

from dataclasses import dataclass
from enum import StrEnum

from brain.types.estimate import Band


class NoticeKind(StrEnum):
    """The kind of something about resources that a person should know."""

    MEMORY_LEAK = "MemoryLeak"
    MEMORY_UNRESOLVED = "MemoryUnresolved"
    SHARED_MEMORY = "SharedMemoryFull"
    SCRATCH = "ScratchFull"
    STARVED = "Starved"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about a job's resources that a person should know."""

    kind: NoticeKind
    #: One sentence.
    sentence: str


class Starvation(StrEnum):
    """The resource that loaders of data lack."""

    CPU = "cpu"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountAdvice:
    """Advice on one resource of a replica, in mCPU or bytes."""

    #: Amounts that would do in quiet times, that are advised, and that would be ample.
    low: float
    target: float
    high: float
    #: The target where nodes were of any size.
    uncapped: float
    #: Reserved now; 0: nothing.
    reserved: float
    #: Use that the target rests on: the percentile, or the highest.
    used: float
    #: Shares of the recent time in which use was above the target and above what is reserved, and
    #: mean shares of the two that were not used.
    above: float
    reserved_above: float
    unused: float
    reserved_unused: float
    #: One sentence.
    reason: str

    @property
    def changes(self) -> bool:
        """True if another amount is advised than is reserved."""
        return self.target != self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceAdvice:
    """Advice on shared memory or scratch storage, in bytes."""

    #: Highest use, and what there is.
    used: float
    capacity: float
    #: What there should be.
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAdvice:
    """Advice on what each replica of a role should reserve."""

    role: str
    cpu: AmountAdvice | None
    memory: AmountAdvice | None
    #: None: nobody read it.
    shared_memory: SpaceAdvice | None = None
    scratch: SpaceAdvice | None = None
    #: What the numbers rest on.
    basis: str
    #: The sentence that matters most.
    reason: str
    #: Little was measured of this run; the numbers are those of earlier ones, or a beginning.
    exploring: bool = False
    #: Seconds until memory that leaks runs out; None: it does not leak.
    memory_lasts_seconds: Band | None = None
    #: Why a person must look at the memory; empty: nobody must.
    memory_unresolved: str = ""
    #: Resource that the loaders lack, and what tells so; None and empty: they lack none.
    starved: Starvation | None = None
    starved_because: str = ""
    #: Readings that were left out, and why the last one.
    rejected: int = 0
    rejected_because: str = ""
