"""Estimates of a job's needs before it runs, from similar jobs.

past       the record of a job, the likeness of two jobs, the most similar jobs
pooled     one model of the most similar jobs' measurements, and the work to do
needs      processor, memory and network of one size
sizes      a row per kind of accelerator and size
choice     the size to begin with, with its reason
answer     the whole estimate
"""

from brain.models.estimate.answer import estimate
from brain.models.estimate.past import Past, PoolCapacity, Script, WorldUse
from brain.models.estimate.sizes import PriceList

__all__ = ["Past", "PoolCapacity", "PriceList", "Script", "WorldUse", "estimate"]
