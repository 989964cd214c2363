"""Estimates of a job's needs from the stores, as pure functions without I/O.

usage      use of resources by a running job's replicas, kept after its end
history    jobs that ran, as input of the models
asking     the estimate that answers a request
roles      converts readings of machines into the resources that replicas of a role use
memory     worlds that ran out of memory, and the time until a leak fills memory
leaks      a plan that restarts a job before leaking memory runs out
proposal   a plan that carries out the advice on resources
beginning  amounts that a new job begins with
advice     amounts that a running job's replicas should reserve
report     reservation, use, advice, and the cost of the difference
"""

from brain.estimates.advice import advised, advised_of_many, notices
from brain.estimates.asking import ask, market_of
from brain.estimates.beginning import first_amounts
from brain.estimates.leaks import restart
from brain.estimates.proposal import AMENABLE, propose
from brain.estimates.report import accelerator_of, report
from brain.estimates.usage import KIND as USAGE
from brain.estimates.usage import remember, uses_of

__all__ = [
    "AMENABLE",
    "USAGE",
    "accelerator_of",
    "advised",
    "advised_of_many",
    "ask",
    "first_amounts",
    "market_of",
    "notices",
    "propose",
    "remember",
    "report",
    "restart",
    "uses_of",
]
