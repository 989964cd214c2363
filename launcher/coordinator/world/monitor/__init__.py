"""Observations of one world, from messages.

monitor   the world's workers, from their start to their end
saves     their saves, and the wait for a safe point
exits     their ends, for the diagnosis
"""
