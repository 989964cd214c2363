"""Decisions about all jobs of a pool together.

    rounds      the spine: reads members from the stores, divides, stores the plans
    division    the grant of each job in one round, the changes allowed now, and reasons
    allocator   uses prices to divide accelerators; knows curves and nodes, but no jobs of Brain

This module exports nothing: callers import each subpackage by its own name.
"""
