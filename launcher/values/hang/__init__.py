"""Rules for worlds that stand still although no worker ended. Pure.

rules        heartbeats -> how long a world has been quiet, and the phase that explains it
inspection   two looks at quiet workers -> workers that stand still, or are only silent
terms        the owner's terms for both
"""
