"""Decisions about all jobs of a pool: the package reads the stores, lets ``pool.division`` divide,
and stores the plans of a round in one transaction. It does no I/O of its own and reads no clock.

    cache     values that turns of one pool keep in memory
    limits    limits of projects, for jobs that begin
    looks     the result of Brain's last look at a job, and the time of the next look
    findings  the finding that a bug keeps Brain from deciding about a job
    starts    waiting jobs that share the pool, and their first sizes
    plans     one round: reads members from the stores, divides, stores the plans

``brain.cycle.turn`` is the only caller.
"""

from brain.pool.rounds.cache import Memo
from brain.pool.rounds.findings import undecided
from brain.pool.rounds.limits import AcceleratorLimits
from brain.pool.rounds.looks import looked
from brain.pool.rounds.plans import joined, share
from brain.pool.rounds.starts import Starts, queued

__all__ = [
    "AcceleratorLimits",
    "Memo",
    "Starts",
    "joined",
    "looked",
    "queued",
    "share",
    "undecided",
]
