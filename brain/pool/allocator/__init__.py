"""The division of a cluster's accelerators among many jobs by prices.

    jobs, cluster -> configurations and their utility -> prices -> a division -> nodes -> reasons

``allocate`` is a pure function: no clock, no I/O, no randomness. The jobs contain their goodput
curves, and this package does not depend on how these were fitted.
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
