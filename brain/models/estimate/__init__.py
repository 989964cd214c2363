"""Estimates of a job's needs before it runs, from jobs that were alike.

past       what is kept of a job, how alike two jobs are, the nearest ones
pooled     their measurements as one model, and how much work there is
needs      processor, memory and network of one size
sizes      a row per kind of accelerator and size
choice     the size to begin with, and why
answer     all of it put together
"""

from brain.models.estimate.answer import estimate
from brain.models.estimate.past import Past, PoolCapacity, Script, WorldUse
from brain.models.estimate.sizes import PriceList

__all__ = ["Past", "PoolCapacity", "PriceList", "Script", "WorldUse", "estimate"]
