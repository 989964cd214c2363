"""Policies with which Brain is compared.

They are published policies, as far as their papers describe them, and Brain's own way to divide a
pool, given perfect knowledge. Each published policy gets the information that its paper assumes,
and decides about all jobs in each round. It ignores kinds of accelerators, except that a job stays
on one kind. ``benchmarks/jct`` reproduces the published simulators exactly; this package applies
their rules in the world of ``brain.simulator``.
"""

from collections.abc import Callable, Mapping

from brain.simulator.policies.fifo import Fifo
from brain.simulator.policies.optimus import Optimus
from brain.simulator.policies.oracle import Oracle
from brain.simulator.policies.rounds import Contender, RoundPolicy
from brain.simulator.policies.tiresias import Tiresias

#: Policies by their names on the command line.
OTHERS: Mapping[str, Callable[[], RoundPolicy]] = {
    "tiresias": Tiresias,
    "optimus": Optimus,
    "fifo": Fifo,
}
#: Name of the policy with perfect knowledge.
ORACLE = "oracle"
POLICIES: Mapping[str, Callable[[], RoundPolicy]] = {**OTHERS, ORACLE: Oracle}

__all__ = [
    "ORACLE",
    "OTHERS",
    "POLICIES",
    "Contender",
    "Fifo",
    "Optimus",
    "Oracle",
    "RoundPolicy",
    "Tiresias",
]
