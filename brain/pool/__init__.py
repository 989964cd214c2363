"""Many jobs of one pool, decided about together.

    rounds    the spine: members from the stores, a division, its plans

Empty itself: each room is imported by its own name.
"""
