"""The division of a cluster among many jobs, and the worth of accelerators at the margin.

    jobs, cluster -> configurations and their worth -> prices -> a division -> nodes -> reasons

``allocate`` is a pure function: no clock, no I/O, no randomness. Goodput curves come in with the
jobs; nothing here knows how they were fitted.
"""

from brain.pool.allocator.solver import allocate
from brain.pool.allocator.utility import PROPORTIONAL, Utility, UtilityInputs, Weights
from brain.pool.allocator.views import (
    ClusterView,
    Curve,
    Grant,
    JobPlacement,
    Move,
    Option,
    PoolJob,
    PoolNode,
    Prices,
    Quota,
    Round,
    RoundEffect,
)

__all__ = [
    "PROPORTIONAL",
    "ClusterView",
    "Curve",
    "Grant",
    "JobPlacement",
    "Move",
    "Option",
    "PoolJob",
    "PoolNode",
    "Prices",
    "Quota",
    "Round",
    "RoundEffect",
    "Utility",
    "UtilityInputs",
    "Weights",
    "allocate",
]
