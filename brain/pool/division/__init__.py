"""Many jobs of a pool, decided together: from what is known of each to what each gets, and why.

    members     a job as one of those that share: its curves, its work so far, what holds it
    market      nodes and members in the numbers that ``pool.allocator`` divides
    changes     one round: prices, grants, what of them may be done now and in which order
    words       grants as recommendations that a person can judge

Pure, and knows no stores: ``brain.pool.rounds`` reads them and keeps the plans.
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
