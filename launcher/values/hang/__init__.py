"""Rules for worlds that make no progress although no worker has ended. Pure.

rules        heartbeats -> time for which a world has been quiet, and its phase
inspection   two looks at quiet workers -> workers that stand still, or are only silent
terms        the owner's terms for hanging worlds and slow nodes
"""
