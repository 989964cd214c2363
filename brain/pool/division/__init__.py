"""One decision about all jobs of a pool, from their models to their grants and the reasons.

    members     a job that shares the pool: its curves, its work so far, the reason to hold it
    market      nodes and members in the units that ``pool.allocator`` divides
    changes     one round: prices, grants, the changes allowed now, and their order
    words       grants as recommendations that a person can judge

This package is pure and does not use the stores: ``brain.pool.rounds`` reads the stores and stores
the plans.
"""

from brain.pool.division.changes import Change, Division, divide
from brain.pool.division.members import PoolMember, member, shares, waiting
from brain.pool.division.words import advise, facts

__all__ = [
    "Change",
    "Division",
    "PoolMember",
    "advise",
    "divide",
    "facts",
    "member",
    "shares",
    "waiting",
]
