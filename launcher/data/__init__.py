"""Elastic data: which examples a world trains, whatever its size, none lost and none repeated.

Users reach it as ``launcher.elastic``: a ``Sampler`` for what has an index and is trained in step,
``shards`` for what workers take as they come. Neither numpy nor torch is imported here, and agents
import the few modules that they need by name.
"""

from launcher.data.planning import Micro, plan, weight
from launcher.data.sampler import Sampler
from launcher.data.sources import TextFile
from launcher.data.taking import Shards, shards

__all__ = ["Micro", "Sampler", "Shards", "TextFile", "plan", "shards", "weight"]
