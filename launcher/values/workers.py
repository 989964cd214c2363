"""Requests to workers, and their events, progress and exits."""

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from launcher.values.diagnosis.signs import Signs

#: A worker's exit code when its lease ran out.
LEASE_EXIT = 83


class Doing(IntEnum):
    """The activity of a worker, as far as its probe observes it."""

    STEPS = 0
    SAVING = 1
    EVALUATING = 2


class ParkRequest(IntEnum):
    """A request to workers to park or to continue training; workers read it at step boundaries."""

    RUN = 0
    #: Park after the next completed save.
    AT_SAVE = 1
    #: Park before the next step.
    AT_STEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEvent:
    """An event that a probe announces; fields that do not belong to the event are None."""

    v: int = 1
    rank: int
    local_rank: int
    epoch: int
    #: ``started``, ``gated``, ``stepping``, ``loaded``, ``saved`` or ``parked``.
    event: str
    pid: int | None = None
    path: str | None = None
    inode: int | None = None
    step: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    replaced: bool | None = None
    #: True if it has met another worker (``collectors/probe/peers.py``); None from an older probe.
    met: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of one worker, from its control file; times are CLOCK_MONOTONIC nanoseconds."""

    rank: int
    local_rank: int
    pid: int
    steps: int
    #: 0 = none yet.
    last_step_ns: int
    #: Steps at the newest completed save; 0 = none.
    saved_step: int
    parked: bool
    #: 0 = none yet.
    first_step_ns: int
    #: CLOCK_MONOTONIC of the last sign of life that is no step: a batch, a load, a save; 0 = none.
    life_ns: int = 0
    doing: Doing = Doing.STEPS
    #: Nanoseconds that sampled steps waited for the exchange of gradients, and how many those were.
    waited_ns: int = 0
    waits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    rank: int
    local_rank: int
    pid: int
    #: As ``subprocess`` says it: negative = by that signal.
    code: int
    #: CLOCK_MONOTONIC nanoseconds.
    at_ns: int
    #: True if the agent asked it to end, so that its code says nothing about the script.
    stopped: bool
    #: True if its lease ran out, so that it ended itself or was held until its end.
    lapsed: bool = False
    #: Time of its failure by its error file, else the time at which its end was seen; local time.
    failed_at: datetime
    #: From the worker's error file (``@record``), else made from the code; empty for 0.
    message: str
    #: The error file as the worker left it, JSON; empty if there is none.
    error: bytes = b""
    #: Path of that file; empty if it is not kept.
    error_file: str = ""
    #: The end of its standard error, if the agent reads that; empty otherwise.
    last_words: str = ""
    #: The cause of its end; None if the agent did not look for it.
    signs: Signs | None = None

    @property
    def exit_code(self) -> int:
        """The exit code in a shell's form: 128 + n for signal n."""
        return self.code if self.code >= 0 else 128 - self.code
