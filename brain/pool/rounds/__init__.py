"""Deciding about many jobs of a pool at once: reads the stores, lets ``pool.division`` divide,
and keeps the plans of a round in one transaction. Spine: no I/O of its own, no clock.

    memo      what turns of one pool keep in mind
    limits    what projects may have, for jobs that begin
    findings  what is said of a job that a bug keeps from being decided about
    starts    with how many replicas jobs begin whose owners left that open
    plans     one round: members from the stores, a division, its plans

``brain.cycle.turn`` is the only caller.
"""

from brain.pool.rounds.cache import CachedLook, Memo
from brain.pool.rounds.findings import undecided
from brain.pool.rounds.limits import AcceleratorLimits
from brain.pool.rounds.plans import joined, share
from brain.pool.rounds.starts import Starts

__all__ = ["AcceleratorLimits", "CachedLook", "Memo", "Starts", "joined", "share", "undecided"]
