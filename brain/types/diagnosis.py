"""Why a world was lost, or stands still: who failed first, of what, and what tells so."""

from dataclasses import dataclass
from enum import StrEnum

from brain.types.explanation import Evidence
from brain.types.resources import NodeName


class FailureKind(StrEnum):
    """The kind of a failure: ``launcher.values.diagnosis.policy`` decides by it what follows."""

    #: An exception of the script that nothing around it explains.
    CODE = "code"
    #: The script ended itself with a code and said nothing.
    EXIT = "exit"
    #: The machine or its control group had no memory left.
    MEMORY = "memory"
    #: ``/dev/shm`` was full: loaders of data hand over what they read through it.
    SHARED_MEMORY = "shared-memory"
    #: The accelerator had no memory left.
    DEVICE_MEMORY = "device-memory"
    #: An accelerator failed, or is gone.
    DEVICE = "device"
    #: Connections broke or timed out, and no failure of a peer explains it.
    NETWORK = "network"
    #: Storage refused: full, stale, broken.
    STORAGE = "storage"
    #: Native code crashed (SIGSEGV, SIGABRT …).
    CRASH = "crash"
    #: Somebody ended it by a signal, and no want of memory explains it.
    KILLED = "killed"
    #: No worker moved for longer than it ever had.
    HANG = "hang"
    #: An agent and its machine are gone.
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A text that belongs to a finding: stacks of a rank, a flight recorder's file."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Who failed first and why, with what tells so."""

    kind: FailureKind
    #: One sentence for people.
    sentence: str
    #: Rank that failed first, and where it ran; None where no single one can be named.
    rank: int | None = None
    replica: int | None = None
    node: NodeName | None = None
    #: As a shell says it: 128 + n for signal n.
    exit_code: int | None = None
    #: Optimizer steps of the job before it, as far as they were seen.
    step: int | None = None
    evidence: tuple[Evidence, ...] = ()
    #: Of the rank that failed first; empty where none is known.
    traceback: str = ""
    #: What follows from it, one sentence; empty where that is not decided here.
    next_step: str = ""
    attachments: tuple[Attachment, ...] = ()
