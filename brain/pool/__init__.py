"""Many jobs of one pool, decided about together.

    rounds      the spine: members from the stores, a division, its plans
    division    what each job gets in one round, what of it may be done now, and why
    allocator   accelerators divided by their prices; knows curves and nodes, no jobs of ours

Empty itself: each room is imported by its own name.
"""
