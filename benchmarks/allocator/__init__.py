"""The policy for many jobs beside HiGHS and a greedy heap: time, and distance from the best."""
