"""Signs that an agent found when one of its workers ended."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The signs that an agent found at a worker's end, in addition to the exit code."""

    #: Optimizer steps that the worker had completed in its world.
    steps: int = 0
    #: Seconds between the failure (the exception, by the worker's own clock) and the exit.
    lag_seconds: float = 0.0
    #: The end of the traceback and message of the exception that left the script.
    traceback: str = ""
    #: The end of its standard error, if the agent reads that.
    tail: str = ""
    #: The checkpoint whose save raised that exception, and the bytes that were free there then;
    #: empty and None where no save did, or nothing could be read.
    saving: str = ""
    free_bytes: int | None = None
    #: Limits that the process itself had, as ``RLIMIT_AS 8589934592``: those on memory and files if
    #: an exception left the script, that on processor time if SIGKILL ended it.
    limits: tuple[str, ...] = ()
    #: The standard stream that had no reader any more when a pipe broke, ``standard output``; empty
    #: if another pipe broke, or none.
    unread: str = ""
    #: Name of the signal that ended the fork server, with which its workers end; empty if none did.
    parent_signal: str = ""
    #: Processes that the kernel ended for lack of memory since the worker was started: in the
    #: agent's control group, and on the whole machine.
    oom_kills: int = 0
    host_oom_kills: int = 0
    #: Total bytes of ``/dev/shm``; None if there is none.
    shm_bytes: int | None = None
    #: NVIDIA Xid errors in the kernel's log since then, as ``79 0000:3b:00``.
    xids: tuple[str, ...] = ()
    #: Accelerators that the driver listed at the start and no longer does.
    lost_cards: tuple[str, ...] = ()
