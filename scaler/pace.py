"""Intervals of the scaler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals of the scaler's loop, in seconds."""

    look: float = 1.0
    poll: float = 20.0
    heartbeat: float = 5.0
    #: Seconds after which an unchanged report of a node is repeated: Brain takes a node of which
    #: it has not heard for a minute for silent.
    repeat: float = 20.0
    #: The same for a job; Brain gets all reports anew after it was away: it may have lost some.
    repeat_job: float = 300.0
    #: Seconds for which a report of replicas that begin waits: by then they may run.
    gather: float = 2.0
    #: Seconds between requests about agents of a job that Brain does not list.
    doubt: float = 30.0
    #: Pauses while Brain cannot be reached double from the first to the second.
    retry: float = 0.5
    retry_longest: float = 10.0


USUAL = Pace()
