"""The cause of a world's loss or hang: the rank that failed first, its failure, and the
evidence.
"""

from dataclasses import dataclass
from enum import StrEnum

from brain.types.explanation import Evidence
from brain.types.resources import NodeName


class FailureKind(StrEnum):
    """The kind of a failure, which determines the reaction
    (``launcher.values.diagnosis.policy``).
    """

    #: An exception of the script that no other finding explains.
    CODE = "code"
    #: The script exited with a code and printed no reason.
    EXIT = "exit"
    #: The machine or its control group ran out of memory.
    MEMORY = "memory"
    #: ``/dev/shm`` was full: data loaders hand over their examples through it.
    SHARED_MEMORY = "shared-memory"
    #: The accelerator ran out of memory.
    DEVICE_MEMORY = "device-memory"
    #: An accelerator failed or disappeared.
    DEVICE = "device"
    #: Connections broke or timed out, and no failure of a peer explains it.
    NETWORK = "network"
    #: Storage refused a read or write: it was full, stale or broken.
    STORAGE = "storage"
    #: Native code crashed (SIGSEGV, SIGABRT …).
    CRASH = "crash"
    #: A signal ended the worker, and no lack of memory explains it.
    KILLED = "killed"
    #: No worker made progress for longer than any earlier pause.
    HANG = "hang"
    #: An agent was lost with its machine.
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A text that belongs to a finding: stacks of a rank, a flight recorder's file."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The rank that failed first and its failure, with the evidence."""

    kind: FailureKind
    #: The finding, in one sentence for people.
    sentence: str
    #: Rank that failed first, with its host; None if no single rank can be named.
    rank: int | None = None
    replica: int | None = None
    node: NodeName | None = None
    #: Exit code as shells give it: 128 + n for signal n.
    exit_code: int | None = None
    #: Optimizer steps of the job before the failure, as far as they were seen.
    step: int | None = None
    evidence: tuple[Evidence, ...] = ()
    #: Traceback of the rank that failed first; empty if none is known.
    traceback: str = ""
    #: The consequence, in one sentence; empty if another program decides it.
    next_step: str = ""
    attachments: tuple[Attachment, ...] = ()
