"""Many jobs, one cluster: who gets which accelerators, and what they are worth at the margin.

    jobs, cluster -> configurations and their worth -> prices -> a division -> nodes -> reasons

``allocate`` is a pure function: no clock, no I/O, no randomness. Goodput curves come in with the
jobs; nothing here knows how they were fitted.
"""

from brain.optimizer.cluster.allocate import allocate
from brain.optimizer.cluster.utility import PROPORTIONAL, Terms, Utility, Weights
from brain.optimizer.cluster.views import (
    ClusterView,
    Curve,
    Grant,
    JobView,
    Move,
    NodeView,
    Option,
    Outcome,
    Placement,
    Prices,
    Quota,
    Round,
)

__all__ = [
    "PROPORTIONAL",
    "ClusterView",
    "Curve",
    "Grant",
    "JobView",
    "Move",
    "NodeView",
    "Option",
    "Outcome",
    "Placement",
    "Prices",
    "Quota",
    "Round",
    "Terms",
    "Utility",
    "Weights",
    "allocate",
]
