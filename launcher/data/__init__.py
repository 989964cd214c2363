"""Data for worlds that change size: each epoch trains on each example once, however often the world
changes.

Scripts use this package through ``launcher.elastic``: ``Sampler`` is for indexed data and ranks in
lockstep, ``shards`` is for data that each worker takes at its own pace. This package imports
neither numpy nor torch, and agents import the few modules that they need by name.
"""

from launcher.data.planning import Micro, plan, weight
from launcher.data.sampler import Sampler
from launcher.data.sources import TextFile
from launcher.data.taking import Shards, shards

__all__ = ["Micro", "Sampler", "Shards", "TextFile", "plan", "shards", "weight"]
