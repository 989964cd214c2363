"""Estimates of a job's needs, from the stores: spine, pure, no I/O.

usage      what a running job's replicas use, kept for the time after it
history    jobs that ran, as the models want them
asking     document and question -> answer
roles      readings of machines as use of replicas of a role
memory     worlds that ran out of memory, and the time that is left
proposal   that advice as a plan
advice     what a running job's replicas should reserve
report     requested, used, advised, and what the difference costs
"""

from brain.estimates.advice import advised, notices
from brain.estimates.asking import ask, market_of
from brain.estimates.proposal import AMENABLE, propose
from brain.estimates.report import report
from brain.estimates.usage import KIND as USAGE
from brain.estimates.usage import remember, uses_of

__all__ = [
    "AMENABLE",
    "USAGE",
    "advised",
    "ask",
    "market_of",
    "notices",
    "propose",
    "remember",
    "report",
    "uses_of",
]
