"""Rules for worlds that stand still although no worker ended. Pure.

rules        heartbeats -> for how long a world has been quiet, and the phase that allows it
inspection   two looks at quiet workers -> workers that stand still, or only say nothing
terms        the owner's terms for both
"""
