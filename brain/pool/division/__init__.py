"""One decision about all jobs of a pool, from their models to their grants and the reasons.

    members     a job as one of those that share: its curves, its work so far, what holds it
    market      nodes and members in the numbers that ``pool.allocator`` divides
    changes     one round: prices, grants, the changes allowed now, and their order
    words       grants as recommendations that a person can judge

This package is pure and knows no stores: ``brain.pool.rounds`` reads them and keeps the plans.
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
