"""Measures how the division of a pool among many jobs compares with HiGHS and a greedy heap: time,
and distance from the best division.
"""
