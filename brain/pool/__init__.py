"""Decisions about all jobs of a pool together.

    rounds      one round: reads members from the stores, divides the pool, stores the plans
    division    the grant of each job in one round, the changes allowed now, and reasons
    allocator   uses prices to divide accelerators; knows goodput curves and nodes, but no jobs

This module exports nothing: callers import each subpackage by its own name.
"""
